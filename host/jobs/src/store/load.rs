//! What is on disk becomes the index: when the store is loaded, and when directories appear or vanish later.

use std::{
    io,
    sync::{Mutex, OnceLock},
};

use guild_contract::{JobId, JobStatus, Meta, News};
use guild_session::fingerprint::Fingerprint;

use super::{DELETED, JobStore, NEW};
use crate::{
    ended::EndedJob,
    index::Entry,
    record::{self, META},
    records,
    sync::{in_threads, lock},
};

/// Readers of `meta.json` files at a time.
const READERS: usize = 2;
/// So many jobs are worth a second reader.
const WORTH_A_READER: usize = 256;
/// Jobs that are recovered at a time: each waits for the disk, not for a processor.
const RECOVERERS: usize = 32;

/// What [`JobStore::load`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Jobs in all.
    pub jobs: usize,
    /// Interrupted jobs, and what they are now; `running` where they were resumed.
    pub recovered: Vec<(JobId, JobStatus)>,
    /// Directories that are no jobs for lack of a readable `meta.json`, and why.
    pub unreadable: Vec<(JobId, String)>,
}

/// Whether the store is loaded.
#[derive(Default)]
pub(super) struct Loading {
    /// Held by the one who loads it.
    one: Mutex<()>,
    report: OnceLock<LoadReport>,
}

impl Loading {
    pub(super) fn is_done(&self) -> bool {
        self.report.get().is_some()
    }
}

impl JobStore {
    /// Reads what is there; removes what a crash left half-made or half-removed; recovers interrupted jobs. Other methods
    /// wait for it where they need jobs that are not known yet, so it can run beside them. A second call answers as the
    /// first.
    ///
    /// Where `jobs/` cannot be read, that is logged and nothing is found; whoever needs the jobs next tries again.
    pub fn load(&self) -> LoadReport {
        let _one = lock(&self.loading.one);
        if let Some(report) = self.loading.report.get() {
            return report.clone();
        }
        match self.read_all() {
            Ok(report) => self.loading.report.get_or_init(|| report).clone(),
            Err(e) => {
                self.cannot_read_jobs(&e);
                LoadReport::default()
            }
        }
    }

    fn cannot_read_jobs(&self, e: &io::Error) {
        tracing::error!("cannot read jobs/, trying again later: {e}");
        self.catalog.notice_all();
    }

    fn read_all(&self) -> io::Result<LoadReport> {
        let ids = self.ids_on_disk()?;
        let unknown: Vec<JobId> = {
            let index = self.catalog.read();
            ids.into_iter().filter(|id| !index.knows(id)).collect()
        };
        let readers = if unknown.len() < WORTH_A_READER { 1 } else { READERS };
        let mut interrupted = Vec::new();
        for (id, read) in in_threads(readers, &unknown, |id| (id.clone(), self.read_record(id))) {
            match read {
                Ok((meta, _)) if meta.status == JobStatus::Running => interrupted.push(meta),
                Ok((meta, read)) => {
                    // Nobody writes in a job that is not known yet.
                    if let Err(e) = self.job_dir(&id).and_then(|dir| record::remove_leftovers(&dir)) {
                        tracing::warn!(job = %id, "cannot remove temporary files: {e}");
                    }
                    self.insert_read(&id, Ok(EndedJob::new(meta, Some(read))));
                }
                Err(reason) => self.insert_read(&id, Err(reason)),
            }
        }
        if self.recovery.is_deferred() {
            interrupted.clear();
        }
        let mut recovered = Vec::new();
        let recover = |meta: &Meta| (meta.job_id.clone(), self.recover_job(meta, true));
        for (id, outcome) in in_threads(RECOVERERS, &interrupted, recover) {
            recovered.extend(outcome.as_ref().ok().map(|outcome| (id.clone(), outcome.status())));
            self.insert_recovered(&id, outcome);
        }
        self.unreadable.mark_loaded();
        Ok(LoadReport { jobs: self.catalog.read().len(), recovered, unreadable: self.unreadable.all() })
    }

    /// The names under `jobs/` that can be jobs. What a crash left of a creation or a removal is removed.
    pub(super) fn ids_on_disk(&self) -> io::Result<Vec<JobId>> {
        let mut ids = Vec::new();
        for name in records::directories(self.context.jobs())? {
            if let Ok(id) = name.parse() {
                ids.push(id);
            } else if let Some(id) = name.strip_prefix(NEW).or_else(|| name.strip_prefix(DELETED)) {
                // A job that is being made or removed is somebody's already.
                let busy = id.parse().is_ok_and(|id| self.catalog.read().knows(&id));
                if !busy {
                    self.trash.remove(self.context.jobs(), &name);
                }
            }
        }
        Ok(ids)
    }

    /// Brings the index up to what was noticed on disk. It costs nothing where nothing was.
    pub(super) fn absorb(&self) {
        if !self.loading.is_done() {
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
                Err(e) => self.cannot_read_jobs(&e),
            }
            ids.extend(self.catalog.read().entries().iter().map(|entry| entry.id.clone()));
        }
        ids.iter().for_each(|id| self.compare(id));
    }

    /// Tries once more what did not work: directories that could not be read, which somebody may be about to finish, and
    /// those that could not be removed.
    pub(super) fn retry(&self) {
        self.unreadable.all().iter().for_each(|(id, _)| self.compare(id));
        self.trash.retry(self.context.jobs());
    }

    /// Makes the index say of one job what the disk says.
    pub(super) fn compare(&self, id: &JobId) {
        if !self.exists(id) {
            self.unreadable.remove(id);
            if self.running(id.as_str()).is_none() {
                self.forget(id);
            }
            return;
        }
        let _reading = self.recovery.lock_reading();
        if self.catalog.read().knows(id) {
            return;
        }
        match self.read_record(id) {
            Ok((meta, _)) if meta.status == JobStatus::Running => {
                if !self.recovery.is_deferred() {
                    self.insert_recovered(id, self.recover_job(&meta, self.unreadable.was_at_load(id)));
                }
            }
            Ok((meta, read)) => self.insert_read(id, Ok(EndedJob::new(meta, Some(read)))),
            Err(reason) => self.insert_read(id, Err(reason)),
        }
    }

    /// Whether there is a directory of that name; yes where that cannot be told.
    pub(super) fn exists(&self, id: &JobId) -> bool {
        match self.context.jobs().symlink_metadata(id.as_str()) {
            Ok(metadata) => metadata.is_dir(),
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Takes a job out of the index whose directory is gone.
    pub(super) fn forget(&self, id: &JobId) {
        if self.catalog.write().remove(id) {
            self.context.changed();
            self.context.publish(id, || News::JobDeleted);
            self.notice_return(id);
        }
    }

    /// Notices a directory that came back while the index still had the job: the watch ignored it then.
    pub(super) fn notice_return(&self, id: &JobId) {
        if self.exists(id) {
            self.catalog.notice(id.as_str(), true);
        }
    }

    /// Puts a job into the index that was read, or notes why it is none.
    pub(super) fn insert_read(&self, id: &JobId, read: Result<EndedJob, String>) {
        let ended = match read {
            Ok(ended) => ended,
            Err(reason) => return self.unreadable.insert(id, reason),
        };
        self.unreadable.remove(id);
        let started_at = ended.meta.started_at.clone();
        let entry = Entry::ended(ended);
        {
            let mut index = self.catalog.write();
            if !index.knows(id) {
                index.insert(entry, &started_at);
            }
        }
        self.lists.invalidate();
        self.context.changed();
    }

    /// Reads a job's record. The error says why it is no job.
    fn read_record(&self, id: &JobId) -> Result<(Meta, Fingerprint), String> {
        record::read_meta(self.context.jobs(), id, &self.context.limits()).map_err(|e| format!("{META}: {e}"))
    }
}
