//! Changes `/job/artifacts`, the only directory that a component may change, within the job's quota and only during the
//! call.

use std::{io, sync::Arc};

use cap_std::fs::Dir;
use guild_jobs::files::quota::{Quota, Refused, Room};
use rustix::io::Errno;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::log::LogSink;

/// The directory, and its quota.
pub(crate) struct Artifacts {
    root: Dir,
    quota: Arc<Quota>,
    log: LogSink,
    /// Permits one change of the job at a time on a thread, where it may wait for other writers of artifacts: a
    /// component with hundreds of streams must not fill the threads that all components share. It is closed when the
    /// call ends.
    turn: Arc<Semaphore>,
}

impl Artifacts {
    pub(crate) fn new(root: Dir, quota: Arc<Quota>, log: LogSink) -> Arc<Self> {
        Arc::new(Self { root, quota, log, turn: Arc::new(Semaphore::new(1)) })
    }

    /// Makes a change below the directory, in order and where blocking is allowed. Dropping the future does not
    /// interrupt a change that has begun.
    ///
    /// # Errors
    ///
    /// The error code for the component. A reached limit is logged in the job's log.
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

    /// Prevents further changes.
    pub(crate) fn close(&self) {
        self.turn.close();
    }

    /// Waits until no change is under way. It blocks.
    pub(crate) fn wait_idle(&self) {
        self.quota.wait_idle();
    }
}
