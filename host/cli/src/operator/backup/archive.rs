//! Writes the archive of a backup.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, FileType, MetadataExt as _};
use flate2::{Compression, write::GzEncoder};
use guild_contract::JobId;
use guild_fs::{
    durable::{if_there, open, open_dir, open_directory, read_whole},
    tree::walk,
};
use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

use super::{COPIES, JOBS, META, NOTES};
use crate::failure::Failure;

/// The file of a job that is read right after its record: what a job has stored is in its transcript last.
const TRANSCRIPT: &str = "transcript.jsonl";
/// The file with the usage of removed jobs. A line is added before its job is removed, so it is read after the jobs.
const REMOVED: &str = ".usage.jsonl";
/// The most bytes of a path in an archive: it is restored below a directory whose path is added to it.
pub(super) const PATH_BYTES: usize = 3072;
/// The most bytes of a job's record.
const MAX_META_BYTES: u64 = 16 * 1024 * 1024;

/// An archive that is being written.
pub(super) struct Archive<W: Write> {
    tar: Builder<GzEncoder<W>>,
    /// The time of entries that are no files.
    time: u64,
    /// The files that are not in the archive, such as symlinks, with the reasons.
    left_out: Vec<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W, time: Timestamp) -> Self {
        let tar = Builder::new(GzEncoder::new(out, Compression::default()));
        Self { tar, time: time.as_second().unsigned_abs(), left_out: Vec::new() }
    }

    /// Ends the archive. Returns what was left out.
    pub(super) fn finish(self) -> Result<Vec<String>, Failure> {
        let ended = self.tar.into_inner().and_then(GzEncoder::finish).and_then(|mut out| out.flush());
        ended.map_err(|e| Failure::error(format!("the backup cannot be written: {e}")))?;
        Ok(self.left_out)
    }

    pub(super) fn bytes(&mut self, at: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Failure> {
        let header = header(EntryType::Regular, 0o600, bytes.len() as u64, self.time);
        self.append(header, at.as_ref(), bytes)
    }

    pub(super) fn directory(&mut self, at: &Path) -> Result<(), Failure> {
        self.append(header(EntryType::Directory, 0o700, 0, self.time), at, io::empty())
    }

    /// The files under a directory, apart from what is not included of those directly in it. A directory that is
    /// missing has none.
    pub(super) fn tree(
        &mut self,
        directory: &Path,
        at: &Path,
        is_included: impl Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        let Some(dir) = if_there(open_directory(directory)).map_err(|e| failed(directory, e))? else { return Ok(()) };
        self.directory(at)?;
        self.files(&dir, directory, at, is_included)
    }

    /// A member: its jobs, then its memories and all its other files. Those that its cluster shares are in a directory of
    /// members of their own, and go before those of the time before the cluster.
    pub(super) fn member(
        &mut self,
        root: &Dir,
        named: &Path,
        path: &Path,
        at: &Path,
        shared: Option<&Path>,
    ) -> Result<(), Failure> {
        let (at, named) = (at.join(path), named.join(path));
        let Some(dir) = if_there(open_dir(root, path)).map_err(|e| failed(&named, e))? else { return Ok(()) };
        self.directory(&at)?;
        let shared = shared.map(|members| members.join(path));
        let there = shared.as_ref().map(|shared| if_there(open_directory(shared)).map_err(|e| failed(shared, e)));
        let there = there.transpose()?.flatten();
        let mut jobs = Vec::new();
        for (dir, named) in [Some((&dir, &named)), there.as_ref().zip(shared.as_ref())].into_iter().flatten() {
            let named = named.join(JOBS);
            jobs.extend(if_there(open_dir(dir, JOBS)).map_err(|e| failed(&named, e))?.map(|jobs| (jobs, named)));
        }
        let mut ids = BTreeMap::new();
        for (place, (jobs, named)) in jobs.iter().enumerate() {
            let found = jobs.entries().and_then(|entries| {
                let name = |entry: io::Result<cap_std::fs::DirEntry>| Ok(entry?.file_name().into_string());
                entries.map(name).collect::<io::Result<Vec<_>>>()
            });
            let found = found.map_err(|e| failed(named, e))?;
            ids.extend(found.into_iter().flatten().filter(|id| id.parse::<JobId>().is_ok()).map(|id| (id, place)));
        }
        if !jobs.is_empty() {
            self.directory(&at.join(JOBS))?;
        }
        // In order: ids of jobs begin with their time.
        for (id, place) in ids {
            if let Some((jobs, named)) = jobs.get(place) {
                self.job(jobs, &id, &named.join(&id), &at.join(JOBS).join(&id))?;
            }
        }
        let in_cluster = shared.is_some();
        let is_copy = |name: &str| in_cluster && (name == NOTES || COPIES.contains(&name));
        self.files(&dir, &named, &at, |name| ![JOBS, REMOVED].contains(&name) && !is_copy(name))?;
        if let (Some(there), Some(shared)) = (&there, &shared) {
            self.files(there, shared, &at, |name| name == NOTES)?;
        }
        self.file(&dir, &named, Path::new(REMOVED), &at)
    }

    /// A job. Its record is read first: what it says has ended is complete in the files that are read later. It is
    /// written last: a directory without one is no job, as where the job was deleted meanwhile.
    fn job(&mut self, jobs: &Dir, id: &str, named: &Path, at: &Path) -> Result<(), Failure> {
        let why = |e| failed(named, e);
        let Some(dir) = if_there(open_dir(jobs, id)).map_err(why)? else { return Ok(()) };
        let Some((meta, _)) = read_whole(&dir, META, MAX_META_BYTES).map_err(why)? else { return Ok(()) };
        self.directory(at)?;
        self.file(&dir, named, Path::new(TRANSCRIPT), at)?;
        self.files(&dir, named, at, |name| ![META, TRANSCRIPT].contains(&name))?;
        // A job that is deleted has another name first.
        if if_there(jobs.metadata(Path::new(id).join(META))).map_err(why)?.is_some() {
            self.bytes(at.join(META), &meta)?;
        }
        Ok(())
    }

    /// The files under `dir`, whose path is `named`, apart from what is not included of those directly in it.
    fn files(&mut self, dir: &Dir, named: &Path, at: &Path, is_included: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let why = |e| failed(named, e);
        for entry in dir.entries().map_err(why)? {
            let entry = entry.map_err(why)?;
            let name = PathBuf::from(entry.file_name());
            if name.to_str().is_some_and(|name| !is_included(name)) {
                continue;
            }
            let Some(kind) = if_there(entry.file_type()).map_err(why)? else { continue };
            self.entry(dir, named, &name, kind, at)?;
            let Some(below) = kind.is_dir().then(|| if_there(open_dir(dir, &name))).transpose().map_err(why)?.flatten()
            else {
                continue;
            };
            let (named, at) = (named.join(&name), at.join(&name));
            for found in walk(&below) {
                match found {
                    Ok(found) => self.entry(&below, &named, &found.path, found.kind, &at)?,
                    Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                        self.left_out.push(format!("a directory below {}, whose path is too long", named.display()));
                    }
                    Err(e) if is_other_now(&e) => self.left_out.push(format!("{}: {e}", named.display())),
                    Err(e) => return Err(failed(&named, e)),
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &Dir, named: &Path, path: &Path, kind: FileType, at: &Path) -> Result<(), Failure> {
        if is_of_process(path) {
            return Ok(());
        }
        if at.join(path).as_os_str().len() > PATH_BYTES {
            self.left_out.push(format!("{}, whose path is too long", named.join(path).display()));
            return Ok(());
        }
        if kind.is_dir() {
            return self.directory(&at.join(path));
        }
        if kind.is_file() {
            return self.file(dir, named, path, at);
        }
        let path = named.join(path);
        self.left_out.push(format!("{} is neither a file nor a directory", path.display()));
        Ok(())
    }

    /// A file as it is now, if it is there. Where it grows meanwhile, the rest is not part of it.
    fn file(&mut self, dir: &Dir, named: &Path, path: &Path, at: &Path) -> Result<(), Failure> {
        let why = |e| failed(&named.join(path), e);
        let opened = match open(dir, path) {
            // A worker can replace its files at any time.
            Err(e) if is_other_now(&e) => {
                self.left_out.push(format!("{}: {e}", named.join(path).display()));
                return Ok(());
            }
            opened => opened.map_err(why)?,
        };
        let Some((file, _)) = opened else { return Ok(()) };
        let metadata = file.metadata().map_err(why)?;
        let mode = 0o600 | metadata.mode() & 0o100;
        let time = metadata.mtime().unsigned_abs();
        let header = header(EntryType::Regular, mode, metadata.len(), time);
        // Where it shrinks meanwhile, as an artifact of a running job, it ends with zeros.
        let content = file.chain(io::repeat(0)).take(metadata.len());
        self.append(header, &at.join(path), content)
    }

    fn append(&mut self, mut header: Header, at: &Path, content: impl io::Read) -> Result<(), Failure> {
        self.tar
            .append_data(&mut header, at, content)
            .map_err(|e| Failure::error(format!("{} cannot be added to the backup: {e}", at.display())))
    }
}

/// Whether an error says that what was a file, or a directory, is something else by now. A link is not followed.
fn is_other_now(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, Other};
    matches!(error.kind(), InvalidFilename | IsADirectory | NotADirectory | Other)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn header(kind: EntryType, mode: u32, size: u64, time: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time);
    header
}

fn failed(path: &Path, e: io::Error) -> Failure {
    Failure::error(format!("{} cannot be read: {e}", path.display()))
}

/// Whether a file says which process works here, or is being written under another name.
fn is_of_process(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    [".lock", ".owner", ".host", ".guild-lock"].contains(&&*name)
        || name.starts_with(".tmp-")
        || name.starts_with("guild-hall.sock")
}
