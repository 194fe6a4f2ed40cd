//! Reads the notes of the newest original Guild Hall: one file for each scope, with a section for each note. The files
//! are never written or renamed, so that the original finds them unchanged.

use std::{
    io,
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use guild_contract::manifest::Scope;
use guild_fs::durable::read_whole;
use guild_session::activation::MemoryNote;

use super::time;

/// Bytes of a file that is read. The original gives a session 16,000 characters of all files.
const MAX_BYTES: u64 = 1024 * 1024;
/// Characters of a section's name, in the original too. A longer heading is text.
const MAX_NAME: usize = 100;
/// The key of the text before the first section.
const PREAMBLE: &str = "preamble";

/// A file of the original.
pub struct Original {
    dir: Dir,
    path: PathBuf,
}

impl Original {
    /// The file `path` of `dir`, which need not exist.
    ///
    /// # Errors
    ///
    /// Returns an error when the handle on the directory cannot be duplicated.
    pub fn at(dir: &Dir, path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { dir: dir.try_clone()?, path: path.into() })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its notes in their order, as notes of `scope`. All have the file's time. An error of reading is logged, and
    /// gives no notes.
    pub(super) fn notes(&self, scope: Scope) -> Vec<MemoryNote> {
        let read = read_whole(&self.dir, &self.path, MAX_BYTES)
            .and_then(|read| read.map(|(text, file)| Ok((into_text(text)?, time(&file)))).transpose());
        let (text, modified) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Vec::new(),
            Err(e) => {
                tracing::warn!(file = %self.path.display(), "the original's notes are left out: {e}");
                return Vec::new();
            }
        };
        let note = |(key, content): (String, String)| {
            let content = content.trim().to_owned();
            let modified = modified.clone();
            (!content.is_empty()).then_some(MemoryNote { scope, key, content, modified, origin: None })
        };
        sections(&text).into_iter().filter_map(note).collect()
    }
}

fn into_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// The sections of a text, by their keys. The original made sections out of the files of older versions, and named them
/// with `.md`.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections = Vec::new();
    let (mut key, mut content) = (PREAMBLE, String::new());
    for line in text.lines() {
        let name = line.strip_prefix("## ").map(str::trim);
        match name.filter(|name| !name.is_empty() && name.chars().count() < MAX_NAME) {
            Some(name) => {
                sections.push((key.to_owned(), std::mem::take(&mut content)));
                key = name.strip_suffix(".md").unwrap_or(name);
            }
            None => {
                content.push_str(line);
                content.push('\n');
            }
        }
    }
    sections.push((key.to_owned(), content));
    sections
}
