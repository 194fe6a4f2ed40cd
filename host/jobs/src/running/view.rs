//! Shows a job that has not ended to those who only read it.

use std::sync::Arc;

use guild_contract::{JobStatus, Resumption, rpc::StatusView};
use tokio::sync::watch;

use super::RunningJob;

/// A job that had not ended when it was looked up; see [`JobStore::follow`](crate::JobStore::follow).
pub struct JobView {
    job: Arc<RunningJob>,
    changes: watch::Receiver<()>,
}

impl JobView {
    pub(crate) fn of(job: Arc<RunningJob>) -> Self {
        Self { changes: job.changes(), job }
    }

    /// The answer of `worker/status` (REQ-WD-11).
    pub fn snapshot(&self) -> StatusView {
        self.job.snapshot()
    }

    /// The way of its last resumption, until it has run for a while.
    pub fn resumption(&self) -> Option<Resumption> {
        self.job.resumption()
    }

    /// Waits for a change of its status. False once it has ended or was deleted.
    pub async fn changed(&mut self) -> bool {
        let is_running = |job: &RunningJob| job.status() == JobStatus::Running;
        is_running(&self.job) && self.changes.changed().await.is_ok() && is_running(&self.job)
    }

    /// Waits until it has ended or was deleted.
    pub async fn ended(mut self) {
        while self.changed().await {}
    }
}
