//! `/job/artifacts`, the one directory that a component may change: on the job's account, and only while its call
//! lives.

use std::{io, sync::Arc};

use cap_std::fs::Dir;
use guild_jobs::files::quota::{Quota, Refused, Room};
use rustix::io::Errno;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::log::LogSink;

/// The directory, and the account of what is below it.
pub(crate) struct Artifacts {
    root: Dir,
    quota: Arc<Quota>,
    log: LogSink,
    /// One change of the job at a time is on a thread, or waits there for others who write artifacts: a component that
    /// has hundreds of streams must not fill the threads that all components share. It is closed when the call ends.
    turn: Arc<Semaphore>,
}

impl Artifacts {
    pub(crate) fn new(root: Dir, quota: Arc<Quota>, log: LogSink) -> Arc<Self> {
        Arc::new(Self { root, quota, log, turn: Arc::new(Semaphore::new(1)) })
    }

    /// Changes something below the directory, in its turn, where blocking is allowed. A change that has begun is not
    /// broken off when this is dropped.
    ///
    /// # Errors
    /// The error code that the component gets. A limit that is reached is logged in the job's log.
    pub(crate) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn.clone().acquire_owned().await.map_err(|_| Errno::PERM)?;
        let this = self.clone();
        let changed = spawn_blocking(move || {
            let _turn = turn;
            this.change_now(work)
        });
        changed.await.unwrap_or_else(|e| Err(io::Error::other(e)))
    }

    fn change_now<T>(&self, work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused>) -> io::Result<T> {
        let changed = self.quota.change(&self.root, |room| {
            // The call ended while this waited for others.
            if self.turn.is_closed() {
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
            Refused::Failed(error) => error,
        })
    }

    /// Lets no change begin any more.
    pub(crate) fn close(&self) {
        self.turn.close();
    }

    /// Waits until no change is under way. It blocks.
    pub(crate) fn wait_idle(&self) {
        self.quota.wait_idle();
    }
}
