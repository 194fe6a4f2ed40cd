//! What is on disk becomes the index: when the store is loaded, and when directories appear or vanish later. Jobs
//! that a host left running when it died are reconciled: none is stuck (REQ-WD-47).

use std::{collections::HashSet, io, sync::atomic::Ordering};

use guild_contract::{JobId, JobStatus, Meta};

use crate::{
    durable::{Stamp, Survives, if_there, replace},
    index::Entry,
    record::{self, RESULT, SUBMISSION},
    store::{DELETED, JobStore, NEW},
    sync::lock,
};

/// Why a job failed that a host left running.
const LEFT_RUNNING: &str =
    "the host stopped while the job was running, and nothing was submitted; dispatch the task again";
/// Readers of `meta.json` files at a time.
const READERS: usize = 2;
/// So many jobs are worth a second reader.
const WORTH_A_READER: usize = 256;

/// What [`JobStore::load`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Jobs in all.
    pub jobs: usize,
    /// Jobs that a host left running, and what they are now.
    pub reconciled: Vec<(JobId, JobStatus)>,
    /// Directories that are no jobs for lack of a readable `meta.json`, and why.
    pub left_out: Vec<(JobId, String)>,
}

/// A job as it was read, and whether it was found running.
struct Found {
    meta: Meta,
    /// `None` if it was reconciled and that could not be stored yet.
    stamp: Option<Stamp>,
    reconciled: bool,
}

impl JobStore {
    /// Reads what is there; removes what a crash left half-made or half-removed; ends the jobs that a host left
    /// running. Other methods that need it wait for it, so it can run beside them. A second call answers as the
    /// first.
    pub fn load(&self) -> LoadReport {
        let mut done = lock(&self.report);
        if let Some(report) = &*done {
            return report.clone();
        }
        let report = self.read_all().unwrap_or_else(|e| {
            tracing::error!("jobs/ cannot be read: {e}");
            LoadReport::default()
        });
        *done = Some(report.clone());
        self.loaded.store(true, Ordering::Release);
        report
    }

    fn read_all(&self) -> io::Result<LoadReport> {
        let ids = self.ids_on_disk()?;
        let unknown: Vec<JobId> = {
            let index = self.catalog.read();
            ids.into_iter().filter(|id| !index.knows(id)).collect()
        };
        let readers = if unknown.len() < WORTH_A_READER { 1 } else { READERS };
        let share = unknown.len().div_ceil(readers).max(1);
        let found: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> = unknown
                .chunks(share)
                .map(|ids| scope.spawn(|| ids.iter().map(|id| (id.clone(), self.read_job(id))).collect::<Vec<_>>()))
                .collect();
            readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default()).collect()
        });
        let mut report = LoadReport::default();
        for (id, found) in found {
            match found {
                Ok(found) => {
                    if found.reconciled {
                        report.reconciled.push((id, found.meta.status));
                    }
                    self.admit(found);
                }
                Err(reason) => {
                    self.leave_out(&id, reason.clone());
                    report.left_out.push((id, reason));
                }
            }
        }
        report.jobs = self.catalog.read().len();
        Ok(report)
    }

    /// The names under `jobs/` that can be jobs. What a crash left of a creation or a removal is removed.
    fn ids_on_disk(&self) -> io::Result<Vec<JobId>> {
        let (mut ids, mut leftovers) = (Vec::new(), Vec::new());
        for entry in self.shared.jobs.entries()? {
            let entry = entry?;
            if !if_there(entry.file_type())?.is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Ok(id) = name.parse() {
                ids.push(id);
            } else if name.starts_with(NEW) || name.starts_with(DELETED) {
                leftovers.push(name.to_owned());
            }
        }
        for name in leftovers {
            let id = name.strip_prefix(NEW).or_else(|| name.strip_prefix(DELETED));
            let busy = id.and_then(|id| id.parse().ok()).is_some_and(|id| self.catalog.read().knows(&id));
            if !busy {
                self.remove_tree(&name);
            }
        }
        Ok(ids)
    }

    /// Brings the index up to what was noticed on disk. It costs nothing where nothing was.
    pub(crate) fn absorb(&self) {
        if !self.loaded.load(Ordering::Acquire) {
            self.load();
        }
        if !self.catalog.is_stale() {
            return;
        }
        let noticed = self.catalog.take_noticed();
        let mut ids = noticed.ids;
        if noticed.all {
            match self.ids_on_disk() {
                Ok(there) => ids.extend(there),
                Err(e) => tracing::warn!("jobs/ cannot be read: {e}"),
            }
            ids.extend(self.catalog.read().entries().iter().map(|entry| entry.id.clone()));
        }
        ids.iter().for_each(|id| self.settle(id));
    }

    /// Looks once more at the directories that were left out: somebody may be about to finish them.
    pub(crate) fn retry_left_out(&self) {
        let ids: HashSet<JobId> = lock(&self.left_out).keys().cloned().collect();
        ids.iter().for_each(|id| self.settle(id));
    }

    /// Makes the index say of one job what the disk says.
    pub(crate) fn settle(&self, id: &JobId) {
        let there = self.shared.jobs.symlink_metadata(id.as_str()).is_ok_and(|metadata| metadata.is_dir());
        if !there {
            lock(&self.left_out).remove(id);
            if self.running(id.as_str()).is_none() && self.catalog.write().remove(id) {
                self.shared.changed();
            }
        } else if !self.catalog.read().knows(id) {
            match self.read_job(id) {
                Ok(found) => {
                    lock(&self.left_out).remove(id);
                    self.admit(found);
                    self.lists.forget();
                }
                Err(reason) => self.leave_out(id, reason),
            }
        }
    }

    fn admit(&self, found: Found) {
        let started_at = found.meta.started_at.clone();
        let id = found.meta.job_id.clone();
        let entry = Entry::ended(found.meta, found.stamp);
        let mut index = self.catalog.write();
        if !index.knows(&id) {
            index.insert(entry, &started_at);
        }
        drop(index);
        self.shared.changed();
    }

    fn leave_out(&self, id: &JobId, reason: String) {
        let before = lock(&self.left_out).insert(id.clone(), reason.clone());
        if before.as_ref() != Some(&reason) {
            tracing::warn!(job = %id, "is left out: {reason}");
        }
    }

    /// Reads a job, and ends it if a host left it running.
    fn read_job(&self, id: &JobId) -> Result<Found, String> {
        let (meta, stamp) = record::read_meta(&self.shared.jobs, id)?;
        if meta.status != JobStatus::Running {
            return Ok(Found { meta, stamp: Some(stamp), reconciled: false });
        }
        let (meta, stamp) = self.reconcile(&meta);
        tracing::info!(job = %id, status = %meta.status, "was left running by a host that stopped");
        Ok(Found { meta, stamp, reconciled: true })
    }

    /// Ends a job that nobody runs any more: completed if a result was handed over, else failed.
    fn reconcile(&self, meta: &Meta) -> (Meta, Option<Stamp>) {
        let id = &meta.job_id;
        let failure = match record::read_left_result(&self.shared.jobs, id, &self.shared.limits) {
            None => Some(LEFT_RUNNING.to_owned()),
            Some(output) => self
                .job_dir(id)
                .and_then(|dir| replace(&dir, RESULT, output.as_bytes(), Survives::PowerCut))
                .err()
                .map(|e| format!("could not write {RESULT}: {e}")),
        };
        let status = if failure.is_none() { JobStatus::Completed } else { JobStatus::Failed };
        let meta = record::ended(meta, status, failure, self.shared.now());
        let stored = self.write_meta(&meta).and_then(|stamp| {
            let dir = self.job_dir(id)?;
            if_there(dir.remove_file(SUBMISSION))?;
            // Where the crash came while a file was being written.
            for entry in dir.entries()? {
                let name = entry?.file_name();
                if name.to_str().is_some_and(|name| name.starts_with(".tmp-")) {
                    if_there(dir.remove_file(name))?;
                }
            }
            Ok(stamp)
        });
        let stamp = stored.inspect_err(|e| tracing::warn!(job = %id, "could not store its end yet: {e}")).ok();
        (meta, stamp)
    }
}
