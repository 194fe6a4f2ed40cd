//! What a store and its running jobs both need.

use std::{
    io,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits, News};

use crate::{
    clock::{Clock, rfc3339},
    durable::sync_dir,
    events::{JobEvent, Subscriber},
    sync::Group,
};

/// The directory, limits, clock and subscriber of a store, which its running jobs share.
pub(crate) struct StoreContext {
    jobs: Dir,
    /// Those of jobs that are created from now on; a running job has its own.
    limits: RwLock<Arc<Limits>>,
    clock: Arc<dyn Clock>,
    generation: AtomicU64,
    jobs_sync: Group,
    subscriber: OnceLock<Arc<dyn Subscriber>>,
}

impl StoreContext {
    pub(crate) fn new(jobs: Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            jobs,
            limits: RwLock::new(limits),
            clock,
            generation: AtomicU64::new(0),
            jobs_sync: Group::default(),
            subscriber: OnceLock::new(),
        })
    }

    /// `jobs/`.
    pub(crate) fn jobs(&self) -> &Dir {
        &self.jobs
    }

    /// The limits, as they are now.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_limits(&self, limits: Arc<Limits>) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The time as files spell it.
    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// The time in milliseconds since 1970.
    pub(crate) fn millis(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Says that a list may show something else from now on.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Counts the calls of [`Self::changed`].
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes renames in `jobs/` survive a power cut; callers at the same time share one system call.
    pub(crate) fn sync_jobs(&self) -> io::Result<()> {
        self.jobs_sync.share(|| sync_dir(&self.jobs))
    }

    /// The first subscriber stays: it may have received events already.
    pub(crate) fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        let _ = self.subscriber.set(subscriber);
    }

    /// Gives the subscriber, if there is one, an event of a job.
    pub(crate) fn publish(&self, job: &JobId, news: impl FnOnce() -> News) {
        if let Some(subscriber) = self.subscriber.get() {
            let (news, truncated) = news().cut();
            subscriber.receive(JobEvent { time: self.clock.now(), job: job.clone(), news, truncated });
        }
    }
}
