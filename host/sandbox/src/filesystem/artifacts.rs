//! `/job/artifacts`, the one directory that a component may change: on the job's account, and only while its call lives.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cap_std::fs::Dir;
use guild_jobs::quota::{Quota, Refused, Room};
use rustix::io::Errno;

use crate::stdio::LogSink;

/// The directory, and the account of what is below it.
pub(crate) struct Artifacts {
    root: Dir,
    quota: Arc<Quota>,
    log: LogSink,
    closed: AtomicBool,
}

impl Artifacts {
    pub(crate) fn new(root: Dir, quota: Arc<Quota>, log: LogSink) -> Arc<Self> {
        Arc::new(Self { root, quota, log, closed: AtomicBool::new(false) })
    }

    /// Changes something below the directory. It blocks.
    ///
    /// # Errors
    /// As the component is told them; of a limit that is reached, the job's log has a line.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused>) -> io::Result<T> {
        let changed = self.quota.change(&self.root, |room| {
            // The call ended while this waited for its turn.
            if self.closed.load(Ordering::Acquire) {
                return Err(Errno::PERM.into());
            }
            work(room)
        });
        changed.map_err(|refused| match refused {
            Refused::Full(full) => {
                if full.first {
                    self.log.line(&format!("/job/artifacts: {full}"));
                }
                Errno::NOSPC.into()
            }
            Refused::TooDeep => Errno::NAMETOOLONG.into(),
            Refused::Failed(error) => error,
        })
    }

    /// Lets no change begin any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Waits until no change is under way. It blocks.
    pub(crate) fn settle(&self) {
        self.quota.settle();
    }
}
