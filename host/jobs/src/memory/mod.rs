//! Stores memory that outlasts a job: files `<key>.md` of a directory, plain text that people read and edit (REQ-WD-26
//! to REQ-WD-29). A member's own memory is `memory/` in its directory; a hall's home has one for each wider scope.

mod compaction;
mod origin;
mod original_notes;
mod scoped;
pub mod shelf;

use std::{
    fmt::Display,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits, manifest::Scope, text::hex};
use guild_fs::{
    clock::{Clock, rfc3339},
    durable::read,
    fingerprint::Fingerprint,
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{error::StoreError, sync::lock};
use guild_session::{activation::MemoryNote, tools::ToolError};

use origin::{Origins, Writers};
use shelf::{NotChanged, NoteFiles, Shelf, Written, file};

pub use compaction::{Compaction, Condense, Condensed, Condenser};
pub use origin::{Origin, Writer};
pub use original_notes::Original;
pub use scoped::{Granted, ScopeNotes, ScopedMemory};

/// The directory of a member that has its memories.
pub(crate) const MEMORY: &str = "memory";
/// The key that compaction writes under.
pub(crate) const COMPACTED: &str = "compacted";
/// The separator of two memories in a prompt.
const SEPARATOR: &str = "\n---\n";
/// Characters of a key.
const MAX_KEY: usize = 64;
/// The number of calls that a memory remembers as its writers, which is more than can be unanswered when a host stops.
const CALLS: usize = 16;
/// Bytes of a character in UTF-8, at most.
const CHAR_BYTES: u64 = 4;
/// How often a change is made again because the memory was changed meanwhile.
const ATTEMPTS: usize = 16;

/// One memory of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The key.
    pub key: String,
    /// The text's size.
    pub bytes: u64,
    /// When it was written: RFC 3339 in UTC.
    pub modified: String,
}

/// The source of a memory.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The job.
    pub job: &'a JobId,
    /// Its tool call, if it is one. The same call takes effect only once.
    pub call: Option<&'a str>,
    /// The member of the job, if it is known.
    pub writer: Option<&'a Writer>,
}

impl Source<'_> {
    /// Identifies the call with its input, since a session with changed sources makes another call under the same id.
    fn digest(&self, asked: &str) -> Option<String> {
        self.call.map(|call| sha256(&format!("{}\0{call}\0{asked}", self.job)))
    }
}

/// The memories of one scope: of a member, of a project, or of all projects. Its methods block on the file system.
pub struct MemoryStore {
    shelf: Box<dyn Shelf>,
    scope: Scope,
    limits: Mutex<Arc<Limits>>,
    clock: Arc<dyn Clock>,
    /// Held while memories change.
    changes: Mutex<()>,
    /// The condenser of memories, and its runtime.
    condenser: Mutex<Option<(Condenser, Handle)>>,
    /// Held by the compaction under way.
    compacting: Arc<Semaphore>,
}

/// A memory that was read.
pub(crate) struct Seen {
    note: MemoryNote,
    /// The state of its file when it was read.
    file: Fingerprint,
    /// The origin of the text, if that is still the stored one.
    origin: Option<Origin>,
}

/// The text that a write makes of a memory.
struct Change {
    text: String,
    /// Whether it contains earlier text.
    keeps: bool,
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

fn time(file: &Fingerprint) -> String {
    let (seconds, nanos) = file.modified();
    let time = Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0));
    rfc3339(time.unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX }))
}

/// The first notes that are within `max_chars` together with the separators between them. This stops at the first note
/// that does not fit, so that no older note is given in place of a newer one.
fn within(mut notes: Vec<MemoryNote>, max_chars: u64) -> Vec<MemoryNote> {
    let sizes = notes.iter().scan(0, |total, note| {
        *total += chars(&note.content) + if *total == 0 { 0 } else { chars(SEPARATOR) };
        Some(*total)
    });
    notes.truncate(sizes.take_while(|total| *total <= max_chars).count());
    notes
}

fn check_key(key: &str) -> Result<(), ToolError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(ToolError::InvalidInput(format!("key must be 1 to {MAX_KEY} letters, digits, '-' or '_': {key:?} is not")))
}

/// Like [`check_key`], but also refuses the host's own key.
fn check_own_key(key: &str) -> Result<(), ToolError> {
    check_key(key)?;
    if key.eq_ignore_ascii_case(COMPACTED) {
        return Err(ToolError::InvalidInput(format!(
            "the key {COMPACTED:?} is the host's, for memories that it condensed; choose another"
        )));
    }
    Ok(())
}

impl MemoryStore {
    /// Opens the memory of the member in the directory `member`; makes `memory/` if there is none, and removes
    /// temporary files that a crash left. A member's memory has one store at a time, as its jobs do.
    pub fn open(member: &Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        Self::open_at(member, MEMORY, Scope::Worker, limits, clock)
    }

    /// Like [`Self::open`], for the memories of `scope` in the directory `path` of `root`.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be opened or created.
    pub fn open_at(
        root: &Dir,
        path: impl Into<PathBuf>,
        scope: Scope,
        limits: Arc<Limits>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Arc<Self>> {
        let files = NoteFiles::new(root, path.into())?;
        files.tidy()?;
        Ok(Self::open_on(Box::new(files), scope, limits, clock))
    }

    /// The memory of a member that another process may own, for reading only: no file is removed or condensed.
    ///
    /// # Errors
    ///
    /// Returns an error when the handle on the directory cannot be duplicated.
    pub fn to_read(member: &Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        let files = Box::new(NoteFiles::new(member, MEMORY.into())?);
        Ok(Self::open_on(files, Scope::Worker, limits, clock))
    }

    /// The memories on a shelf, which other hosts may share.
    pub fn open_on(shelf: Box<dyn Shelf>, scope: Scope, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            shelf,
            scope,
            limits: Mutex::new(limits),
            clock,
            changes: Mutex::new(()),
            condenser: Mutex::new(None),
            compacting: Arc::new(Semaphore::new(1)),
        })
    }

    /// Writes a memory; an existing key is overwritten. `source` is the job that it comes from.
    ///
    /// Refused are a key that is not a file name, is the host's own, or differs from another in case only; empty
    /// content; and content that is too large to be given to a later job.
    pub fn store(&self, key: &str, content: &str, source: Option<Source<'_>>) -> Result<(), ToolError> {
        self.write(key, content, source, |_| Ok(Change { text: content.to_owned(), keeps: false }))
    }

    /// Adds lines at the end of a memory, or makes it. A new memory begins with `before`. Otherwise as [`Self::store`].
    pub fn append(
        &self,
        key: &str,
        content: &str,
        before: Option<String>,
        source: Option<Source<'_>>,
    ) -> Result<(), ToolError> {
        self.write(key, content, source, |now| {
            let before = now?.or_else(|| before.clone()).unwrap_or_default();
            let before = before.trim_end();
            let keeps = !before.is_empty();
            Ok(Change { text: if keeps { format!("{before}\n{content}") } else { content.to_owned() }, keeps })
        })
    }

    /// Replaces a memory by the result of `change` on its text. `asked` is the caller's input.
    fn write(
        &self,
        key: &str,
        asked: &str,
        source: Option<Source<'_>>,
        change: impl Fn(Result<Option<String>, ToolError>) -> Result<Change, ToolError>,
    ) -> Result<(), ToolError> {
        check_own_key(key)?;
        if asked.trim().is_empty() {
            return Err(ToolError::InvalidInput("content must not be empty".to_owned()));
        }
        let failed = StoreError::io("could not store the memory");
        let _changes = lock(&self.changes);
        for _ in 0..ATTEMPTS {
            match self.try_write(key, asked, source, &change)? {
                Ok(()) => return Ok(()),
                Err(NotChanged::Outdated) => {}
                Err(NotChanged::Failed(e)) => return Err(failed(e).into()),
            }
        }
        Err(ToolError::Unavailable(format!("the memory {key:?} is being changed by others; store it again later")))
    }

    /// Makes a change of [`Self::write`] once.
    fn try_write(
        &self,
        key: &str,
        asked: &str,
        source: Option<Source<'_>>,
        change: impl Fn(Result<Option<String>, ToolError>) -> Result<Change, ToolError>,
    ) -> Result<Result<(), NotChanged>, ToolError> {
        let doing = "could not store the memory";
        let dir = self.dir().map_err(StoreError::io(doing))?;
        let expected = Fingerprint::at(&dir, file(key)).map_err(StoreError::io(doing))?;
        let now = self.text(&dir, key);
        let (mut calls, mut earlier) = (Vec::new(), Writers::of(None));
        if let Some(origin) = self.files().origins(&dir).remove(key) {
            let is_as_stored = matches!(&now, Ok(Some(text)) if sha256(text) == origin.sha256);
            if is_as_stored {
                earlier = origin.writers();
            }
            calls = origin.calls;
            calls.truncate(calls.len() - usize::from(!is_as_stored && !calls.is_empty()));
        }
        let call = source.and_then(|source| source.digest(asked));
        if call.as_ref().is_some_and(|call| calls.contains(call)) {
            return Ok(Ok(()));
        }
        calls.drain(..calls.len().saturating_sub(CALLS - 1));
        calls.extend(call);
        let Change { text, keeps } = change(now)?;
        let (size, limit) = (chars(&text), self.limits().memory_injection_chars);
        if size > limit {
            return Err(ToolError::OverLimit(format!(
                "the memory has {size} characters; limits.memory_injection_chars allows {limit}"
            )));
        }
        let there = self.files().list(&dir).map_err(StoreError::io(doing))?;
        let others = || there.iter().filter(|(other, _)| other != key);
        if let Some((other, _)) = others().find(|(other, _)| other.eq_ignore_ascii_case(key)) {
            return Err(ToolError::InvalidInput(format!(
                "there is a memory {other:?}, and {key:?} is differing in case only; use {other:?} or another key"
            )));
        }
        let entries = self.limits().memory_entries;
        if others().count() >= entries as usize {
            return Err(ToolError::OverLimit(format!(
                "there are {entries} memories, as many as {} allows; overwrite or delete one",
                Limits::cited("memory_entries")
            )));
        }
        let origin = source.map(|source| {
            let mut writers = Writers::of(source.writer);
            if keeps {
                writers.add(earlier);
            }
            Origin { job: Some(source.job.clone()), stored: self.now(), sha256: sha256(&text), writers, calls }
        });
        Ok(self.shelf.put(Written { key, text: &text, origin }, expected))
    }

    /// A memory's text; `None` if there is none of that key.
    pub fn load(&self, key: &str) -> Result<Option<String>, ToolError> {
        check_key(key)?;
        self.text(&self.dir().map_err(StoreError::io("could not load the memory"))?, key)
    }

    fn text(&self, dir: &Dir, key: &str) -> Result<Option<String>, ToolError> {
        let doing = "could not load the memory";
        let max = self.max_bytes();
        let Some(contents) = read(dir, file(key), max).map_err(StoreError::io(doing))? else { return Ok(None) };
        if contents.fingerprint.size() > max {
            return Err(ToolError::OverLimit(format!(
                "the memory {key:?} has {} bytes, more than limits.memory_injection_chars allows",
                contents.fingerprint.size()
            )));
        }
        Ok(Some(contents.text()))
    }

    /// All memories, newest first, with the condensed one under `compacted`.
    pub fn list(&self) -> Result<Vec<MemoryEntry>, ToolError> {
        let doing = "could not list the memories";
        let files = self.dir().and_then(|dir| self.files().list(&dir)).map_err(StoreError::io(doing))?;
        let entry = |(key, file): (String, Fingerprint)| MemoryEntry { key, bytes: file.size(), modified: time(&file) };
        Ok(files.into_iter().map(entry).collect())
    }

    /// Removes a memory; false if there is none of that key.
    pub fn delete(&self, key: &str) -> Result<bool, ToolError> {
        check_own_key(key)?;
        let doing = "could not delete the memory";
        let _changes = lock(&self.changes);
        let dir = self.dir().map_err(StoreError::io(doing))?;
        while let Some(file) = Fingerprint::at(&dir, file(key)).map_err(StoreError::io(doing))? {
            if !self.shelf.remove(&[(key, file)]).map_err(StoreError::io(doing))?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The memories that an activation is given (REQ-WD-28): newest first by the files' times, whole, as many as are
    /// within `limits.memory_injection_chars` together with the separators between them. This stops at the first memory
    /// that does not fit. A file that would not fit alone, or is not UTF-8, is left out and logged.
    pub fn injection(&self) -> Vec<MemoryNote> {
        let max_chars = self.limits().memory_injection_chars;
        within(self.newest(max_chars).into_iter().map(|seen| seen.note).collect(), max_chars)
    }

    /// The newest memories, until they exceed `max_chars`. A memory that would exceed it alone is left out. An error of
    /// reading is logged, and gives no memories.
    fn newest(&self, max_chars: u64) -> Vec<Seen> {
        self.read_newest(max_chars).unwrap_or_else(|e| {
            tracing::warn!("the memories in {}/ cannot be read, and none is given: {e}", self.files().path.display());
            Vec::new()
        })
    }

    fn read_newest(&self, max_chars: u64) -> io::Result<Vec<Seen>> {
        let dir = self.dir()?;
        let origins = self.files().origins(&dir);
        let (mut newest, mut total) = (Vec::new(), 0);
        for (key, _) in self.files().list(&dir)? {
            let Some(seen) = self.see(&dir, &key, &origins) else { continue };
            let size = chars(&seen.note.content);
            if size > max_chars {
                continue;
            }
            newest.push(seen);
            total += size;
            if total > max_chars {
                break;
            }
        }
        Ok(newest)
    }

    /// [`Self::injection`] as one text, separated by `---`.
    pub fn injection_text(&self) -> String {
        let notes = self.injection();
        notes.iter().map(|note| note.content.as_str()).collect::<Vec<_>>().join(SEPARATOR)
    }

    /// All memories that can be injected, newest first.
    pub(crate) fn see_all(&self) -> io::Result<Vec<Seen>> {
        let dir = self.dir()?;
        let origins = self.files().origins(&dir);
        Ok(self.files().list(&dir)?.into_iter().filter_map(|(key, _)| self.see(&dir, &key, &origins)).collect())
    }

    /// Replaces the memories that were `seen` by `text`, except memories that have changed since. After an error, all
    /// memories are unchanged, or some are left that `text` also covers.
    pub(crate) fn replace_seen(&self, seen: &[Seen], text: &str) -> io::Result<usize> {
        let _changes = lock(&self.changes);
        let dir = self.dir()?;
        let is_unchanged = |seen: &Seen| {
            let now = self.see(&dir, &seen.note.key, &Origins::new());
            now.is_some_and(|now| (&now.note.content, &now.file) == (&seen.note.content, &seen.file))
        };
        let before = seen.iter().find(|seen| seen.note.key == COMPACTED);
        if !before.is_none_or(is_unchanged) {
            return Err(io::Error::other(NotChanged::Outdated));
        }
        let mut writers = Writers::default();
        for seen in seen {
            writers.add(seen.origin.as_ref().map_or_else(|| Writers::of(None), Origin::writers).members());
        }
        let origin = Origin { job: None, stored: self.now(), sha256: sha256(text), writers, calls: Vec::new() };
        let compacted = Written { key: COMPACTED, text, origin: Some(origin) };
        self.shelf.put(compacted, before.map(|before| before.file)).map_err(|e| match e {
            NotChanged::Failed(e) => e,
            outdated @ NotChanged::Outdated => io::Error::other(outdated),
        })?;
        let covered = seen.iter().filter(|seen| seen.note.key != COMPACTED && is_unchanged(seen));
        let covered: Vec<_> = covered.map(|seen| (seen.note.key.as_str(), seen.file)).collect();
        Ok(self.shelf.remove(&covered)?.len())
    }

    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// The limits of memories that are stored or read.
    pub fn limits(&self) -> Arc<Limits> {
        lock(&self.limits).clone()
    }

    /// Changes the limits of memories that are stored or read from now on.
    pub fn set_limits(&self, limits: Arc<Limits>) {
        *lock(&self.limits) = limits;
    }

    /// The files' sizes in bytes, which are at least their characters.
    pub(crate) fn total_bytes(&self) -> io::Result<u64> {
        Ok(self.files().list(&self.dir()?)?.iter().map(|(_, file)| file.size()).sum())
    }

    /// A handle on the directory of the memories, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error when the path cannot be opened, or is not a directory.
    pub fn dir(&self) -> io::Result<Dir> {
        self.files().dir()
    }

    fn files(&self) -> &NoteFiles {
        self.shelf.files()
    }

    fn max_bytes(&self) -> u64 {
        self.limits().memory_injection_chars.saturating_mul(CHAR_BYTES)
    }

    /// Reads a memory; `None`, logged, for one that can never be injected.
    fn see(&self, dir: &Dir, key: &str, origins: &Origins) -> Option<Seen> {
        let left_out = |why: &dyn Display| tracing::warn!(key, "the memory is left out: {why}");
        let contents = read(dir, file(key), self.max_bytes()).inspect_err(|e| left_out(e)).ok()??;
        let fingerprint = contents.fingerprint;
        let bytes = contents.whole().inspect_err(|e| left_out(e)).ok()?;
        let content = String::from_utf8(bytes).inspect_err(|e| left_out(e)).ok()?;
        let size = chars(&content);
        if size > self.limits().memory_injection_chars {
            left_out(&format!("{size} characters are more than limits.memory_injection_chars"));
            return None;
        }
        let origin = origins.get(key).filter(|origin| origin.sha256 == sha256(&content)).cloned();
        let job = origin.as_ref().and_then(|origin| origin.job.clone());
        let (key, modified) = (key.to_owned(), time(&fingerprint));
        let note = MemoryNote { scope: self.scope, key, content, modified, origin: job };
        Some(Seen { note, file: fingerprint, origin })
    }
}
