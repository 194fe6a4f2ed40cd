//! Files that the operator wrote, as text.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use guild_contract::objects::{Objects, TABLE};
use serde::de::DeserializeOwned;
use toml::de::{DeTable, Deserializer};

/// No sensible file is larger; reading stops here.
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
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    // A pipe or a device, as /dev/null, is the operator's choice.
    if metadata.is_file() {
        check_unshared(metadata.mode())?;
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// The line of a place in a text, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
