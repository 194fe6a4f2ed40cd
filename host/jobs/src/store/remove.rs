//! Removes ended jobs, with their usage recorded before (REQ-WD-17, REQ-WD-18).

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use guild_contract::{EventDetail, JobId, JobStatus, Meta, Retention, rpc::Deleted};
use guild_fs::{
    durable::{if_there, sync_dir},
    tree,
};
use jiff::SignedDuration;

use super::{DELETED, JobStore, index::Entry};
use crate::{
    error::StoreError,
    files::reader::{ended_at, ended_before},
    sync::lock,
    usage::removed,
};

/// The result of [`JobStore::prune`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// The removed jobs.
    pub removed: Vec<JobId>,
    /// The bytes that their files had.
    pub bytes: u64,
    /// The jobs that could not be removed, with the reasons.
    pub failed: Vec<(JobId, String)>,
}

impl JobStore {
    /// Removes a completed or cancelled job and all its files (REQ-WD-17, REQ-WD-18).
    ///
    /// Its usage is recorded before.
    pub fn delete(&self, id: &str) -> Result<Deleted, StoreError> {
        let entry = self.find(id)?;
        if let Some(ledger) = &self.context.ledger {
            self.remove_shared(ledger, &entry, may_delete)?;
            return Ok(Deleted { job_id: entry.id.clone(), deleted: true });
        }
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        may_delete(entry.status())?;
        self.note_removed(&entry.meta().into_iter().collect::<Vec<_>>())?;
        self.take_away(&entry)?;
        self.discard(std::slice::from_ref(&entry.id));
        Ok(Deleted { job_id: entry.id.clone(), deleted: true })
    }

    /// Removes the jobs that ended more than `older_than` ago with one of `statuses`, failed ones too. A running
    /// job is never removed.
    pub fn prune(&self, older_than: Duration, statuses: &[JobStatus]) -> PruneReport {
        self.sweep(false);
        let age = SignedDuration::try_from(older_than).unwrap_or(SignedDuration::MAX);
        let Ok(before) = self.context.clock.now().checked_sub(age) else { return PruneReport::default() };
        self.remove_ended(|meta| statuses.contains(&meta.status) && ended_before(meta, before))
    }

    /// Removes the ended jobs that a rule does not keep, those that ended first before the others.
    pub fn retain(&self, rule: &Retention) -> PruneReport {
        self.sweep(false);
        let entries = self.catalog.read().entries();
        let mut ended: Vec<_> = entries.iter().filter_map(|entry| ended_at(&entry.meta()?)).collect();
        ended.sort_unstable_by(|one, other| other.cmp(one));
        let age = rule.age.and_then(|age| SignedDuration::try_from(age).ok());
        let before = age.and_then(|age| self.context.clock.now().checked_sub(age).ok());
        let (mut jobs, mut bytes) = (0_u32, 0_u64);
        ended.retain(|(at, id)| {
            jobs = jobs.saturating_add(1);
            let is_over = before.is_some_and(|before| *at <= before) || rule.jobs.is_some_and(|most| jobs > most);
            is_over
                || rule.bytes.is_some_and(|most| {
                    bytes = bytes.saturating_add(tree::bytes(&self.context.jobs, id.as_str()));
                    bytes > most
                })
        });
        let chosen: BTreeSet<_> = ended.into_iter().map(|(_, id)| id).collect();
        self.remove_ended(|meta| meta.status != JobStatus::Running && chosen.contains(&meta.job_id))
    }

    /// Removes the jobs that `is_chosen`, none of which runs.
    fn remove_ended(&self, is_chosen: impl Fn(&Meta) -> bool) -> PruneReport {
        if let Some(ledger) = &self.context.ledger {
            return self.remove_ended_shared(ledger, is_chosen);
        }
        let mut report = PruneReport::default();
        let mut entries = self.catalog.read().entries();
        let mut chosen = Vec::new();
        entries.retain(|entry| {
            let _files = lock(&entry.files);
            let meta = self.refresh(entry).ok().and_then(|_| entry.meta()).filter(&is_chosen);
            chosen.extend(meta.clone());
            meta.is_some()
        });
        if let Err(e) = self.note_removed(&chosen) {
            report.failed.extend(chosen.into_iter().map(|meta| (meta.job_id, e.to_string())));
            return report;
        }
        for entry in entries {
            let _files = lock(&entry.files);
            if self.refresh(&entry).is_err() {
                continue;
            }
            let Some(meta) = entry.meta() else { continue };
            if is_chosen(&meta) {
                match self.take_away(&entry) {
                    Ok(()) => {
                        let bytes = tree::bytes(&self.context.jobs, &format!("{DELETED}{}", meta.job_id));
                        report.bytes = report.bytes.saturating_add(bytes);
                        report.removed.push(meta.job_id);
                    }
                    Err(e) => report.failed.push((meta.job_id, e.to_string())),
                }
            }
        }
        self.discard(&report.removed);
        report
    }

    /// The known cost of a removed job, and whether that is the whole cost; `None` if there is no record of it.
    pub fn cost_of_removed(&self, id: &JobId) -> Option<(f64, bool)> {
        let lines = removed::read(&self.member).ok()?;
        let line = lines.into_iter().find(|line| line.job.as_ref() == Some(id))?;
        Some((line.sum.cost_usd, line.sum.unknown_costs == 0))
    }

    /// Records the usage of jobs that are about to be removed.
    pub(super) fn note_removed(&self, metas: &[Meta]) -> Result<(), StoreError> {
        let _one = lock(&self.removing);
        match removed::note(&self.member, metas.iter()) {
            Ok(()) => Ok(()),
            // Removing jobs frees room, so a full disk must not prevent it. The usage is logged instead.
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                for meta in metas {
                    let used = meta.usage.as_ref().and_then(|used| serde_json::to_string(used).ok());
                    tracing::error!(job = %meta.job_id, used, "the disk is full, so `guild usage` does not count the job any more");
                }
                Ok(())
            }
            Err(e) => Err(StoreError::io("what was used cannot be written down, so nothing is removed")(e)),
        }
    }

    /// Removes an ended job from the index and renames its directory; [`Self::discard`] follows. `entry.files` is held.
    fn take_away(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (id, jobs) = (&entry.id, &self.context.jobs);
        if !self.catalog.write().take(id) {
            return Err(StoreError::Unknown(id.to_string()));
        }
        let doomed = format!("{DELETED}{id}");
        // An earlier job of that id can have left a directory of that name.
        self.trash.remove(jobs, &doomed);
        if let Err(e) = if_there(jobs.rename(id.as_str(), jobs, &doomed)) {
            let mut index = self.catalog.write();
            index.unclaim(id);
            index.insert(entry.clone());
            return Err(StoreError::io("could not remove the job")(e));
        }
        self.context.publish(id, || EventDetail::JobDeleted);
        Ok(())
    }

    /// Removes the files of jobs that were removed from the index. Their ids stay reserved until then, so that no other
    /// thread removes the files.
    fn discard(&self, ids: &[JobId]) {
        if ids.is_empty() {
            return;
        }
        if let Err(e) = sync_dir(&self.context.jobs) {
            tracing::warn!("the removal of {} jobs may not survive a power cut: {e}", ids.len());
        }
        for id in ids {
            self.trash.remove(&self.context.jobs, &format!("{DELETED}{id}"));
            self.catalog.write().unclaim(id);
        }
    }
}

/// Whether a job of this status may be deleted (REQ-WD-17).
fn may_delete(status: JobStatus) -> Result<(), StoreError> {
    match status {
        JobStatus::Running => Err(StoreError::Refused("Cannot delete a running job".to_owned())),
        JobStatus::Failed => Err(StoreError::Refused("Cannot delete a failed job. Cancel it first.".to_owned())),
        JobStatus::Completed | JobStatus::Cancelled => Ok(()),
    }
}
