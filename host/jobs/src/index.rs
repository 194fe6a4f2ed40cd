//! All jobs of a member in memory: found by id, and ordered for lists.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use guild_contract::{
    JobId, JobStatus, Meta,
    rpc::{Listed, ListedDetails},
};
use jiff::Timestamp;

use crate::{
    ended::EndedJob,
    record::{HEAD_BYTES, head},
    running::RunningJob,
    sync::lock,
};

/// A job of the index.
pub(crate) struct Entry {
    pub(crate) id: JobId,
    /// Held while an ended job's files are looked at or changed; taken before `state`.
    pub(crate) files: Mutex<()>,
    /// Never held over I/O.
    pub(crate) state: Mutex<State>,
}

pub(crate) enum State {
    Running(Arc<RunningJob>),
    Ended(Box<EndedJob>),
}

impl Entry {
    pub(crate) fn running(job: Arc<RunningJob>) -> Arc<Self> {
        Self::new(job.id().clone(), State::Running(job))
    }

    pub(crate) fn ended(ended: EndedJob) -> Arc<Self> {
        Self::new(ended.meta.job_id.clone(), State::Ended(Box::new(ended)))
    }

    fn new(id: JobId, state: State) -> Arc<Self> {
        Arc::new(Self { id, files: Mutex::new(()), state: Mutex::new(state) })
    }

    /// As a list shows it.
    pub(crate) fn listed(&self, detailed: bool) -> Listed {
        let details = |description: &str, summary: Option<&str>| {
            detailed.then(|| ListedDetails {
                description: description.to_owned(),
                summary: summary.map(|text| head(text, HEAD_BYTES as usize).to_owned()),
            })
        };
        let (status, details) = match &*lock(&self.state) {
            State::Running(job) => {
                job.with_view(|view| (view.status, details(&view.description, view.summary.as_deref())))
            }
            State::Ended(ended) => {
                let summary = ended.head.as_ref().and_then(|(text, _)| text.as_deref());
                (ended.meta.status, details(&ended.meta.description, summary))
            }
        };
        Listed { job_id: self.id.clone(), status, details }
    }

    /// Whether its description is one that is wanted.
    pub(crate) fn has_description(&self, is_wanted: impl FnOnce(&str) -> bool) -> bool {
        match &*lock(&self.state) {
            State::Running(job) => job.with_view(|view| is_wanted(&view.description)),
            State::Ended(ended) => is_wanted(&ended.meta.description),
        }
    }

    /// Changes what is known of the job, if it has ended.
    pub(crate) fn update_ended(&self, change: impl FnOnce(&mut EndedJob)) {
        if let State::Ended(ended) = &mut *lock(&self.state) {
            change(ended);
        }
    }

    /// The record, if the job has ended.
    pub(crate) fn meta(&self) -> Option<Meta> {
        match &*lock(&self.state) {
            State::Running(_) => None,
            State::Ended(ended) => Some(ended.meta.clone()),
        }
    }

    /// Its status.
    pub(crate) fn status(&self) -> JobStatus {
        match &*lock(&self.state) {
            State::Running(_) => JobStatus::Running,
            State::Ended(ended) => ended.meta.status,
        }
    }
}

/// Newest first, then by id, newest first too, as UUIDv7 have it.
pub(crate) type Order = (Reverse<Timestamp>, Reverse<JobId>);

pub(crate) fn order(id: &JobId, started_at: &str) -> Order {
    // What the original wrote is RFC 3339; what a person wrote may be anything, and comes last.
    (Reverse(started_at.parse().unwrap_or(Timestamp::MIN)), Reverse(id.clone()))
}

#[derive(Default)]
pub(crate) struct Index {
    by_id: HashMap<String, (Order, Arc<Entry>)>,
    ordered: BTreeMap<Order, Arc<Entry>>,
    /// Ids of jobs that are being made or removed: what is on disk of them is not to be touched by others.
    claimed: HashSet<JobId>,
}

impl Index {
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.by_id.get(id).map(|(_, entry)| entry.clone())
    }

    /// Whether the job is there, or being made or removed.
    pub(crate) fn knows(&self, id: &JobId) -> bool {
        self.by_id.contains_key(id.as_str()) || self.claimed.contains(id)
    }

    /// Reserves an id; false if it is taken.
    pub(crate) fn claim(&mut self, id: &JobId) -> bool {
        !self.by_id.contains_key(id.as_str()) && self.claimed.insert(id.clone())
    }

    /// Takes a job out, but keeps its id reserved; false if there is no such job.
    pub(crate) fn take(&mut self, id: &JobId) -> bool {
        self.remove(id) && self.claimed.insert(id.clone())
    }

    pub(crate) fn unclaim(&mut self, id: &JobId) {
        self.claimed.remove(id);
    }

    pub(crate) fn insert(&mut self, entry: Arc<Entry>, started_at: &str) {
        let order = order(&entry.id, started_at);
        let id = entry.id.as_str().to_owned();
        if let Some((old, _)) = self.by_id.insert(id, (order.clone(), entry.clone())) {
            self.ordered.remove(&old);
        }
        self.ordered.insert(order, entry);
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> bool {
        let removed = self.by_id.remove(id.as_str());
        removed.is_some_and(|(order, _)| self.ordered.remove(&order).is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Jobs, newest first, from one on.
    pub(crate) fn from(&self, begin: Bound<Order>) -> impl Iterator<Item = &Arc<Entry>> {
        self.ordered.range((begin, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// All jobs, newest first.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.ordered.values().cloned().collect()
    }
}

/// The index, and the changes on disk that it does not show yet.
#[derive(Default)]
pub(crate) struct Catalog {
    index: RwLock<Index>,
    /// Whether `noticed` is not empty.
    stale: AtomicBool,
    noticed: Mutex<Noticed>,
}

/// What has to be compared to the disk.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    /// Everything.
    pub(crate) all: bool,
    /// These jobs.
    pub(crate) ids: HashSet<JobId>,
}

impl Catalog {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name appeared in `jobs/`, or vanished from it. What the index already shows is ignored.
    pub(crate) fn notice(&self, name: &str, appeared: bool) {
        let Ok(id) = name.parse::<JobId>() else { return };
        let is_new = if appeared { !self.read().knows(&id) } else { self.read().get(id.as_str()).is_some() };
        if is_new {
            lock(&self.noticed).ids.insert(id);
            self.stale.store(true, Ordering::Release);
        }
    }

    /// Anything may have changed.
    pub(crate) fn notice_all(&self) {
        lock(&self.noticed).all = true;
        self.stale.store(true, Ordering::Release);
    }

    /// Whether the index may not show what is on disk.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    pub(crate) fn take_noticed(&self) -> Noticed {
        let mut noticed = lock(&self.noticed);
        self.stale.store(false, Ordering::Release);
        std::mem::take(&mut *noticed)
    }
}
