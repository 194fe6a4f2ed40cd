//! Shows a job that has not ended to those who only read it.

use std::sync::Arc;

use guild_contract::{JobStatus, Resumption, rpc::StatusView};
use tokio::sync::watch;

use super::index::Entry;

/// A job that had not ended when it was looked up, wherever it is carried out; see
/// [`JobStore::follow`](crate::JobStore::follow).
pub struct JobView {
    entry: Arc<Entry>,
    /// None once it has ended.
    changes: Option<watch::Receiver<()>>,
}

impl JobView {
    pub(crate) fn of(entry: Arc<Entry>) -> Self {
        Self { changes: entry.changes(), entry }
    }

    /// The answer of `worker/status` (REQ-WD-11). That of a job at another host has its notes only where they were read.
    pub fn snapshot(&self) -> StatusView {
        self.entry.snapshot()
    }

    /// The way of its last resumption, until it has run for a while.
    pub fn resumption(&self) -> Option<Resumption> {
        self.entry.with_meta(|meta| meta.resumption)
    }

    /// Waits for a change of its status. False once it has ended or was deleted.
    pub async fn changed(&mut self) -> bool {
        while self.entry.status() == JobStatus::Running
            && let Some(changes) = &mut self.changes
        {
            let is_changed = changes.changed().await.is_ok();
            // Another host may have taken the job, or this one.
            self.changes = self.entry.changes();
            if is_changed {
                return self.entry.status() == JobStatus::Running;
            }
        }
        false
    }

    /// Waits until it has ended or was deleted.
    pub async fn ended(mut self) {
        while self.changed().await {}
    }
}
