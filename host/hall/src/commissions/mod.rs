//! Commissions: records that workers carry out, each attempt as a job, in the order and within the caps of the queue.
//!
//! The module uses documents, for which commissions wait, and meetings, for which the hall asks where a merge fails.

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
    /// How much an activity of the manager may delegate.
    delegation: Mutex<Delegation>,
    /// Held while the manager makes a commission, so that its bounds hold.
    delegating: tokio::sync::Mutex<()>,
    /// Held while it is decided which commissions begin.
    scheduling: tokio::sync::Mutex<()>,
}

type StoredCommission = StoredRecord<Commission>;

/// The state that goes with a commission while the host runs.
#[derive(Default)]
pub(crate) struct Running {
    /// Ends the attempt under way.
    cancel: Mutex<CancellationToken>,
    /// Whether listeners were told that it waits.
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
