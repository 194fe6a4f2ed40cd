//! Reads the files in a directory that declare a member. Discovery, pins and signatures all use them.

use std::{io, path::Path};

use cap_std::fs::Dir;
use guild_contract::manifest::{FILE_NAME, MANIFEST_BYTES, package};
use guild_fs::durable::{open_directory, read_whole};

/// The files that declare members.
pub(crate) const FILES: [&str; 2] = [FILE_NAME, package::FILE_NAME];

/// The content of one of [`FILES`], if it exists. A `package.json` counts only if it declares a member.
///
/// # Errors
///
/// Returns an error when the file cannot be read, or is too large.
pub(crate) fn read(dir: &Dir, file: &str) -> io::Result<Option<Vec<u8>>> {
    let found = read_whole(dir, file, MANIFEST_BYTES)?.map(|(text, _)| text);
    Ok(found.filter(|text| file == FILE_NAME || package::is_declared(text)))
}

/// Whether one of [`FILES`] exists and declares a member.
pub fn declares(dir: &Dir, file: &str) -> bool {
    matches!(read(dir, file), Ok(Some(_)))
}

/// Whether a directory is a member's. An unreadable `package.json` does not count.
pub fn is_member(dir: &Dir) -> bool {
    dir.symlink_metadata(FILE_NAME).is_ok() || declares(dir, package::FILE_NAME)
}

/// Whether there is a directory of a member at a path.
pub fn is_member_at(path: &Path) -> bool {
    open_directory(path).is_ok_and(|dir| is_member(&dir))
}
