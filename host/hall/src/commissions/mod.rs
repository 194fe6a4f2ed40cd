//! Manages commissions: records that workers carry out, each attempt as a job, in the order and within the caps of the
//! queue.
//!
//! The module uses documents, on which commissions can depend, and meetings, which the hall requests when a merge
//! fails.

mod attempt;
mod change;
pub mod commission;
mod delegation;
mod dependencies;
mod heartbeat;
pub(crate) mod heartbeat_file;
mod queue;
mod read;
mod report;
pub(crate) mod view;

use std::sync::{Arc, Mutex, atomic::AtomicBool};

use async_trait::async_trait;
use guild_contract::{Delegation, OperationError};
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::lock,
    core::{Core, WaitForDocuments},
    documents::Documents,
    meetings::Meetings,
    records::{RecordStore, StoredRecord},
};

use commission::Commission;
pub(crate) use report::AttemptReports;

/// The commissions of a hall.
pub struct Commissions {
    core: Arc<Core>,
    records: Arc<RecordStore<Commission>>,
    documents: Arc<Documents>,
    meetings: Arc<Meetings>,
    /// The bounds on the manager's delegations.
    delegation: Mutex<Delegation>,
    /// Held while the manager creates a commission, so that the bounds hold.
    delegating: tokio::sync::Mutex<()>,
    /// Held while the queue decides which commissions start.
    scheduling: tokio::sync::Mutex<()>,
}

type StoredCommission = StoredRecord<Commission>;

/// The state of a commission that is kept only while the host runs.
#[derive(Default)]
pub(crate) struct Running {
    /// Cancels the running attempt.
    cancel: Mutex<CancellationToken>,
    /// Whether the event for a queued commission was sent.
    is_queued: AtomicBool,
}

impl Running {
    fn cancel(&self) -> CancellationToken {
        lock(&self.cancel).clone()
    }
}

impl Commissions {
    pub(crate) fn new(
        core: Arc<Core>,
        records: Arc<RecordStore<Commission>>,
        documents: Arc<Documents>,
        meetings: Arc<Meetings>,
        delegation: Delegation,
    ) -> Self {
        Self {
            core,
            records,
            documents,
            meetings,
            delegation: Mutex::new(delegation),
            delegating: tokio::sync::Mutex::default(),
            scheduling: tokio::sync::Mutex::default(),
        }
    }

    fn get(&self, id: &str) -> Result<Arc<StoredCommission>, OperationError> {
        let found = self.records.named(id);
        found.ok_or_else(|| OperationError::NotFound(format!("Commission \"{id}\" not found in any project")))
    }
}

#[async_trait]
impl WaitForDocuments for Commissions {
    async fn documents_changed(self: Arc<Self>, project: &str) -> Result<(), OperationError> {
        self.check_dependencies(Some(project)).await
    }
}
