//! Files that the operator wrote, as text.

use std::{io, os::unix::fs::MetadataExt as _, path::Path};

use guild_contract::objects::{Objects, TABLE};
use guild_fs::regular_file;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, Deserializer};

/// No sensible file is larger.
const MAX_BYTES: u64 = 1024 * 1024;
/// Everybody's write permission. That of a file's group is the operator's own to give, and usual where each user has one.
const ANYBODY_WRITES: u32 = 0o002;

/// Refuses what is decided by a file that anybody can write, by the file's mode.
pub fn check_unshared(mode: u32) -> io::Result<()> {
    if mode & ANYBODY_WRITES == 0 {
        return Ok(());
    }
    let why =
        "anybody can write it, and so could have decided what it says; `chmod o-w` it after a look at what is in it";
    Err(io::Error::other(why))
}

/// A path as a shell takes it for one word.
pub fn shell_word(path: &Path) -> String {
    let path = path.to_string_lossy();
    shlex::try_quote(&path).map_or_else(|_| path.to_string(), |word| word.into_owned())
}

/// Reads a whole TOML text, in which no list stands for a table.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
    T::deserialize(Objects::called(TABLE, Deserializer::from(DeTable::parse(text)?)))
}

/// The text of a file that the operator wrote, and that other users cannot write.
pub fn read_file(path: &Path) -> io::Result<String> {
    let file = regular_file::open(path)?;
    let metadata = file.metadata()?;
    // The mode of a device, as /dev/null, says nothing about what is read from it.
    if metadata.is_file() {
        check_unshared(metadata.mode())?;
    }
    let text = String::from_utf8(regular_file::read_from(&file, MAX_BYTES)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// The line of a place in a text, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
