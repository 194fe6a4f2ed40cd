//! Indexes a member's jobs in memory, by id and in the order of lists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use guild_contract::{
    JobId, JobStatus, Meta,
    rpc::{Listed, ListedDetails, LogPosition, StatusView},
};
use jiff::Timestamp;
use tokio::sync::watch;

use super::keys::CallersKey;
use crate::{
    files::record::{HEAD_BYTES, Notes, head, shown_summary},
    ledger::{Head, News},
    running::{RunningJob, ended::EndedJob},
    sync::lock,
};

/// A job of the index.
pub(crate) struct Entry {
    pub(crate) id: JobId,
    /// When it was made. A job with a time that does not parse, as after an edit, is the oldest.
    started: Timestamp,
    /// Held while an ended job's files are read or changed; taken before `state`.
    pub(crate) files: Mutex<()>,
    /// Never held over I/O. Taken after the index, if both are.
    pub(crate) state: Mutex<State>,
}

pub(crate) enum State {
    Running(Arc<RunningJob>),
    /// Another host holds the job, or had it last and this host has no copy.
    Elsewhere(Box<Elsewhere>),
    Ended(Box<EndedJob>),
}

/// A job that this host knows from the ledger.
pub(crate) struct Elsewhere {
    pub(crate) head: Head,
    /// The number of times that the ledger has told of it since.
    pub(crate) heard: u64,
    /// The worker's notes, until the ledger tells of it again.
    pub(crate) notes: Option<Box<Notes>>,
    /// The end of its transcript and its log, until the ledger tells of it again.
    pub(crate) log_end: Option<Box<LogPosition>>,
    /// Signals a new head to those who follow the job, if there are any. It closes when the job is in another state here.
    pub(crate) changes: Option<watch::Sender<()>>,
}

impl Elsewhere {
    /// The answer of `worker/status`, with the notes if they were read.
    pub(crate) fn view(&self) -> StatusView {
        let summary = || Notes { summary: self.head.summary.clone(), ..Notes::default() };
        self.notes.as_deref().cloned().unwrap_or_else(summary).view(&self.head.meta)
    }

    /// Takes a new head, and tells those who follow the job.
    pub(crate) fn hear(&mut self, head: Head) {
        (self.head, self.notes, self.log_end) = (head, None, None);
        self.heard += 1;
        if let Some(changes) = &self.changes {
            changes.send_replace(());
        }
    }
}

impl State {
    /// A job of the ledger with this picture.
    pub(crate) fn elsewhere(head: Head) -> Self {
        Self::Elsewhere(Box::new(Elsewhere { head, heard: 0, notes: None, log_end: None, changes: None }))
    }

    /// Reads the job's record.
    pub(crate) fn with_meta<T>(&self, look: impl FnOnce(&Meta) -> T) -> T {
        match self {
            Self::Running(job) => job.look(|meta, _| look(meta)),
            Self::Elsewhere(job) => look(&job.head.meta),
            Self::Ended(ended) => look(&ended.meta),
        }
    }
}

impl Entry {
    pub(crate) fn new(state: State) -> Arc<Self> {
        let (id, started) = state.with_meta(|meta| (meta.job_id.clone(), started(&meta.started_at)));
        Arc::new(Self { id, started, files: Mutex::new(()), state: Mutex::new(state) })
    }

    fn order(&self) -> Order {
        (Reverse(self.started), Reverse(self.id.clone()))
    }

    /// Reads its record.
    pub(crate) fn with_meta<T>(&self, look: impl FnOnce(&Meta) -> T) -> T {
        lock(&self.state).with_meta(look)
    }

    /// The job in a list.
    pub(crate) fn listed(&self, detailed: bool) -> Listed {
        let listed = |meta: &Meta, summary: Option<&String>| Listed {
            job_id: self.id.clone(),
            status: meta.status,
            details: detailed.then(|| ListedDetails {
                description: meta.description.clone(),
                summary: shown_summary(meta, summary.map(|text| head(text, HEAD_BYTES as usize))),
            }),
        };
        match &*lock(&self.state) {
            State::Running(job) => job.look(|meta, notes| listed(meta, notes.summary.as_ref())),
            State::Elsewhere(job) => listed(&job.head.meta, job.head.summary.as_ref()),
            State::Ended(ended) => listed(&ended.meta, ended.head.as_ref().and_then(|(text, _)| text.as_ref())),
        }
    }

    /// Changes the state of a job that has ended.
    pub(crate) fn update_ended(&self, change: impl FnOnce(&mut EndedJob)) {
        if let State::Ended(ended) = &mut *lock(&self.state) {
            change(ended);
        }
    }

    /// The record, if the job has ended.
    pub(crate) fn meta(&self) -> Option<Meta> {
        match &*lock(&self.state) {
            State::Running(_) => None,
            State::Elsewhere(job) => Some(&job.head.meta).filter(|meta| meta.status != JobStatus::Running).cloned(),
            State::Ended(ended) => Some(ended.meta.clone()),
        }
    }

    /// Signals changes of a job that has not ended.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<()>> {
        match &mut *lock(&self.state) {
            State::Running(job) => Some(job.changes()),
            State::Elsewhere(job) => Some(job.changes.get_or_insert_default().subscribe()),
            State::Ended(_) => None,
        }
    }

    /// The answer of `worker/status` as far as it is in memory: of a job elsewhere, without its notes.
    pub(crate) fn snapshot(&self) -> StatusView {
        match &*lock(&self.state) {
            State::Running(job) => job.snapshot(),
            State::Elsewhere(job) => job.view(),
            State::Ended(ended) => {
                ended.notes.as_ref().map_or_else(Notes::default, |notes| notes.0.clone()).view(&ended.meta)
            }
        }
    }

    pub(crate) fn status(&self) -> JobStatus {
        self.with_meta(|meta| meta.status)
    }
}

/// Newest first, then by id in descending order, which is newest first too for UUIDv7.
pub(crate) type Order = (Reverse<Timestamp>, Reverse<JobId>);

pub(crate) fn order(id: &JobId, started_at: &str) -> Order {
    (Reverse(started(started_at)), Reverse(id.clone()))
}

fn started(started_at: &str) -> Timestamp {
    started_at.parse().unwrap_or(Timestamp::MIN)
}

fn callers_key(meta: &Meta) -> Option<CallersKey> {
    Some((meta.token.clone(), meta.key.as_ref()?.key.clone()))
}

#[derive(Default)]
pub(crate) struct Index {
    by_id: HashMap<JobId, Arc<Entry>>,
    ordered: BTreeMap<Order, Arc<Entry>>,
    /// The newest job of each caller's key.
    by_key: HashMap<CallersKey, JobId>,
    /// Ids of jobs that are being made or removed, whose directories no other thread may touch, with the last news that the
    /// ledger told of them meanwhile.
    claimed: HashMap<JobId, Option<News>>,
}

impl Index {
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.by_id.get(id).cloned()
    }

    /// The newest job that a dispatch with a caller's key made.
    pub(super) fn with_key(&self, key: &CallersKey) -> Option<Arc<Entry>> {
        self.get(self.by_key.get(key)?.as_str())
    }

    /// Whether the job is in the index, or being made or removed.
    pub(crate) fn knows(&self, id: &JobId) -> bool {
        self.by_id.contains_key(id.as_str()) || self.claimed.contains_key(id)
    }

    /// Reserves an id; false if it is taken.
    pub(crate) fn claim(&mut self, id: &JobId) -> bool {
        !self.knows(id) && self.claimed.insert(id.clone(), None).is_none()
    }

    /// Removes a job, but keeps its id reserved; false if there is no such job.
    pub(crate) fn take(&mut self, id: &JobId) -> bool {
        self.remove(id) && self.claimed.insert(id.clone(), None).is_none()
    }

    /// Gives a reserved id up, and returns the news that was kept.
    pub(crate) fn unclaim(&mut self, id: &JobId) -> Option<News> {
        self.claimed.remove(id).flatten()
    }

    /// Keeps the news of a job whose id is reserved; returns that of another one.
    pub(crate) fn keep(&mut self, id: &JobId, news: News) -> Option<News> {
        match self.claimed.get_mut(id) {
            Some(kept) => {
                *kept = Some(news);
                None
            }
            None => Some(news),
        }
    }

    pub(crate) fn insert(&mut self, entry: Arc<Entry>) {
        if let Some(key) = entry.with_meta(callers_key)
            && self.with_key(&key).is_none_or(|other| other.id <= entry.id)
        {
            self.by_key.insert(key, entry.id.clone());
        }
        if let Some(old) = self.by_id.insert(entry.id.clone(), entry.clone()) {
            self.ordered.remove(&old.order());
        }
        self.ordered.insert(entry.order(), entry);
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> bool {
        let Some(entry) = self.by_id.remove(id) else { return false };
        if let Some(key) = entry.with_meta(callers_key)
            && self.by_key.get(&key) == Some(id)
        {
            self.by_key.remove(&key);
        }
        self.ordered.remove(&entry.order()).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Jobs, newest first, starting at `begin`.
    pub(crate) fn from(&self, begin: Bound<Order>) -> impl Iterator<Item = &Arc<Entry>> {
        self.ordered.range((begin, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// All jobs, newest first.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.ordered.values().cloned().collect()
    }
}

/// The index behind its lock, which is never held over I/O.
#[derive(Default)]
pub(crate) struct Catalog(RwLock<Index>);

impl Catalog {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
