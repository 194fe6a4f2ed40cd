//! All jobs of a member in memory: found by id, ordered for lists, with the rendered answers of those that were
//! asked for lately.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ops::Bound,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use guild_contract::{
    JobId, JobStatus, Meta,
    rpc::{Listed, ListedDetails},
};
use jiff::Timestamp;

use crate::{
    ended::Ended,
    record::{HEAD_BYTES, head},
    running::RunningJob,
    sync::lock,
};

/// Rendered statuses of ended jobs that are kept, in bytes.
const VIEW_CACHE_BYTES: usize = 32 * 1024 * 1024;
/// What one takes beside its text, more or less.
const VIEW_BYTES: usize = 256;
/// From so many on it is looked which are of jobs that are gone.
const WORTH_A_LOOK: usize = 64;

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
    Ended(Box<Ended>),
}

impl Entry {
    pub(crate) fn running(job: Arc<RunningJob>) -> Arc<Self> {
        Self::new(job.id().clone(), State::Running(job))
    }

    pub(crate) fn ended(ended: Ended) -> Arc<Self> {
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

    /// Whether its description is one that `wanted` wants.
    pub(crate) fn has_description(&self, wanted: impl FnOnce(&str) -> bool) -> bool {
        match &*lock(&self.state) {
            State::Running(job) => job.with_view(|view| wanted(&view.description)),
            State::Ended(ended) => wanted(&ended.meta.description),
        }
    }

    /// The record, if the job has ended.
    pub(crate) fn meta(&self) -> Option<Meta> {
        match &*lock(&self.state) {
            State::Running(_) => None,
            State::Ended(ended) => Some(ended.meta.clone()),
        }
    }

    /// Where it is.
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

/// The index, and what was noticed on disk that it does not know of yet.
#[derive(Default)]
pub(crate) struct Catalog {
    index: RwLock<Index>,
    /// Whether `noticed` holds anything.
    stale: AtomicBool,
    noticed: Mutex<Noticed>,
}

/// What is to be looked at.
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

    /// A name appeared in `jobs/`, or vanished from it. What the index knows of is no news.
    pub(crate) fn notice(&self, name: &str, appeared: bool) {
        let Ok(id) = name.parse::<JobId>() else { return };
        let news = if appeared { !self.read().knows(&id) } else { self.read().get(id.as_str()).is_some() };
        if news {
            lock(&self.noticed).ids.insert(id);
            self.stale.store(true, Ordering::Release);
        }
    }

    /// Anything may have happened.
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

/// Bounds the memory of rendered statuses: the oldest are forgotten first.
#[derive(Default)]
pub(crate) struct ViewCache {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    rendered: VecDeque<Rendered>,
    bytes: usize,
    /// How many there were after the last look at which are of jobs that are gone.
    looked: usize,
}

/// A view that was put into a job of the index. It does not keep the text: that goes with the job.
struct Rendered {
    entry: Weak<Entry>,
    /// Where the text begins, by which it is told from one that was rendered since.
    at: usize,
    bytes: usize,
}

impl Queue {
    /// Forgets those of jobs that are gone, each time as many have come as were there: so a view is looked at twice at most
    /// for one that comes.
    fn forget_gone(&mut self) {
        if self.rendered.len() < (2 * self.looked).max(WORTH_A_LOOK) {
            return;
        }
        self.rendered.retain(|view| view.entry.strong_count() > 0);
        self.bytes = self.rendered.iter().map(|view| view.bytes).sum();
        self.looked = self.rendered.len();
    }
}

impl ViewCache {
    /// Takes note of a view that was put into `entry`.
    pub(crate) fn hold(&self, entry: &Arc<Entry>, json: &Bytes) {
        let view = Rendered { entry: Arc::downgrade(entry), at: json.as_ptr().addr(), bytes: json.len() + VIEW_BYTES };
        let mut forgotten = Vec::new();
        {
            let mut queue = lock(&self.queue);
            queue.forget_gone();
            queue.bytes += view.bytes;
            queue.rendered.push_back(view);
            while queue.bytes > VIEW_CACHE_BYTES {
                let Some(view) = queue.rendered.pop_front() else { break };
                queue.bytes -= view.bytes;
                forgotten.push(view);
            }
        }
        for view in forgotten {
            let Some(entry) = view.entry.upgrade() else { continue };
            if let State::Ended(ended) = &mut *lock(&entry.state)
                && ended.view.as_ref().is_some_and(|now| now.json.as_ptr().addr() == view.at)
            {
                ended.view = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(n: usize) -> Arc<Entry> {
        let meta = Meta {
            job_id: format!("job-{n}").parse().unwrap(),
            status: JobStatus::Completed,
            description: "d".into(),
            started_at: "2026-01-01T00:00:00Z".into(),
            completed_at: None,
            error: None,
            usage: None,
            resumes: 0,
        };
        Entry::ended(Ended::new(meta, None))
    }

    #[test]
    fn views_of_jobs_that_are_gone_are_forgotten() {
        let cache = ViewCache::default();
        let kept: Vec<_> = (0..10).map(ended).collect();
        let view = Bytes::from_static(b"{}");
        kept.iter().for_each(|entry| cache.hold(entry, &view));
        let held = |cache: &ViewCache| lock(&cache.queue).rendered.len();
        for n in 0..100_000 {
            cache.hold(&ended(n), &view);
            assert!(held(&cache) <= 2 * WORTH_A_LOOK);
        }
        let queue = lock(&cache.queue);
        assert_eq!(queue.bytes, queue.rendered.len() * (view.len() + VIEW_BYTES));
        assert!(kept.iter().all(|entry| queue.rendered.iter().any(|held| held.entry.as_ptr() == Arc::as_ptr(entry))));
    }
}
