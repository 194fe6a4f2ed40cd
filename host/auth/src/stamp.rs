//! Whether a file is still the one that was read.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

/// Which file it was, and in which state. A change of its permissions is one of its state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file; `None` where there is none.
    ///
    /// # Errors
    /// Where nobody can say.
    pub(crate) fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Self {
                file: (found.dev(), found.ino()),
                size: found.len(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
