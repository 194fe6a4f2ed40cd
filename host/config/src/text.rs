//! Reads text files that the operator wrote.

use std::{io, os::unix::fs::MetadataExt as _, path::Path};

use guild_fs::regular_file;

/// The size of the largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;
/// The write permission of all users. The write permission of a file's group is the operator's decision, and common on
/// systems where each user has a group.
const ANYBODY_WRITES: u32 = 0o002;

/// Refuses a file that all users can write, by its mode.
pub fn check_unshared(mode: u32) -> io::Result<()> {
    if mode & ANYBODY_WRITES == 0 {
        return Ok(());
    }
    let why =
        "all users can write it, so its content may not be the operator's; review the content, then `chmod o-w` it";
    Err(io::Error::other(why))
}

/// Quotes a path so that a shell takes it for one word.
pub fn shell_word(path: &Path) -> String {
    let path = path.to_string_lossy();
    shlex::try_quote(&path).map_or_else(|_| path.to_string(), |word| word.into_owned())
}

/// Reads a text file that the operator wrote, and that other users cannot write.
pub fn read_file(path: &Path) -> io::Result<String> {
    let file = regular_file::open(path)?;
    let metadata = file.metadata()?;
    // The mode of a device such as /dev/null does not tell who controls its content.
    if metadata.is_file() {
        check_unshared(metadata.mode())?;
    }
    let text = String::from_utf8(regular_file::read_from(&file, MAX_BYTES)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

/// The line of an offset in a text, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
