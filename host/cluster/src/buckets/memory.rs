//! Notes that all hosts share. Each host has a copy in files, from which its activations read; a change is made only if
//! the note is still the one that it was made from, so that no host loses what another has written.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_nats::HeaderMap;
use cap_std::fs::{Dir, OpenOptions};
use guild_fs::fingerprint::Fingerprint;
use guild_jobs::memory::{
    Origin,
    shelf::{NotChanged, NoteFiles, Shelf, Written, file},
};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::{AbortHandle, spawn_blocking},
    time::{sleep, timeout},
};
use uuid::Uuid;

use crate::{
    error::StoreError,
    link::{self, Link, Message, Write, wait},
    reads::Reads,
    record::Owner,
    streams::MEMORY,
    watch::{Seen, Watch},
};

const PREFIX: &str = "$KV.guild_memory.";
/// The subjects of compactions, one for each scope: the host that compacts its notes.
const COMPACTION: &str = "$KV.guild_memory._compaction.";
/// How long a write is tried, and the notes are waited for: NATS elects another leader in less.
const PATIENCE: Duration = Duration::from_secs(15);
/// The pause before a note is read again from a server that lags.
const PAUSE: Duration = Duration::from_millis(10);

/// A note as it is stored.
#[derive(Serialize, Deserialize)]
struct Note {
    /// The text; none if the note is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

/// Tells whether the life of a host is over.
pub type IsOver = Arc<dyn Fn(&Owner) -> bool + Send + Sync>;

/// The notes of all scopes that this host serves.
pub struct Memory {
    link: Link,
    own: Owner,
    is_over: IsOver,
    shelves: Arc<Shelves>,
    reads: Reads,
    runtime: Handle,
    task: AbortHandle,
}

#[derive(Default)]
struct Shelves {
    by_scope: Mutex<BTreeMap<String, Arc<Notes>>>,
    /// The number of scopes that were added.
    added: watch::Sender<u64>,
    /// The number of those whose notes of before have been followed.
    followed: watch::Sender<u64>,
}

impl Memory {
    /// Follows the notes for a host.
    pub fn start(link: Link, own: Owner, is_over: IsOver, runtime: Handle) -> Self {
        let (shelves, reads) = (Arc::new(Shelves::default()), Reads::new(link.clone(), MEMORY));
        let task = runtime.spawn(shelves.clone().follow(link.clone(), reads.heard())).abort_handle();
        Self { link, own, is_over, shelves, reads, runtime, task }
    }

    /// The shelf of a scope, as a member's or a project's, with its copy in `files`, which this process alone changes.
    /// `scope` is any name. It waits as long as the store is away: a host that starts during an outage serves its members
    /// after the outage.
    ///
    /// # Errors
    ///
    /// Returns an error when the files cannot be read or written.
    pub async fn shelf(&self, scope: &str, files: NoteFiles) -> Result<Box<dyn Shelf>, StoreError> {
        let scope = scope.replace('.', "=");
        let notes = Arc::new(Notes {
            link: self.link.clone(),
            own: self.own.clone(),
            is_over: self.is_over.clone(),
            scope: scope.clone(),
            files,
            known: Mutex::default(),
            runtime: self.runtime.clone(),
        });
        lock(&self.shelves.by_scope).insert(scope.clone(), notes.clone());
        let mut followed = self.shelves.followed.subscribe();
        let mut number = 0;
        self.shelves.added.send_modify(|added| {
            *added += 1;
            number = *added;
        });
        // The sender lives as long as the memory.
        let _ = followed.wait_for(|followed| *followed >= number).await;
        let filled = notes.clone();
        let done = spawn_blocking(move || filled.remove_unknown());
        let failed = |e: String| StoreError::File(format!("the copy of the notes of {scope} cannot be written: {e}"));
        done.await.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        Ok(Box::new(SharedNotes(notes)))
    }

    /// Waits until this host's copies have all notes that were stored before.
    ///
    /// # Errors
    ///
    /// Returns an error when the store does not answer.
    pub async fn all_of_now(&self) -> Result<(), StoreError> {
        let late = |_| StoreError::Unreachable(format!("the notes are not up to date after {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, self.reads.all_of_now()).await.map_err(late)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shelves {
    /// Follows the notes, and begins anew with all of them when a scope is added. A read would not do: a server that lags
    /// may lack notes that were passed over before the scope was there.
    async fn follow(self: Arc<Self>, link: Link, heard: watch::Sender<u64>) {
        let mut added = self.added.subscribe();
        loop {
            let number = *added.borrow_and_update();
            let mut watch = Watch::latest(link.clone(), MEMORY, false).telling(heard.clone());
            loop {
                let seen = tokio::select! {
                    seen = watch.next() => seen,
                    _ = added.changed() => break,
                };
                match seen {
                    Seen::Message(message) => self.apply(message).await,
                    Seen::CaughtUp => drop(self.followed.send_replace(number)),
                }
            }
        }
    }

    /// Brings the files of a scope up to date with a message.
    async fn apply(&self, message: Message) {
        let scope = message.subject.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
        let notes = scope.and_then(|(scope, _)| lock(&self.by_scope).get(scope).cloned());
        if let Some(notes) = notes {
            let applied = spawn_blocking(move || notes.apply(&message)).await;
            if let Ok(Err(e)) = applied {
                tracing::error!("a note of another host cannot be written: {e}");
            }
        }
    }
}

/// The state of a note in a copy.
#[derive(Clone, Copy)]
struct Known {
    sequence: u64,
    file: Option<Fingerprint>,
}

/// The notes of one scope, with their copies.
struct Notes {
    link: Link,
    own: Owner,
    is_over: IsOver,
    scope: String,
    files: NoteFiles,
    known: Mutex<BTreeMap<String, Known>>,
    runtime: Handle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(subject: String, expected: u64, payload: Vec<u8>) -> Write {
    let id = Uuid::new_v4().to_string();
    Write { stream: MEMORY, subject, expected, id, headers: HeaderMap::new(), payload: payload.into() }
}

impl Notes {
    fn subject(&self, key: &str) -> String {
        format!("{PREFIX}{}.{key}", self.scope)
    }

    /// Brings a note's file up to date with a message, unless it is of a later one.
    fn apply(&self, message: &Message) -> io::Result<()> {
        let Some(key) = message.subject.rsplit('.').next() else { return Ok(()) };
        let mut known = lock(&self.known);
        if known.get(key).is_some_and(|known| known.sequence >= message.sequence) {
            return Ok(());
        }
        let Note { text, origin } = serde_json::from_slice(&message.payload)?;
        let dir = self.files.dir()?;
        let now = Fingerprint::at(&dir, file(key))?;
        match (text, now) {
            (Some(text), now) => {
                self.files.put(Written { key, text: &text, origin }, now).map_err(io::Error::other)?;
                set_time(&dir, key, message.stored)?;
            }
            (None, Some(now)) => drop(self.files.remove(&[(key, now)])?),
            (None, None) => {}
        }
        let file = Fingerprint::at(&dir, file(key))?;
        known.insert(key.to_owned(), Known { sequence: message.sequence, file });
        Ok(())
    }

    /// Removes files of an earlier copy.
    fn remove_unknown(&self) -> io::Result<()> {
        let known = lock(&self.known);
        let mut there = self.files.list(&self.files.dir()?)?;
        there.retain(|(key, _)| known.get(key).is_none_or(|known| known.file.is_none()));
        let there: Vec<_> = there.iter().map(|(key, file)| (key.as_str(), *file)).collect();
        self.files.remove(&there).map(|_| ())
    }

    /// Brings a file back that somebody has changed: it is a copy, and what hosts share counts.
    fn mend(&self, key: &str) -> io::Result<()> {
        let (known, now) = {
            let known = lock(&self.known);
            (known.get(key).copied(), Fingerprint::at(self.files.dir()?, file(key))?)
        };
        if now == known.and_then(|known| known.file) {
            return Ok(());
        }
        tracing::warn!(scope = self.scope, key, "the copy of a note was changed by hand, and is made anew");
        let Some(known) = known else {
            return now.map_or(Ok(()), |now| self.files.remove(&[(key, now)]).map(drop));
        };
        let (subject, begun) = (self.subject(key), Instant::now());
        let last = wait(&self.runtime, async {
            loop {
                match self.link.last(MEMORY, &subject).await? {
                    Some(last) if last.sequence >= known.sequence => return Ok(last),
                    _ if begun.elapsed() > PATIENCE => {
                        return Err(StoreError::Unreachable(format!("the servers that answer lag behind with {key}")));
                    }
                    _ => sleep(PAUSE).await,
                }
            }
        });
        let last = last.map_err(io::Error::other)?;
        lock(&self.known).remove(key);
        self.apply(&last)
    }

    /// Changes a note whose file is `expected`, at all hosts, and then here.
    fn change(&self, key: &str, note: &Note, expected: Option<Fingerprint>) -> Result<(), NotChanged> {
        let before = lock(&self.known).get(key).copied();
        let now = Fingerprint::at(self.files.dir()?, file(key))?;
        if now != before.and_then(|before| before.file) {
            self.mend(key)?;
        }
        if now != expected || before.is_some_and(|before| before.file != expected) {
            return Err(NotChanged::Outdated);
        }
        let sequence = before.map_or(0, |before| before.sequence);
        let payload = serde_json::to_vec(note).map_err(io::Error::other)?;
        let subject = self.subject(key);
        let written = wait(&self.runtime, async {
            let written = self.link.write(&write(subject.clone(), sequence, payload), PATIENCE).await?;
            // Both the own change and another host's stand after the note that was known.
            loop {
                let after = self.link.read(MEMORY, &subject, sequence + 1).await?;
                if !after.is_empty() {
                    return Ok::<_, StoreError>((written, after));
                }
                sleep(PAUSE).await;
            }
        });
        let (written, after) = written.map_err(io::Error::other)?;
        after.iter().try_for_each(|message| self.apply(message))?;
        match written {
            link::Written::Stored { .. } => Ok(()),
            link::Written::Refused => Err(NotChanged::Outdated),
        }
    }
}

/// A compaction by this host, which is told to have ended when this is dropped.
struct Compacting {
    notes: Arc<Notes>,
    sequence: u64,
}

impl Drop for Compacting {
    fn drop(&mut self) {
        let (notes, sequence) = (self.notes.clone(), self.sequence);
        self.notes.runtime.spawn(async move {
            let ended = write(format!("{COMPACTION}{}", notes.scope), sequence, b"null".to_vec());
            // Without this, the next compaction is this host's, or that of another one after this life.
            if let Err(e) = notes.link.write(&ended, PATIENCE).await {
                tracing::info!("other hosts do not know that a compaction of {} has ended: {e}", notes.scope);
            }
        });
    }
}

/// Gives a note's file the time at which it was stored, so that all hosts have the notes in one order.
fn set_time(dir: &Dir, key: &str, stored: i128) -> io::Result<()> {
    let stored = u64::try_from(stored).map(Duration::from_nanos).map_err(io::Error::other)?;
    let time: SystemTime = UNIX_EPOCH + stored;
    dir.open_with(file(key), OpenOptions::new().write(true))?.into_std().set_modified(time)
}

/// The shelf of one scope.
struct SharedNotes(Arc<Notes>);

impl Shelf for SharedNotes {
    fn files(&self) -> &NoteFiles {
        &self.0.files
    }

    fn put(&self, Written { key, text, origin }: Written<'_>, expected: Option<Fingerprint>) -> Result<(), NotChanged> {
        self.0.change(key, &Note { text: Some(text.to_owned()), origin }, expected)
    }

    fn remove<'a>(&self, notes: &[(&'a str, Fingerprint)]) -> io::Result<Vec<&'a str>> {
        let mut removed = Vec::new();
        for (key, expected) in notes {
            match self.0.change(key, &Note { text: None, origin: None }, Some(*expected)) {
                Ok(()) => removed.push(*key),
                Err(NotChanged::Outdated) => {}
                Err(NotChanged::Failed(e)) => return Err(e),
            }
        }
        Ok(removed)
    }

    fn begin_compaction(&self) -> io::Result<Option<Box<dyn Send>>> {
        let notes = &self.0;
        let subject = format!("{COMPACTION}{}", notes.scope);
        let claimed = wait(&notes.runtime, async {
            let last = notes.link.last(MEMORY, &subject).await?;
            let by: Option<Owner> = last.as_ref().and_then(|last| serde_json::from_slice(&last.payload).ok()).flatten();
            if by.is_some_and(|by| by != notes.own && !(notes.is_over)(&by)) {
                return Ok(None);
            }
            let payload = serde_json::to_vec(&notes.own).unwrap_or_default();
            let claim = write(subject.clone(), last.map_or(0, |last| last.sequence), payload);
            match notes.link.write(&claim, PATIENCE).await? {
                link::Written::Stored { sequence, .. } => Ok(Some(sequence)),
                link::Written::Refused => Ok(None),
            }
        });
        let sequence: Option<u64> = claimed.map_err(|e: StoreError| io::Error::other(e))?;
        Ok(sequence.map(|sequence| Box::new(Compacting { notes: notes.clone(), sequence }) as Box<dyn Send>))
    }
}
