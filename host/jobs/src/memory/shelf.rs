//! Decides about changes of notes, and keeps the notes in files that people read and edit.

use std::{io, path::PathBuf};

use cap_std::fs::Dir;
use guild_fs::{
    durable::{Survives, if_there, open_or_make_dir, read_whole, remove_temporaries, replace, sync_dir},
    fingerprint::Fingerprint,
};

use super::origin::{Origin, Origins};
use crate::files::record::pretty;

/// The origins of notes: a map from keys to [`Origin`].
const ORIGINS: &str = ".origin.json";
/// Bytes of [`ORIGINS`] that are read at most.
const MAX_ORIGINS_BYTES: u64 = 4 * 1024 * 1024;

/// The reason that a change of a note was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotChanged {
    /// The note is not as the change was made from.
    #[error("the memory was changed meanwhile")]
    Outdated,
    /// It cannot be stored.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Decides about the notes of one scope. All readers read them in its [`NoteFiles`]; a change is made only if the note
/// is still as it was read, so that no writer loses what another has written. Its methods block.
pub trait Shelf: Send + Sync {
    /// The files with the notes.
    fn files(&self) -> &NoteFiles;

    /// Writes a note whose file is `expected`, or that does not exist. When this returns, the note survives a power cut.
    ///
    /// # Errors
    ///
    /// Returns `Outdated` when the file is another.
    fn put(&self, note: Written<'_>, expected: Option<Fingerprint>) -> Result<(), NotChanged>;

    /// Removes those of the notes whose files are still the given ones, and returns their keys.
    ///
    /// # Errors
    ///
    /// Returns an error when a file cannot be removed. Some may have been removed then.
    fn remove<'a>(&self, notes: &[(&'a str, Fingerprint)]) -> io::Result<Vec<&'a str>>;

    /// Begins a compaction: until the guard is dropped, no other process begins one of the same notes. `None` if another
    /// one has begun.
    ///
    /// # Errors
    ///
    /// Returns an error when the other processes cannot be told.
    fn begin_compaction(&self) -> io::Result<Option<Box<dyn Send>>> {
        Ok(Some(Box::new(())))
    }
}

/// A note to be written.
pub struct Written<'a> {
    /// The key.
    pub key: &'a str,
    /// The text.
    pub text: &'a str,
    /// The origin; none if a person wrote it.
    pub origin: Option<Origin>,
}

/// The directory with the notes of one scope: one file for each note, and one with their origins. It is a shelf by
/// itself, where one process writes.
pub struct NoteFiles {
    root: Dir,
    /// The directory of the notes, in `root`.
    pub(super) path: PathBuf,
}

/// The name of a note's file.
pub fn file(key: &str) -> String {
    format!("{key}.md")
}

impl NoteFiles {
    /// The directory `path` of `root`, which need not exist.
    ///
    /// # Errors
    ///
    /// Returns an error when the handle on `root` cannot be duplicated.
    pub fn new(root: &Dir, path: PathBuf) -> io::Result<Self> {
        Ok(Self { root: root.try_clone()?, path })
    }

    /// A handle on the directory, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error when the path cannot be opened, or is not a directory.
    pub fn dir(&self) -> io::Result<Dir> {
        self.path.iter().try_fold(self.root.try_clone()?, |dir, name| open_or_make_dir(&dir, name))
    }

    /// Removes temporary files that a crash left.
    pub(super) fn tidy(&self) -> io::Result<()> {
        let dir = self.dir()?;
        if let Err(e) = remove_temporaries(&dir) {
            tracing::warn!("temporary files are left in {}/: {e}", self.path.display());
        }
        Ok(())
    }

    /// The keys of all regular `.md` files, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be read.
    pub fn list(&self, dir: &Dir) -> io::Result<Vec<(String, Fingerprint)>> {
        let mut files = Vec::new();
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(key) = name.to_str().and_then(|name| name.strip_suffix(".md")) else { continue };
            if key.is_empty() || key.starts_with('.') || !entry.file_type()?.is_file() {
                continue;
            }
            if let Some(file) = Fingerprint::at(dir, &name)? {
                files.push((key.to_owned(), file));
            }
        }
        files.sort_unstable_by(|(a_key, a), (b_key, b)| b.modified().cmp(&a.modified()).then_with(|| a_key.cmp(b_key)));
        Ok(files)
    }

    /// The origins of the notes. An error of reading is logged, and gives none.
    pub fn origins(&self, dir: &Dir) -> Origins {
        let origins = read_whole(dir, ORIGINS, MAX_ORIGINS_BYTES)
            .and_then(|json| json.map_or(Ok(Origins::new()), |(json, _)| Ok(serde_json::from_slice(&json)?)));
        origins.unwrap_or_else(|e| {
            tracing::warn!(file = ORIGINS, "the origins of memories are ignored: {e}");
            Origins::new()
        })
    }

    /// Changes the origins: removes those of missing notes, and adds that of a note that is about to be written. If that
    /// fails, the note is stored nevertheless, with an unknown origin.
    fn change_origins(&self, dir: &Dir, key: &str, origin: Option<Origin>) {
        let mut origins = self.origins(dir);
        origins.remove(key);
        origins.retain(|key, _| !matches!(Fingerprint::at(dir, file(key)), Ok(None)));
        origins.extend(origin.map(|origin| (key.to_owned(), origin)));
        let stored = pretty(&origins).and_then(|json| replace(dir, ORIGINS, &json, Survives::PowerCut));
        if let Err(e) = stored {
            tracing::warn!(file = ORIGINS, "the origins of memories could not be written: {e}");
        }
    }
}

impl Shelf for NoteFiles {
    fn files(&self) -> &NoteFiles {
        self
    }

    fn put(&self, Written { key, text, origin }: Written<'_>, expected: Option<Fingerprint>) -> Result<(), NotChanged> {
        let dir = self.dir()?;
        if Fingerprint::at(&dir, file(key))? != expected {
            return Err(NotChanged::Outdated);
        }
        self.change_origins(&dir, key, origin);
        replace(&dir, &file(key), text.as_bytes(), Survives::PowerCut)?;
        Ok(())
    }

    fn remove<'a>(&self, notes: &[(&'a str, Fingerprint)]) -> io::Result<Vec<&'a str>> {
        let dir = self.dir()?;
        let mut removed = Vec::new();
        for (key, expected) in notes {
            if Fingerprint::at(&dir, file(key))? == Some(*expected) && if_there(dir.remove_file(file(key)))?.is_some() {
                removed.push(*key);
            }
        }
        if let Some(last) = removed.last() {
            sync_dir(&dir)?;
            self.change_origins(&dir, last, None);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    #[test]
    fn a_change_of_a_note_that_was_changed_meanwhile_is_refused_and_loses_nothing() {
        let root = TempDir::new(ambient_authority()).unwrap();
        let notes = NoteFiles::new(&root, "memory".into()).unwrap();
        let put = |text, expected| notes.put(Written { key: "moths", text, origin: None }, expected);
        let state = || Fingerprint::at(&*root, "memory/moths.md").unwrap();
        put("first", None).unwrap();
        let first = state();
        assert!(matches!(put("as if there were none", None), Err(NotChanged::Outdated)));
        put("second", first).unwrap();
        assert!(matches!(put("made from the first", first), Err(NotChanged::Outdated)));
        assert!(notes.remove(&[("moths", first.unwrap())]).unwrap().is_empty());
        assert_eq!(root.read_to_string("memory/moths.md").unwrap(), "second");
        assert_eq!(notes.remove(&[("moths", state().unwrap())]).unwrap(), ["moths"]);
        assert_eq!(state(), None);
    }
}
