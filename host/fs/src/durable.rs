//! Small files, written atomically: a reader, or a crash, sees the old bytes or the new ones.
//!
//! The last part of a path is never followed if it is a symlink. A FIFO, a device or a directory in the place of a file is an
//! error, and never blocks.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

use crate::fingerprint::Fingerprint;
use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

/// The start of a file, or all of it.
pub struct Contents {
    /// At most as many bytes as were asked for.
    pub bytes: Vec<u8>,
    /// The file's state when it was opened.
    pub fingerprint: Fingerprint,
}

impl Contents {
    /// All of the file; an error if it is longer than what was read.
    pub fn whole(self) -> io::Result<Vec<u8>> {
        if self.fingerprint.size() > self.bytes.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{} bytes long", self.fingerprint.size())));
        }
        Ok(self.bytes)
    }

    /// As text. Bytes that are not UTF-8 become U+FFFD; an incomplete character at the end is left out.
    pub fn text(self) -> String {
        let cut = self.fingerprint.size() > self.bytes.len() as u64;
        match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(e) if cut && e.utf8_error().error_len().is_none() => {
                let valid = e.utf8_error().valid_up_to();
                let mut bytes = e.into_bytes();
                bytes.truncate(valid);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }
    }
}

/// Turns `NotFound` into `None`.
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Options that open a file with these flags, and never follow a symlink.
pub fn options(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No).custom_flags(flags.bits().cast_signed());
    options
}

fn check_regular(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { Ok(()) } else { Err(io::Error::other("not a regular file")) }
}

/// Reads up to `max` bytes of a file; `None` if there is none.
pub fn read(dir: &Dir, path: impl AsRef<Path>, max: u64) -> io::Result<Option<Contents>> {
    open(dir, path)?.map(|(file, fingerprint)| read_from(file, fingerprint, max)).transpose()
}

/// Reads all of a file; `None` if there is none. One that is longer than `max` bytes is an error, and not read.
pub fn read_whole(dir: &Dir, path: impl AsRef<Path>, max: u64) -> io::Result<Option<(Vec<u8>, Fingerprint)>> {
    let Some((file, fingerprint)) = open(dir, path)? else { return Ok(None) };
    let contents = read_from(file, fingerprint, if fingerprint.size() > max { 0 } else { max })?;
    Ok(Some((contents.whole()?, fingerprint)))
}

/// Opens a regular file for reading; `None` if there is none.
///
/// # Errors
/// Where it cannot be opened, or is no regular file.
pub fn open(dir: &Dir, path: impl AsRef<Path>) -> io::Result<Option<(File, Fingerprint)>> {
    let Some(file) = if_there(dir.open_with(path, options(OFlags::NONBLOCK).read(true)))? else {
        return Ok(None);
    };
    check_regular(&file)?;
    let state = Fingerprint::of(&file)?;
    Ok(Some((file, state)))
}

fn read_from(file: File, fingerprint: Fingerprint, max: u64) -> io::Result<Contents> {
    let mut bytes = Vec::with_capacity(usize::try_from(fingerprint.size().min(max)).unwrap_or(0));
    file.take(max).read_to_end(&mut bytes)?;
    Ok(Contents { bytes, fingerprint })
}

/// Whether the last of a file's `size` bytes is a newline.
pub fn ends_with_newline(dir: &Dir, path: impl AsRef<Path>, size: u64) -> io::Result<bool> {
    let Some((mut file, _)) = open(dir, path)? else { return Ok(false) };
    file.seek(SeekFrom::Start(size.saturating_sub(1)))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Opens a file for appending, and makes it if there is none.
pub fn append(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
    let file = dir.open_with(path, options(OFlags::NONBLOCK).append(true).create(true))?;
    check_regular(&file)?;
    Ok(file)
}

/// Opens a directory that the operator named. Only here a path becomes a [`Dir`].
pub fn open_directory(path: &Path) -> io::Result<Dir> {
    Dir::open_ambient_dir(path, cap_std::ambient_authority())
}

/// Opens a directory; a symlink is an error.
pub fn open_dir(dir: &Dir, name: impl AsRef<Path>) -> io::Result<Dir> {
    let file = dir.open_with(name, options(OFlags::DIRECTORY).read(true))?;
    Ok(Dir::from_std_file(file.into_std()))
}

/// Opens a directory, and makes it if there is none. A new one survives a power cut.
pub fn open_or_make_dir(dir: &Dir, name: impl AsRef<Path>) -> io::Result<Dir> {
    match dir.create_dir(&name) {
        Ok(()) => sync_dir(&open_dir(dir, ".")?)?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    open_dir(dir, name)
}

/// Makes renames into, and removals from, a directory survive a power cut. The directory must be opened by [`open_dir`]: a
/// handle with `O_PATH`, as cap-std's own may be, cannot be synced.
pub fn sync_dir(dir: &Dir) -> io::Result<()> {
    Ok(rustix::fs::fsync(dir)?)
}

/// The mode of a new file, before the process's umask.
pub const ANYBODY: u32 = 0o666;

/// Makes a new file. What survives is its bytes; its name survives a power cut only after [`sync_dir`].
pub fn create(dir: &Dir, name: impl AsRef<Path>, bytes: &[u8], how: Write) -> io::Result<Fingerprint> {
    let Write { mode, survives } = how;
    let mut file = dir.open_with(name, options(OFlags::empty()).write(true).create_new(true).mode(mode))?;
    file.write_all(bytes)?;
    if survives == Survives::PowerCut {
        file.sync_all()?;
    }
    Fingerprint::of(&file)
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The mode of a new file, before the process's umask.
    pub mode: u32,
    /// How much the written bytes survive.
    pub survives: Survives,
}

impl From<Survives> for Write {
    fn from(survives: Survives) -> Self {
        Self { mode: ANYBODY, survives }
    }
}

/// How much a [`replace`] survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The end of the process.
    Process,
    /// A power cut.
    PowerCut,
}

/// The prefix of a file's name until it is renamed to its own.
const TEMPORARY: &str = ".tmp-";

/// Removes what a crash left of any [`replace`]. No other process may be writing in the directory.
pub fn remove_temporaries(dir: &Dir) -> io::Result<()> {
    for entry in dir.entries()? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(TEMPORARY)) {
            if_there(dir.remove_file(name))?;
        }
    }
    Ok(())
}

/// Removes what a crash left of a [`replace`] of this file. No other process may be writing it.
pub fn remove_temporary(dir: &Dir, name: &str) -> io::Result<()> {
    if_there(dir.remove_file(format!("{TEMPORARY}{name}"))).map(drop)
}

/// Replaces a file, or makes it. A reader sees the old bytes or the new ones. A symlink of that name is replaced and not
/// followed.
pub fn replace(dir: &Dir, name: &str, bytes: &[u8], survives: Survives) -> io::Result<Fingerprint> {
    replace_as(dir, name, bytes, survives.into())
}

/// As [`replace`], with the new file's mode before the umask.
pub fn replace_as(dir: &Dir, name: &str, bytes: &[u8], how: Write) -> io::Result<Fingerprint> {
    let written = replace_from(dir, &format!("{TEMPORARY}{name}"), dir, OsStr::new(name), bytes, how)?;
    if how.survives == Survives::PowerCut {
        sync_dir(dir)?;
    }
    Ok(written)
}

/// As [`replace`], but the new bytes are first written to `temporary` in another directory of the same file system, and the
/// target's directory is not synced.
pub fn replace_from(
    dir: &Dir,
    temporary: &str,
    to_dir: &Dir,
    to: &OsStr,
    bytes: &[u8],
    how: Write,
) -> io::Result<Fingerprint> {
    // A crash can have left one. Each directory that is written here has one writer.
    if_there(dir.remove_file(temporary))?;
    let renamed =
        create(dir, temporary, bytes, how).and_then(|written| dir.rename(temporary, to_dir, to).map(|()| written));
    if renamed.is_err() {
        // Frees what it took of a full disk. The first error is returned.
        let _ = dir.remove_file(temporary);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    fn dir() -> (TempDir, Dir) {
        let temp = TempDir::new(ambient_authority()).unwrap();
        let dir = open_dir(&temp, ".").unwrap();
        (temp, dir)
    }

    #[test]
    fn a_symlink_a_fifo_and_a_directory_are_errors_that_do_not_block() {
        let (_temp, dir) = dir();
        dir.write("outside", "secret").unwrap();
        dir.symlink("outside", "link").unwrap();
        rustix::fs::mkfifoat(&dir, "fifo", rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        dir.create_dir("dir").unwrap();
        for name in ["link", "fifo", "dir"] {
            assert!(read(&dir, name, 100).is_err(), "{name} was read");
            assert!(append(&dir, name).is_err(), "{name} was appended to");
        }
        assert!(open_dir(&dir, "link").is_err());
        assert!(read(&dir, "none", 100).unwrap().is_none());
    }

    #[test]
    fn a_huge_sparse_file_costs_no_more_than_what_is_asked_for() {
        let (_temp, dir) = dir();
        dir.create("huge").unwrap().set_len(10 << 30).unwrap();
        let contents = read(&dir, "huge", 1000).unwrap().unwrap();
        assert_eq!((contents.bytes.len(), contents.fingerprint.size()), (1000, 10 << 30));
        assert_eq!(contents.whole().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_character_that_was_cut_in_two_is_left_out() {
        let (_temp, dir) = dir();
        dir.write("text", "aß").unwrap();
        assert_eq!(read(&dir, "text", 2).unwrap().unwrap().text(), "a");
        dir.write("text", b"a\xff").unwrap();
        assert_eq!(read(&dir, "text", 9).unwrap().unwrap().text(), "a\u{fffd}");
    }

    #[test]
    fn a_replaced_symlink_is_not_followed_and_leftovers_do_not_matter() {
        let (_temp, dir) = dir();
        dir.write("victim", "untouched").unwrap();
        dir.symlink("victim", "file").unwrap();
        dir.symlink("victim", ".tmp-file").unwrap();
        let written = replace(&dir, "file", b"new", Survives::PowerCut).unwrap();
        assert_eq!(dir.read_to_string("file").unwrap(), "new");
        assert_eq!(dir.read_to_string("victim").unwrap(), "untouched");
        assert_eq!(Fingerprint::at(&dir, "file").unwrap(), Some(written));
    }

    #[test]
    fn a_replace_that_fails_leaves_nothing_behind() {
        let (_temp, dir) = dir();
        dir.create_dir("taken").unwrap();
        assert!(replace(&dir, "taken", b"x", Survives::Process).is_err());
        assert_eq!(dir.entries().unwrap().count(), 1);
    }
}
