//! Holds the parts of a store that its running jobs share.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use cap_std::fs::Dir;
use guild_contract::{EventDetail, JobId, Limits};
use guild_fs::clock::{Clock, rfc3339};

use crate::{
    events::{JobEvent, Subscriber},
    ledger::Ledger,
    sync::lock,
};

/// The directory, limits, clock and subscriber of a store, which its running jobs share.
pub(crate) struct StoreContext {
    /// The directory with the jobs.
    pub(crate) jobs: Dir,
    /// Its name in the member's directory.
    pub(crate) place: &'static str,
    /// The ledger of the jobs, if other hosts serve the member too.
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    /// The limits of jobs that are created from now on; a running job has its own.
    pub(crate) limits: Mutex<Arc<Limits>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) generation: AtomicU64,
    /// The first subscriber stays: it may have received events already.
    pub(crate) subscriber: OnceLock<Arc<dyn Subscriber>>,
}

impl StoreContext {
    /// The limits, as they are now.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        lock(&self.limits).clone()
    }

    /// The time in the format of files.
    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// The time in milliseconds since 1970.
    pub(crate) fn millis(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Marks lists as out of date, after a change of a job that they show.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The number of changes so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Marks lists as out of date, and sends the event of the change to the subscriber, if there is one. Events of jobs
    /// that several hosts serve come from the ledger instead, so that all hosts have them in one order.
    pub(crate) fn publish(&self, job: &JobId, detail: impl FnOnce() -> EventDetail) {
        self.changed();
        if let (Some(subscriber), None) = (self.subscriber.get(), &self.ledger) {
            subscriber.receive(self.event(job, detail()));
        }
    }

    /// An event of now.
    pub(crate) fn event(&self, job: &JobId, detail: EventDetail) -> JobEvent {
        let (detail, truncated) = detail.cut();
        JobEvent { time: self.clock.now(), job: job.clone(), detail, truncated }
    }
}
