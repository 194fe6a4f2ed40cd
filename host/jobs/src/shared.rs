//! What a store and its running jobs share.

use std::sync::{
    Arc, OnceLock, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits, News};

use crate::{
    clock::{Clock, rfc3339},
    events::{JobEvent, Listener},
    sync::Group,
};

/// What a store and its running jobs share.
pub(crate) struct Shared {
    /// `jobs/`.
    pub(crate) jobs: Dir,
    /// Those of jobs that are made from now on; what runs has its own.
    pub(crate) limits: RwLock<Arc<Limits>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Counts the changes that a list can show.
    pub(crate) generation: AtomicU64,
    /// Syncs `jobs/` for all that were renamed in it meanwhile.
    pub(crate) renames: Group,
    /// Who is told what happens to jobs.
    pub(crate) listener: OnceLock<Arc<dyn Listener>>,
}

impl Shared {
    /// The limits, as they are now.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// Tells the listener what happened to a job, if there is one.
    pub(crate) fn tell(&self, job: &JobId, news: impl FnOnce() -> News) {
        if let Some(listener) = self.listener.get() {
            let (news, truncated) = news().cut();
            listener.tell(JobEvent { time: self.clock.now(), job: job.clone(), news, truncated });
        }
    }
}
