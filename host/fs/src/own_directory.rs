//! Directories that no other user can read or change.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::Path,
};

/// Makes the directory where it is missing, and checks that it belongs to this user alone.
///
/// # Errors
/// If it cannot be made, or another user could have put something into it. The text names it.
pub fn create(path: &Path) -> io::Result<()> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} must be a directory of this user, with mode 0700", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
