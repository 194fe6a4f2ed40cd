//! Files that the operator or a user names: in an option, a variable, or a setting.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a file for reading, and does not wait for it. A device is taken for a file, so that `/dev/null` is an empty one.
///
/// # Errors
/// Where it cannot be opened, or is a directory, a named pipe or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    // A named pipe would otherwise be waited for until something writes it.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() {
        return Ok(file);
    }
    let what = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () => "something else",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, and has to be a regular file")))
}

/// Reads all of a file that [`open`] opened.
///
/// # Errors
/// Where it cannot be read, or has more than `max` bytes.
pub fn read_from(file: &File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Opens and reads a file.
///
/// # Errors
/// As [`open`] and [`read_from`].
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, max)
}
