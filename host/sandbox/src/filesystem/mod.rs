//! Implements `wasi:filesystem` for a component: the read-only directories as wasmtime-wasi serves them, and
//! `/job/artifacts` with a quota.
//!
//! - wasmtime-wasi serves all operations that only read.
//! - Every change except that of a file's times goes through [`Artifacts::change`]: within the job's quota, one change
//!   at a time, and none after the call has ended. A write that does not fit is not begun; the component gets
//!   `insufficient-space`.
//! - Every descriptor, stream and listing is counted against `limits.open_files`; a further one is `quota`. The host's
//!   memory for them counts as the component's.
//! - Only regular files and directories are opened, and no open blocks: a pipe in place of a file is `not-permitted`.
//! - Symlinks are made only to paths below them, so that none leads out of the artifacts for any reader.

mod artifacts;
mod listing;
mod streams;

use std::{
    collections::HashMap,
    fs::File as StdFile,
    io,
    path::{Component, Path},
    sync::Arc,
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir as CapDir, OpenOptions, OpenOptionsExt};
use guild_jobs::files::quota::{Refused, Room, height};
use rustix::{fs::OFlags, io::Errno};
use tokio::task::spawn_blocking;
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::{
    FsPerms, OpenMode,
    filesystem::{Descriptor, Dir, File, WasiFilesystemCtxView},
    p2::{
        DynInputStream, DynOutputStream, FsError, FsResult,
        bindings::filesystem::types::{
            self as fs, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, DirectoryEntryStream,
            ErrorCode, Filesize, HostDescriptor, HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags,
            PathFlags,
        },
        pipe::ClosedInputStream,
    },
};

pub(crate) use artifacts::Artifacts;

use crate::usage::{OpenFilePermit, ResourceUsage};
use listing::Listing;
use streams::{BUFFER, Reader, StreamReservation, Writer, write_at};

/// A preopened directory of a component.
pub(crate) struct Preopen {
    /// Its name in the component: `/job`, `/job/artifacts`, `/memory`.
    pub(crate) guest: &'static str,
    /// The directory, opened once by the host.
    pub(crate) dir: CapDir,
    /// Whether it may be written.
    pub(crate) writable: bool,
}

/// The file system of one Store.
pub(crate) struct Files<'a> {
    pub(crate) wasi: WasiFilesystemCtxView<'a>,
    pub(crate) preopens: &'a [Preopen],
    pub(crate) usage: &'a Arc<ResourceUsage>,
    pub(crate) open: &'a mut HashMap<u32, OpenFilePermit>,
    pub(crate) artifacts: Option<&'a Arc<Artifacts>>,
}

impl HasData for Files<'static> {
    type Data<'a> = Files<'a>;
}

type Fd = Resource<Descriptor>;

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> FsResult<T> {
    spawn_blocking(work).await.map_err(FsError::trap)
}

fn cap_dir(dir: &StdFile) -> io::Result<CapDir> {
    Ok(CapDir::from_std_file(dir.try_clone()?))
}

impl Files<'_> {
    /// A descriptor of a directory that the host opened.
    pub(crate) fn preopen(&mut self, dir: Dir) -> wasmtime::Result<Fd> {
        let permit = self.usage.open().map_err(|e| match e {
            ErrorCode::Quota => self.usage.too_many_files().into(),
            e => wasmtime::Error::msg(format!("no preopened directory: {e}")),
        })?;
        Ok(self.push(Descriptor::Dir(dir), permit)?)
    }

    fn push(&mut self, descriptor: Descriptor, permit: OpenFilePermit) -> FsResult<Fd> {
        let fd = self.wasi.table.push(descriptor)?;
        self.open.insert(fd.rep(), permit);
        Ok(fd)
    }

    fn dir(&self, fd: &Fd) -> FsResult<&Dir> {
        match self.wasi.table.get(fd)? {
            Descriptor::Dir(dir) => Ok(dir),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// The directory, if files below it may be changed.
    fn writable_dir(&self, fd: &Fd) -> FsResult<CapDir> {
        let dir = self.dir(fd)?;
        if dir.perms.write_not_permitted() {
            return Err(ErrorCode::NotPermitted.into());
        }
        Ok(cap_dir(&dir.dir)?)
    }

    /// The file, if it may be changed.
    fn writable_file(&self, fd: &Fd) -> FsResult<Arc<StdFile>> {
        match self.wasi.table.get(fd)? {
            Descriptor::File(file) if file.perms.write_not_permitted() => Err(ErrorCode::NotPermitted.into()),
            Descriptor::File(file) => Ok(file.file.clone()),
            Descriptor::Dir(_) => Err(ErrorCode::BadDescriptor.into()),
        }
    }

    fn artifacts(&self) -> FsResult<Arc<Artifacts>> {
        // All writable files are below the artifacts.
        self.artifacts.cloned().ok_or(ErrorCode::NotPermitted.into())
    }

    async fn change<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused> + Send + 'static,
    ) -> FsResult<T> {
        let artifacts = self.artifacts()?;
        Ok(artifacts.change(work).await?)
    }

    /// Counts a stream or a listing, and its buffer, until it is dropped.
    fn reserve(&self) -> FsResult<StreamReservation> {
        Ok(StreamReservation { _file: self.usage.open()?, _memory: self.usage.memory(BUFFER as u64)? })
    }

    fn writer(&mut self, fd: &Fd, at: Option<Filesize>) -> FsResult<Resource<DynOutputStream>> {
        let file = self.writable_file(fd)?;
        let writer = Writer::new(self.artifacts()?, file, at, self.reserve()?);
        let writer: DynOutputStream = Box::new(writer);
        Ok(self.wasi.table.push(writer)?)
    }
}

/// The request of `open-at`.
#[derive(Clone, Copy)]
struct Wanted {
    path: PathFlags,
    open: OpenFlags,
    mode: DescriptorFlags,
}

impl Wanted {
    /// The permitted uses of the descriptor.
    fn mode(self) -> OpenMode {
        let writes =
            self.mode.contains(DescriptorFlags::WRITE) || self.open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE);
        let reads = self.mode.contains(DescriptorFlags::READ) || !self.mode.contains(DescriptorFlags::WRITE);
        let mut mode = OpenMode::empty();
        mode.set(OpenMode::WRITE, writes);
        mode.set(OpenMode::READ, reads);
        mode
    }

    fn check(self, perms: FsPerms) -> Result<(), ErrorCode> {
        let synced = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        let of_files = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        if self.mode.intersects(synced) {
            return Err(ErrorCode::Unsupported);
        }
        if self.open.contains(OpenFlags::DIRECTORY) && self.open.intersects(of_files) {
            return Err(ErrorCode::Invalid);
        }
        if perms.write_not_permitted() && self.mode().contains(OpenMode::WRITE) {
            return Err(ErrorCode::NotPermitted);
        }
        Ok(())
    }

    fn options(self) -> OpenOptions {
        let mode = self.mode();
        let follow = self.path.contains(PathFlags::SYMLINK_FOLLOW);
        let mut options = OpenOptions::new();
        options
            .read(mode.contains(OpenMode::READ))
            .write(mode.contains(OpenMode::WRITE))
            .truncate(self.open.contains(OpenFlags::TRUNCATE))
            .follow(if follow { FollowSymlinks::Yes } else { FollowSymlinks::No })
            // Opens a pipe without waiting for its other end; it is refused afterwards.
            .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
        options
    }

    /// Opens an existing file or directory.
    fn open(self, dir: &CapDir, path: &str, perms: FsPerms) -> io::Result<Descriptor> {
        self.descriptor(dir.open_with(path, &self.options())?.into_std(), perms)
    }

    /// Opens a file, or makes it, which takes an entry of the quota.
    fn open_or_make(self, dir: &CapDir, path: &str, room: &mut Room<'_>) -> Result<Descriptor, Refused> {
        let exclusive = self.open.contains(OpenFlags::EXCLUSIVE);
        let made = self.open.contains(OpenFlags::CREATE);
        let opened = if made && exclusive {
            None
        } else {
            match self.open(dir, path, FsPerms::ReadWrite) {
                Err(e) if made && e.kind() == io::ErrorKind::NotFound => None,
                opened => Some(opened?),
            }
        };
        let descriptor = match opened {
            Some(descriptor) => {
                if self.open.contains(OpenFlags::TRUNCATE) {
                    room.freed();
                }
                descriptor
            }
            None => {
                if exclusive && dir.symlink_metadata(path).is_ok() {
                    return Err(Errno::EXIST.into());
                }
                room.take(0, 1)?;
                let mut options = self.options();
                let file = dir.open_with(path, options.create(true).create_new(exclusive))?;
                self.descriptor(file.into_std(), FsPerms::ReadWrite)?
            }
        };
        if let Descriptor::File(file) = &descriptor {
            room.register(&file.file, true);
        }
        Ok(descriptor)
    }

    fn descriptor(self, file: StdFile, perms: FsPerms) -> io::Result<Descriptor> {
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            Ok(Descriptor::Dir(Dir::new(file, perms, self.mode(), false)))
        } else if self.open.contains(OpenFlags::DIRECTORY) {
            Err(Errno::NOTDIR.into())
        } else if kind.is_file() {
            Ok(Descriptor::File(File::new(file, perms, self.mode(), false)))
        } else {
            Err(Errno::PERM.into())
        }
    }
}

/// The directory in which a path's last name is, and which would hold a directory that is made or moved there.
fn parent(dir: &CapDir, path: &str) -> io::Result<CapDir> {
    match Path::new(path).parent() {
        Some(parent) if parent != Path::new("") => dir.open_dir(parent),
        _ => dir.try_clone(),
    }
}

/// Whether a symlink with this target leads below itself.
fn leads_down(target: &str) -> bool {
    let down = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    !target.is_empty() && Path::new(target).components().all(down)
}

impl fs::Host for Files<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        self.wasi.convert_error_code(error)
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        self.wasi.filesystem_error_code(error)
    }
}

impl HostDescriptor for Files<'_> {
    fn read_via_stream(&mut self, fd: Fd, offset: Filesize) -> FsResult<Resource<DynInputStream>> {
        let reservation = self.reserve()?;
        let stream = self.wasi.read_via_stream(fd, offset)?;
        let entry = self.wasi.table.get_mut(&stream)?;
        let inner = std::mem::replace(entry, Box::new(ClosedInputStream));
        *entry = Box::new(Reader { inner, _reservation: reservation });
        Ok(stream)
    }

    fn write_via_stream(&mut self, fd: Fd, offset: Filesize) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, Some(offset))
    }

    fn append_via_stream(&mut self, fd: Fd) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, None)
    }

    async fn advise(&mut self, fd: Fd, offset: Filesize, len: Filesize, advice: Advice) -> FsResult<()> {
        self.wasi.advise(fd, offset, len, advice).await
    }

    async fn sync_data(&mut self, fd: Fd) -> FsResult<()> {
        self.wasi.sync_data(fd).await
    }

    async fn get_flags(&mut self, fd: Fd) -> FsResult<DescriptorFlags> {
        self.wasi.get_flags(fd).await
    }

    async fn get_type(&mut self, fd: Fd) -> FsResult<DescriptorType> {
        self.wasi.get_type(fd).await
    }

    async fn set_size(&mut self, fd: Fd, size: Filesize) -> FsResult<()> {
        let file = self.writable_file(&fd)?;
        self.change(move |room| room.resize(&file, size)).await
    }

    async fn set_times(&mut self, fd: Fd, access: NewTimestamp, modification: NewTimestamp) -> FsResult<()> {
        self.wasi.set_times(fd, access, modification).await
    }

    async fn read(&mut self, fd: Fd, len: Filesize, offset: Filesize) -> FsResult<(Vec<u8>, bool)> {
        self.wasi.read(fd, len, offset).await
    }

    async fn write(&mut self, fd: Fd, bytes: Vec<u8>, offset: Filesize) -> FsResult<Filesize> {
        let (file, artifacts) = (self.writable_file(&fd)?, self.artifacts()?);
        let written = bytes.len() as Filesize;
        write_at(artifacts, file, bytes.into(), Some(offset)).await?;
        Ok(written)
    }

    async fn read_directory(&mut self, fd: Fd) -> FsResult<Resource<DirectoryEntryStream>> {
        let reservation = self.reserve()?;
        let dir = cap_dir(&self.dir(&fd)?.dir)?;
        let entries = blocking(move || dir.entries()).await??;
        let listing = self.wasi.table.push(Listing::new(entries, reservation))?;
        // The component's handle names wasmtime-wasi's type, which cannot be made here; the table holds this module's
        // type.
        Ok(Resource::new_own(listing.rep()))
    }

    async fn sync(&mut self, fd: Fd) -> FsResult<()> {
        self.wasi.sync(fd).await
    }

    async fn create_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.writable_dir(&fd)?;
        let work = move |room: &mut Room<'_>| {
            room.check_depth(&parent(&dir, &path)?, 1)?;
            if dir.symlink_metadata(&path).is_ok() {
                return Err(Errno::EXIST.into());
            }
            room.take(0, 1)?;
            Ok(dir.create_dir(&path)?)
        };
        self.change(work).await
    }

    async fn stat(&mut self, fd: Fd) -> FsResult<DescriptorStat> {
        self.wasi.stat(fd).await
    }

    async fn stat_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<DescriptorStat> {
        self.wasi.stat_at(fd, flags, path).await
    }

    async fn set_times_at(
        &mut self,
        fd: Fd,
        flags: PathFlags,
        path: String,
        access: NewTimestamp,
        modification: NewTimestamp,
    ) -> FsResult<()> {
        self.wasi.set_times_at(fd, flags, path, access, modification).await
    }

    async fn link_at(&mut self, fd: Fd, flags: PathFlags, old: String, new_fd: Fd, new: String) -> FsResult<()> {
        let (from, to) = (self.writable_dir(&fd)?, self.writable_dir(&new_fd)?);
        if flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let work = move |room: &mut Room<'_>| {
            room.take(0, 1)?;
            Ok(from.hard_link(&old, &to, &new)?)
        };
        self.change(work).await
    }

    async fn open_at(
        &mut self,
        fd: Fd,
        path_flags: PathFlags,
        path: String,
        open: OpenFlags,
        mode: DescriptorFlags,
    ) -> FsResult<Fd> {
        let wanted = Wanted { path: path_flags, open, mode };
        let dir = self.dir(&fd)?;
        let perms = dir.perms;
        wanted.check(perms)?;
        let dir = cap_dir(&dir.dir)?;
        let permit = self.usage.open()?;
        let opened = if perms.write_not_permitted() {
            let open = move || wanted.open(&dir, &path, perms);
            match self.artifacts {
                // Files below the artifacts can be opened through `/job` too, and be unlinked afterwards.
                Some(artifacts) => {
                    let open = move |room: &mut Room<'_>| {
                        let opened = open()?;
                        if let Descriptor::File(file) = &opened {
                            room.register(&file.file, false);
                        }
                        Ok(opened)
                    };
                    artifacts.change(open).await?
                }
                None => blocking(open).await??,
            }
        } else {
            self.change(move |room| wanted.open_or_make(&dir, &path, room)).await?
        };
        self.push(opened, permit)
    }

    async fn readlink_at(&mut self, fd: Fd, path: String) -> FsResult<String> {
        self.wasi.readlink_at(fd, path).await
    }

    async fn remove_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.writable_dir(&fd)?;
        let work = move |room: &mut Room<'_>| {
            dir.remove_dir(&path)?;
            room.freed();
            Ok(())
        };
        self.change(work).await
    }

    async fn rename_at(&mut self, fd: Fd, old: String, new_fd: Fd, new: String) -> FsResult<()> {
        let (from, to) = (self.writable_dir(&fd)?, self.writable_dir(&new_fd)?);
        let work = move |room: &mut Room<'_>| {
            if from.symlink_metadata(&old)?.is_dir() {
                room.check_depth(&parent(&to, &new)?, height(&from, Path::new(&old))?)?;
            } else if new.ends_with('/') {
                return Err(Errno::NOTDIR.into());
            }
            let replaces = to.symlink_metadata(&new).is_ok();
            from.rename(&old, &to, &new)?;
            if replaces {
                room.freed();
            }
            Ok(())
        };
        self.change(work).await
    }

    async fn symlink_at(&mut self, fd: Fd, target: String, path: String) -> FsResult<()> {
        let dir = self.writable_dir(&fd)?;
        if !leads_down(&target) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let work = move |room: &mut Room<'_>| {
            room.take(0, 1)?;
            Ok(dir.symlink(&target, &path)?)
        };
        self.change(work).await
    }

    async fn unlink_file_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.writable_dir(&fd)?;
        let work = move |room: &mut Room<'_>| {
            dir.remove_file(&path)?;
            room.freed();
            Ok(())
        };
        self.change(work).await
    }

    async fn is_same_object(&mut self, a: Fd, b: Fd) -> wasmtime::Result<bool> {
        self.wasi.is_same_object(a, b).await
    }

    async fn metadata_hash(&mut self, fd: Fd) -> FsResult<MetadataHashValue> {
        self.wasi.metadata_hash(fd).await
    }

    async fn metadata_hash_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<MetadataHashValue> {
        self.wasi.metadata_hash_at(fd, flags, path).await
    }

    fn drop(&mut self, fd: Fd) -> wasmtime::Result<()> {
        self.open.remove(&fd.rep());
        self.wasi.table.delete(fd)?;
        Ok(())
    }
}

impl HostDirectoryEntryStream for Files<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let listing = Resource::<Listing>::new_borrow(stream.rep());
        if let Some(entry) = self.wasi.table.get_mut(&listing)?.read.pop_front() {
            return Ok(Some(entry?));
        }
        let Some(rest) = self.wasi.table.get_mut(&listing)?.rest.take() else { return Ok(None) };
        let (rest, read) = blocking(move || listing::read(rest)).await?;
        let listing = self.wasi.table.get_mut(&listing)?;
        (listing.rest, listing.read) = (Some(rest), read);
        Ok(listing.read.pop_front().transpose()?)
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.wasi.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}
