//! What a member remembers across jobs: `memory/<key>.md`, plain text that people read and edit (REQ-WD-26 to
//! REQ-WD-29).
//!
//! Where a memory came from stands in a file beside them and not in the text; it is believed only while the text is
//! still the one that was stored.

mod compaction;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits, text::hex};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    clock::{Clock, rfc3339},
    durable::{Survives, if_there, open_or_make_dir, read, remove_temporaries, replace, sync_dir},
    record::pretty,
    sync::lock,
};
use guild_session::{activation::MemoryNote, fingerprint::Fingerprint, tools::ToolError};

use compaction::Compactor;
pub use compaction::{Compaction, Condense, Condensed, Condenser};

/// The directory of a member that the store keeps.
pub(crate) const MEMORY: &str = "memory";
/// The key that compaction writes under.
pub(crate) const COMPACTED: &str = "compacted";
/// Where memories came from: a map from keys to [`Origin`].
const ORIGINS: &str = ".origin.json";
/// Bytes of [`ORIGINS`] that are read at most.
const MAX_ORIGINS_BYTES: u64 = 4 * 1024 * 1024;
/// Between two memories in a prompt.
const SEPARATOR: &str = "\n---\n";
/// Characters of a key.
const MAX_KEY: usize = 64;
/// Bytes of a character in UTF-8, at most.
const CHAR_BYTES: u64 = 4;

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

/// Where a memory came from.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Origin {
    /// The job that stored it.
    job: JobId,
    /// When: RFC 3339 in UTC.
    stored: String,
    /// What it stored.
    sha256: String,
    /// The tool call that stored it, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
}

/// Who stores a memory.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The job.
    pub job: &'a JobId,
    /// Its tool call, where it is one: the same call again has its effect once.
    pub call: Option<&'a str>,
}

type Origins = BTreeMap<String, Origin>;

/// The memories of one member. Its methods block on the file system.
pub struct MemoryStore {
    member: Dir,
    limits: RwLock<Arc<Limits>>,
    clock: Arc<dyn Clock>,
    /// Held while memories change.
    changes: Mutex<()>,
    pub(crate) compactor: Mutex<Option<Compactor>>,
    pub(crate) compacting: AtomicBool,
}

/// A memory that was read, and the file as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) content: String,
    pub(crate) fingerprint: Fingerprint,
}

fn file(key: &str) -> String {
    format!("{key}.md")
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

fn check_key(key: &str) -> Result<(), ToolError> {
    let sound =
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if sound {
        return Ok(());
    }
    Err(ToolError::InvalidInput(format!("key must be 1 to {MAX_KEY} letters, digits, '-' or '_': {key:?} is not")))
}

/// As [`check_key`], for keys that may be written.
fn check_own_key(key: &str) -> Result<(), ToolError> {
    check_key(key)?;
    if key.eq_ignore_ascii_case(COMPACTED) {
        return Err(ToolError::InvalidInput(format!(
            "the key {COMPACTED:?} is the host's, for memories that it condensed; choose another"
        )));
    }
    Ok(())
}

fn unavailable(doing: &str) -> impl FnOnce(io::Error) -> ToolError {
    move |e| ToolError::Unavailable(format!("{doing}: {e}"))
}

impl MemoryStore {
    /// Opens the memory of a member, whose directory `member` is; makes `memory/` if there is none, and removes what a
    /// crash left half-written. There is one store for a member's memory at a time, as for its jobs.
    pub fn open(member: &Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        let dir = open_or_make_dir(member, MEMORY)?;
        if let Err(e) = remove_temporaries(&dir) {
            tracing::warn!("temporary files are left in {MEMORY}/: {e}");
        }
        Self::to_read(member, limits, clock)
    }

    /// The memory of a member that another process may own, for those who only read: nothing of it is removed, or
    /// condensed.
    ///
    /// # Errors
    /// Where there is no other handle on the directory.
    pub fn to_read(member: &Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            member: member.try_clone()?,
            limits: RwLock::new(limits),
            clock,
            changes: Mutex::new(()),
            compactor: Mutex::new(None),
            compacting: AtomicBool::new(false),
        }))
    }

    /// Writes a memory; an existing key is overwritten. `source` is the job that it comes from. Where the member's
    /// memories have grown too large, it starts their compaction, and does not wait for it.
    ///
    /// Refused: a key that is no file name or the host's own, one that differs from another in case only, empty
    /// content, and content that is too large to be given to a later job.
    pub fn store(self: &Arc<Self>, key: &str, content: &str, source: Option<Source<'_>>) -> Result<(), ToolError> {
        check_own_key(key)?;
        if content.trim().is_empty() {
            return Err(ToolError::InvalidInput("content must not be empty".to_owned()));
        }
        let (size, limit) = (chars(content), self.limits().memory_injection_chars);
        if size > limit {
            return Err(ToolError::OverLimit(format!(
                "the memory has {size} characters; limits.memory_injection_chars allows {limit}"
            )));
        }
        let doing = "could not store the memory";
        {
            let _changes = lock(&self.changes);
            let dir = self.dir().map_err(unavailable(doing))?;
            if let Some(Source { job, call: Some(call) }) = source
                && let Some(origin) = self.origins(&dir).get(key)
                && (&origin.job, origin.call.as_deref()) == (job, Some(call))
                && origin.sha256 == sha256(content)
            {
                return Ok(());
            }
            let there = self.files(&dir).map_err(unavailable(doing))?;
            let others = || there.iter().filter(|(other, _)| other != key);
            if let Some((other, _)) = others().find(|(other, _)| other.eq_ignore_ascii_case(key)) {
                return Err(ToolError::InvalidInput(format!(
                    "there is a memory {other:?}, and {key:?} is differing in case only; use {other:?} or another key"
                )));
            }
            let entries = self.limits().memory_entries;
            if others().count() >= entries as usize {
                return Err(ToolError::OverLimit(format!(
                    "there are {entries} memories, as many as limits.memory_entries allows; overwrite or delete one"
                )));
            }
            replace(&dir, &file(key), content.as_bytes(), Survives::PowerCut).map_err(unavailable(doing))?;
            let origin = source.map(|source| Origin {
                job: source.job.clone(),
                stored: self.now(),
                sha256: sha256(content),
                call: source.call.map(str::to_owned),
            });
            self.change_origins(&dir, |origins| match origin {
                Some(origin) => drop(origins.insert(key.to_owned(), origin)),
                None => drop(origins.remove(key)),
            });
        }
        self.compact_if_large();
        Ok(())
    }

    /// A memory's text; `None` if there is none of that key.
    pub fn load(&self, key: &str) -> Result<Option<String>, ToolError> {
        check_key(key)?;
        let doing = "could not load the memory";
        let dir = self.dir().map_err(unavailable(doing))?;
        let max = self.max_bytes();
        let Some(contents) = read(&dir, file(key), max).map_err(unavailable(doing))? else { return Ok(None) };
        if contents.fingerprint.size() > max {
            return Err(ToolError::OverLimit(format!(
                "the memory {key:?} has {} bytes, more than limits.memory_injection_chars allows",
                contents.fingerprint.size()
            )));
        }
        Ok(Some(contents.text()))
    }

    /// All memories, newest first. It includes what the host condensed, under `compacted`.
    pub fn list(&self) -> Result<Vec<MemoryEntry>, ToolError> {
        let doing = "could not list the memories";
        let files = self.dir().and_then(|dir| self.files(&dir)).map_err(unavailable(doing))?;
        let entry = |(key, file): (String, Fingerprint)| MemoryEntry { key, bytes: file.size(), modified: time(&file) };
        Ok(files.into_iter().map(entry).collect())
    }

    /// Removes a memory; false if there is none of that key.
    pub fn delete(&self, key: &str) -> Result<bool, ToolError> {
        check_own_key(key)?;
        let doing = "could not delete the memory";
        let _changes = lock(&self.changes);
        let dir = self.dir().map_err(unavailable(doing))?;
        let removed = if_there(dir.remove_file(file(key))).map_err(unavailable(doing))?.is_some();
        if removed {
            sync_dir(&dir).map_err(unavailable(doing))?;
            self.change_origins(&dir, |origins| drop(origins.remove(key)));
        }
        Ok(removed)
    }

    /// The size of all memories in characters; a file that cannot be injected counts with its bytes.
    pub fn total_size(&self) -> u64 {
        let size = |dir: &Dir, (key, file): (String, Fingerprint)| match self.see(dir, &key) {
            Some(seen) => chars(&seen.content),
            None => file.size(),
        };
        let total = self.dir().and_then(|dir| Ok(self.files(&dir)?.into_iter().map(|f| size(&dir, f)).sum()));
        total.inspect_err(|e| tracing::warn!("the memories cannot be read: {e}")).unwrap_or(0)
    }

    /// The memories that an activation is given (REQ-WD-28): newest first by the files' times, whole, as many as
    /// are within `limits.memory_injection_chars` together with what stands between them. It stops at the first
    /// that does not fit. A file that would not fit alone, or is no UTF-8, is left out and logged.
    pub fn injection(&self) -> Vec<MemoryNote> {
        self.read_injection().unwrap_or_else(|e| {
            tracing::warn!("the memories cannot be read, and none is given: {e}");
            Vec::new()
        })
    }

    fn read_injection(&self) -> io::Result<Vec<MemoryNote>> {
        let dir = self.dir()?;
        let origins = self.origins(&dir);
        let (mut notes, mut left) = (Vec::new(), self.limits().memory_injection_chars);
        for (key, _) in self.files(&dir)? {
            let Some(seen) = self.see(&dir, &key) else { continue };
            let between = if notes.is_empty() { 0 } else { chars(SEPARATOR) };
            let Some(rest) = left.checked_sub(between + chars(&seen.content)) else { break };
            left = rest;
            notes.push(self.note(&seen, &origins));
        }
        Ok(notes)
    }

    /// [`Self::injection`] as one text, with `---` between; empty if there is nothing.
    pub fn injection_text(&self) -> String {
        let notes = self.injection();
        notes.iter().map(|note| note.content.as_str()).collect::<Vec<_>>().join(SEPARATOR)
    }

    /// All memories that can be injected, newest first, with the files as they were.
    pub(crate) fn see_all(&self) -> io::Result<Vec<(Seen, MemoryNote)>> {
        let dir = self.dir()?;
        let origins = self.origins(&dir);
        let seen = self.files(&dir)?.into_iter().filter_map(|(key, _)| self.see(&dir, &key));
        Ok(seen.map(|seen| (seen.clone(), self.note(&seen, &origins))).collect())
    }

    /// Puts `text` in the place of what was `seen`, but for what has changed since: that stays. An error leaves
    /// everything as it is, or keeps something that `text` also says.
    pub(crate) fn replace_seen(&self, seen: &[Seen], text: &str) -> io::Result<usize> {
        let _changes = lock(&self.changes);
        let dir = self.dir()?;
        let same = |seen: &Seen| self.see(&dir, &seen.key).as_ref() == Some(seen);
        let before = seen.iter().find(|seen| seen.key == COMPACTED);
        let unchanged = match before {
            Some(before) => same(before),
            None => Fingerprint::at(&dir, file(COMPACTED))?.is_none(),
        };
        if !unchanged {
            return Err(io::Error::other("compacted.md was edited meanwhile"));
        }
        replace(&dir, &file(COMPACTED), text.as_bytes(), Survives::PowerCut)?;
        let mut removed = Vec::new();
        for seen in seen.iter().filter(|seen| seen.key != COMPACTED && same(seen)) {
            if_there(dir.remove_file(file(&seen.key)))?;
            removed.push(seen.key.as_str());
        }
        sync_dir(&dir)?;
        self.change_origins(&dir, |origins| origins.retain(|key, _| !removed.contains(&key.as_str())));
        Ok(removed.len())
    }

    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the limits, for all that is stored or read from now on.
    pub fn set_limits(&self, limits: Arc<Limits>) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// The files' sizes in bytes: never less than their characters.
    pub(crate) fn total_bytes(&self) -> io::Result<u64> {
        Ok(self.files(&self.dir()?)?.iter().map(|(_, file)| file.size()).sum())
    }

    /// A handle on `memory/`, which is made where a person took it away.
    ///
    /// # Errors
    /// Where it cannot be opened, or is no directory.
    pub fn dir(&self) -> io::Result<Dir> {
        open_or_make_dir(&self.member, MEMORY)
    }

    fn max_bytes(&self) -> u64 {
        self.limits().memory_injection_chars.saturating_mul(CHAR_BYTES)
    }

    /// The keys of all regular `.md` files, newest first.
    fn files(&self, dir: &Dir) -> io::Result<Vec<(String, Fingerprint)>> {
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

    /// Reads a memory; `None`, logged, for one that can never be injected.
    fn see(&self, dir: &Dir, key: &str) -> Option<Seen> {
        let left_out = |why: &dyn std::fmt::Display| tracing::warn!(key, "the memory is left out: {why}");
        let contents = read(dir, file(key), self.max_bytes()).inspect_err(|e| left_out(e)).ok()??;
        let fingerprint = contents.fingerprint;
        let bytes = contents.whole().inspect_err(|e| left_out(e)).ok()?;
        let content = String::from_utf8(bytes).inspect_err(|e| left_out(e)).ok()?;
        let size = chars(&content);
        if size > self.limits().memory_injection_chars {
            left_out(&format!("{size} characters are more than limits.memory_injection_chars"));
            return None;
        }
        Some(Seen { key: key.to_owned(), content, fingerprint })
    }

    fn note(&self, seen: &Seen, origins: &Origins) -> MemoryNote {
        let origin = origins.get(&seen.key).filter(|origin| origin.sha256 == sha256(&seen.content));
        MemoryNote {
            key: seen.key.clone(),
            content: seen.content.clone(),
            modified: time(&seen.fingerprint),
            origin: origin.map(|origin| origin.job.clone()),
        }
    }

    fn origins(&self, dir: &Dir) -> Origins {
        let parsed = read(dir, ORIGINS, MAX_ORIGINS_BYTES).and_then(|contents| {
            let Some(contents) = contents else { return Ok(Origins::new()) };
            Ok(serde_json::from_slice(&contents.whole()?)?)
        });
        parsed.unwrap_or_else(|e| {
            tracing::warn!(file = ORIGINS, "is left out: {e}");
            Origins::new()
        })
    }

    /// Origins of memories that are gone go too. That an origin cannot be stored does not undo the memory: it is one
    /// whose origin is not known.
    fn change_origins(&self, dir: &Dir, change: impl FnOnce(&mut Origins)) {
        let mut origins = self.origins(dir);
        change(&mut origins);
        origins.retain(|key, _| !matches!(Fingerprint::at(dir, file(key)), Ok(None)));
        let stored = pretty(&origins).and_then(|json| replace(dir, ORIGINS, &json, Survives::PowerCut));
        if let Err(e) = stored {
            tracing::warn!(file = ORIGINS, "could not be written: {e}");
        }
    }
}
