//! Answers what the jobs of the store used over time: those of the index, and removed ones.

use std::collections::HashSet;

use guild_contract::{
    JobStatus,
    usage::{UsageParams, UsageView},
};

use super::JobStore;
use crate::{
    MemoryStore, StoreError,
    usage::{over_time::OverTime, removed},
};

impl JobStore {
    /// The answer of `worker/usage`. It reads the ledgers of removed jobs and of compactions, and no job's files beyond
    /// those that changed. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the parameters are invalid, or a ledger cannot be read.
    pub fn usage(&self, params: &UsageParams) -> Result<UsageView, StoreError> {
        let mut over = OverTime::new(params, self.context.clock.now())?;
        self.sweep(false);
        let (entries, mut running) = (self.catalog.read().entries(), 0);
        for entry in &entries {
            entry.with_meta(|meta| match meta.status {
                JobStatus::Running => running += 1,
                JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled => over.job(meta),
            });
        }
        let unreadable = |ledger| StoreError::io(format!("the ledger of {ledger} cannot be read"));
        // A job that is removed meanwhile is among the entries, or in the ledger, or both.
        let counted: HashSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
        for line in removed::all(&self.member).map_err(unreadable("removed jobs"))? {
            if line.job.as_ref().is_none_or(|job| !counted.contains(job.as_str())) {
                over.removed(&line);
            }
        }
        for compaction in MemoryStore::compactions(&self.member).map_err(unreadable("compactions"))? {
            over.compaction(&compaction);
        }
        Ok(over.view(running, u32::try_from(self.unreadable.all().len()).unwrap_or(u32::MAX)))
    }
}
