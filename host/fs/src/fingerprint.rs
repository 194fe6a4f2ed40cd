//! The identity and the state of a file: they show a change without reading the file.

use std::{io, path::Path};

use rustix::{
    fd::AsFd,
    fs::{AtFlags, CWD, Stat, fstat, statat},
    io::Errno,
};

/// The state of a file: which file it is, its size, and when it was last written.
///
/// A change of its permissions is none of its state, but of its [`StrictFingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    /// The state of an open file.
    ///
    /// # Errors
    /// Where the metadata cannot be read.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok((&fstat(file)?).into())
    }

    /// The state of whatever has that name in the directory, a symlink itself; `None` if nothing has. One system call.
    ///
    /// # Errors
    /// Where the metadata cannot be read.
    pub fn at(dir: impl AsFd, path: impl AsRef<Path>) -> io::Result<Option<Self>> {
        found(statat(dir, path.as_ref(), AtFlags::SYMLINK_NOFOLLOW))
    }

    /// From the metadata that another library has read; `modified` is as [`Self::modified`].
    pub fn from_parts(device: u64, inode: u64, size: u64, modified: (i64, i64)) -> Self {
        Self { device, inode, size, modified }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When the file was last written: seconds since 1970, and nanoseconds.
    pub fn modified(&self) -> (i64, i64) {
        self.modified
    }
}

impl From<&Stat> for Fingerprint {
    fn from(found: &Stat) -> Self {
        Self {
            device: found.st_dev,
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified: (found.st_mtime, found.st_mtime_nsec.cast_signed()),
        }
    }
}

/// As [`Fingerprint`], and a change of the file's permissions, owner or names is a change too: for secrets and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictFingerprint {
    file: Fingerprint,
    changed: (i64, i64),
}

impl StrictFingerprint {
    /// The state of the file that a path leads to, through symlinks too; `None` where it leads to none.
    ///
    /// # Errors
    /// Where the metadata cannot be read.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        found(statat(CWD, path, AtFlags::empty()))
    }
}

impl From<&Stat> for StrictFingerprint {
    fn from(found: &Stat) -> Self {
        Self { file: found.into(), changed: (found.st_ctime, found.st_ctime_nsec.cast_signed()) }
    }
}

/// What is there, if anything is.
fn found<T: for<'a> From<&'a Stat>>(found: rustix::io::Result<Stat>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some((&found).into())),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
