//! Reads `jobs/` into the index: when the store is loaded, and when directories appear or vanish later.

use std::{
    io,
    sync::{Mutex, OnceLock, atomic::Ordering},
};

use guild_contract::{EventDetail, JobId, JobStatus, Meta};
use guild_fs::fingerprint::Fingerprint;

use super::{
    DELETED, JobStore, NEW,
    index::{Entry, State},
};
use crate::{
    files::{
        reader,
        record::{self, META},
    },
    running::ended::EndedJob,
    sync::{in_threads, lock},
};

/// Readers of `meta.json` files at a time.
const READERS: usize = 2;
/// The number of jobs that are recovered at a time. Each waits for the disk, not for a processor.
const RECOVERERS: usize = 32;

/// The result of [`JobStore::load`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// The number of jobs.
    pub jobs: usize,
    /// Interrupted jobs and their status now, which is `running` if they were resumed.
    pub recovered: Vec<(JobId, JobStatus)>,
    /// Directories that are not jobs because their `meta.json` cannot be read, with the reasons.
    pub unreadable: Vec<(JobId, String)>,
}

/// The load of the store.
#[derive(Default)]
pub(super) struct Loading {
    /// Held while it is loaded.
    one: Mutex<()>,
    /// Set once it is loaded.
    report: OnceLock<LoadReport>,
}

impl JobStore {
    /// Reads all jobs, removes the leftovers of creations and removals that a crash interrupted, and recovers
    /// interrupted jobs. Other methods can run meanwhile, and wait for it if they need jobs that are not known yet. A
    /// second call returns the first result.
    ///
    /// If `jobs/` cannot be read, that is logged and no job is found; the next method that needs the jobs tries again.
    pub fn load(&self) -> LoadReport {
        if self.context.ledger.is_some() {
            return LoadReport::default();
        }
        let _one = lock(&self.loading.one);
        if let Some(report) = self.loading.report.get() {
            return report.clone();
        }
        match self.read_all() {
            Ok(report) => self.loading.report.get_or_init(|| report).clone(),
            Err(e) => {
                cannot_read_jobs(&e);
                LoadReport::default()
            }
        }
    }

    /// Loads the store unless that is done; false if `jobs/` cannot be read.
    pub(super) fn ensure_loaded(&self) -> bool {
        if self.context.ledger.is_some() {
            return true;
        }
        if self.loading.report.get().is_none() {
            self.load();
        }
        self.loading.report.get().is_some()
    }

    fn read_all(&self) -> io::Result<LoadReport> {
        let mut interrupted = Vec::new();
        for (id, read) in in_threads(READERS, &self.unknown_ids()?, |id| (id.clone(), self.read_record(id))) {
            match read {
                Ok((meta, _)) if meta.status == JobStatus::Running => interrupted.push(meta),
                Ok((meta, read)) => {
                    // No other thread writes in a job that is not in the index yet.
                    if let Err(e) = self.job_dir(&id).and_then(|dir| record::remove_leftovers(&dir)) {
                        tracing::warn!(job = %id, "cannot remove temporary files: {e}");
                    }
                    self.insert_read(&id, Ok(EndedJob::new(meta, Some(read))));
                }
                Err(reason) => self.insert_read(&id, Err(reason)),
            }
        }
        if self.recovery.is_deferred.load(Ordering::Relaxed) {
            interrupted.clear();
        }
        let mut recovered = Vec::new();
        let recover = |meta: &Meta| (meta.job_id.clone(), self.recover_job(meta, true, None));
        for (id, outcome) in in_threads(RECOVERERS, &interrupted, recover) {
            recovered.extend(outcome.as_ref().ok().map(|job| (id.clone(), job.status())));
            self.insert_recovered(&id, outcome);
        }
        self.unreadable.mark_loaded();
        Ok(LoadReport { jobs: self.catalog.read().len(), recovered, unreadable: self.unreadable.all() })
    }

    /// The names under `jobs/` that can be jobs and are not in the index. The leftovers of an interrupted creation or
    /// removal are removed.
    pub(super) fn unknown_ids(&self) -> io::Result<Vec<JobId>> {
        let names = reader::directories(&self.context.jobs)?;
        let is_known = |id: &JobId| self.catalog.read().knows(id);
        let mut ids = Vec::new();
        for name in names {
            if let Ok(id) = name.parse() {
                ids.push(id);
            } else if let Some(id) = name.strip_prefix(NEW).or_else(|| name.strip_prefix(DELETED)) {
                // A job that is known is being made or removed by another thread.
                if !id.parse().is_ok_and(|id| is_known(&id)) {
                    self.trash.remove(&self.context.jobs, &name);
                }
            }
        }
        ids.retain(|id| !is_known(id));
        Ok(ids)
    }

    /// Reads directories that appeared in `jobs/`, and retries unreadable and unremovable ones.
    pub(super) fn search(&self) {
        match self.unknown_ids() {
            Ok(ids) => ids.iter().for_each(|id| self.compare(id)),
            Err(e) => cannot_read_jobs(&e),
        }
        self.trash.retry(&self.context.jobs);
    }

    /// Brings the index up to date with the directory of one job.
    pub(super) fn compare(&self, id: &JobId) {
        if !self.exists(id) {
            self.unreadable.remove(id);
            if self.running(id.as_str()).is_none() {
                self.forget(id);
            }
            return;
        }
        let _reading = lock(&self.recovery.reading);
        if self.catalog.read().knows(id) {
            return;
        }
        match self.read_record(id) {
            Ok((meta, _)) if meta.status == JobStatus::Running => {
                if !self.recovery.is_deferred.load(Ordering::Relaxed) {
                    self.insert_recovered(id, self.recover_job(&meta, self.unreadable.was_at_load(id), None));
                }
            }
            Ok((meta, read)) => self.insert_read(id, Ok(EndedJob::new(meta, Some(read)))),
            Err(reason) => self.insert_read(id, Err(reason)),
        }
    }

    /// Whether there is a directory of that name; true if that cannot be determined.
    pub(super) fn exists(&self, id: &JobId) -> bool {
        match self.context.jobs.symlink_metadata(id.as_str()) {
            Ok(metadata) => metadata.is_dir(),
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Removes a job without a directory from the index.
    pub(super) fn forget(&self, id: &JobId) {
        if self.catalog.write().remove(id) {
            self.context.publish(id, || EventDetail::JobDeleted);
        }
    }

    /// Adds a job that was read to the index, or records the reason that it cannot be read.
    pub(super) fn insert_read(&self, id: &JobId, read: Result<EndedJob, String>) {
        let ended = match read {
            Ok(ended) => ended,
            Err(reason) => return self.unreadable.insert(id, reason),
        };
        self.unreadable.remove(id);
        {
            let mut index = self.catalog.write();
            if !index.knows(id) {
                index.insert(Entry::new(State::Ended(Box::new(ended))));
            }
        }
        self.lists.invalidate();
    }

    /// Reads a job's record. The error tells why the directory is not a job.
    fn read_record(&self, id: &JobId) -> Result<(Meta, Fingerprint), String> {
        record::read_meta(&self.context.jobs, id, &self.context.limits()).map_err(|e| format!("{META}: {e}"))
    }
}

fn cannot_read_jobs(e: &io::Error) {
    tracing::error!("cannot read jobs/, trying again later: {e}");
}
