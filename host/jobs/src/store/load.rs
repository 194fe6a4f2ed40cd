//! What is on disk becomes the index: when the store is loaded, and when directories appear or vanish later. Jobs
//! that a host left running when it died are reconciled: none is stuck (REQ-WD-47).

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus, JobUsage, Meta, News};

use crate::{
    Sealed,
    durable::{Stamp, if_there, remove_temporaries},
    ended::Ended,
    index::Entry,
    record::{self, Left, META, Owed, PLAN, TRANSCRIPT},
    running::RunningJob,
    sync::{in_threads, lock},
};
use guild_session::transcript::{self, Entry as Did};

use super::{DELETED, JobStore, NEW};

/// Goes on with jobs that a host left running.
pub trait Resume: Send + Sync {
    /// What shows [`Self::check`] later that the job with this plan, [`Sealed::text`], was made here, and did not come along
    /// with a directory. It blocks.
    fn seal(&self, _job: &JobId, _plan: &[u8]) -> Option<String> {
        None
    }

    /// Whether a job could go on, by its plan and what its sessions have done. The error says why not.
    fn check(&self, job: &JobId, plan: &Sealed, history: &[Did]) -> Result<(), String>;

    /// Goes on with a job, which is running, by [`RunningJob::plan`]. It must not wait for it.
    fn resume(&self, job: Arc<RunningJob>);
}

/// Why a job does not go on.
enum Stays {
    /// It cannot; it has failed.
    Refused(String),
    /// Nobody knows for now; it is looked at again.
    Unknown(io::Error),
}

/// What becomes of a job that a host left running.
enum Settled {
    /// It has ended.
    Ended(Box<Ended>),
    /// It goes on.
    GoesOn(Arc<RunningJob>),
}
/// Readers of `meta.json` files at a time.
const READERS: usize = 2;
/// So many jobs are worth a second reader.
const WORTH_A_READER: usize = 256;
/// Jobs that are reconciled at a time: each waits for the disk, not for a processor.
const RECONCILERS: usize = 32;

/// What [`JobStore::load`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Jobs in all.
    pub jobs: usize,
    /// Jobs that a host left running, and what they are now; `running` where they go on.
    pub reconciled: Vec<(JobId, JobStatus)>,
    /// Directories that are no jobs for lack of a readable `meta.json`, and why.
    pub left_out: Vec<(JobId, String)>,
}

impl JobStore {
    /// Reads what is there; removes what a crash left half-made or half-removed; ends the jobs that a host left
    /// running. Other methods wait for it where they need jobs that are not known yet, so it can run beside them. A
    /// second call answers as the first.
    ///
    /// Where `jobs/` cannot be read, that is logged and nothing is found; whoever needs the jobs next tries again.
    pub fn load(&self) -> LoadReport {
        let mut done = lock(&self.report);
        if let Some(report) = &*done {
            return report.clone();
        }
        match self.read_all() {
            Ok(report) => {
                *done = Some(report.clone());
                self.loaded.store(true, Ordering::Release);
                report
            }
            Err(e) => {
                self.cannot_read_jobs(&e);
                LoadReport::default()
            }
        }
    }

    /// Nobody knows what is there, so everything is to be looked at.
    fn cannot_read_jobs(&self, e: &io::Error) {
        tracing::error!("jobs/ cannot be read, and is tried again: {e}");
        self.catalog.notice_all();
    }

    fn read_all(&self) -> io::Result<LoadReport> {
        let ids = self.ids_on_disk()?;
        let unknown: Vec<JobId> = {
            let index = self.catalog.read();
            ids.into_iter().filter(|id| !index.knows(id)).collect()
        };
        let readers = if unknown.len() < WORTH_A_READER { 1 } else { READERS };
        let (mut running, mut reconciled) = (Vec::new(), Vec::new());
        for (id, read) in in_threads(readers, &unknown, |id| (id.clone(), self.read_record(id))) {
            match read {
                Ok((meta, _)) if meta.status == JobStatus::Running => running.push(meta),
                Ok((meta, stamp)) => {
                    // Nobody writes in a job that is not known yet.
                    if let Err(e) = self.job_dir(&id).and_then(|dir| record::remove_leftovers(&dir)) {
                        tracing::warn!(job = %id, "temporary files are left: {e}");
                    }
                    self.take_in(&id, Ok(Ended::new(meta, Some(stamp))));
                }
                Err(reason) => self.take_in(&id, Err(reason)),
            }
        }
        if self.leaves_running.load(Ordering::Relaxed) {
            running.clear();
        }
        for (id, settled) in in_threads(RECONCILERS, &running, |meta| (meta.job_id.clone(), self.reconcile(meta, true)))
        {
            let status = settled.as_ref().ok().map(|settled| match settled {
                Settled::Ended(ended) => ended.meta.status,
                Settled::GoesOn(_) => JobStatus::Running,
            });
            reconciled.extend(status.map(|status| (id.clone(), status)));
            self.take_over(&id, settled);
        }
        let left_out: Vec<_> = lock(&self.left_out).clone().into_iter().collect();
        *lock(&self.left_out_at_load) = left_out.iter().map(|(id, _)| id.clone()).collect();
        Ok(LoadReport { jobs: self.catalog.read().len(), reconciled, left_out })
    }

    /// Settles all that a host left running, those of [`Self::leave_running`] too. It blocks until that is done.
    ///
    /// # Errors
    /// Where `jobs/` cannot be read, so that nobody knows what there is.
    pub fn settle_left(&self) -> io::Result<()> {
        self.leaves_running.store(false, Ordering::Relaxed);
        // Whoever reads the jobs already is waited for.
        self.load();
        self.ids_on_disk()?.iter().for_each(|id| self.settle(id));
        Ok(())
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
            // A job that is being made or removed is somebody's already.
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
                Err(e) => self.cannot_read_jobs(&e),
            }
            ids.extend(self.catalog.read().entries().iter().map(|entry| entry.id.clone()));
        }
        ids.iter().for_each(|id| self.settle(id));
    }

    /// Tries once more what did not work: directories that were left out, which somebody may be about to finish, and
    /// those that could not be removed.
    pub(crate) fn retry(&self) {
        let ids: Vec<JobId> = lock(&self.left_out).keys().cloned().collect();
        ids.iter().for_each(|id| self.settle(id));
        let names: Vec<String> = lock(&self.unremoved).iter().cloned().collect();
        names.iter().for_each(|name| self.remove_tree(name));
    }

    /// Makes the index say of one job what the disk says.
    pub(crate) fn settle(&self, id: &JobId) {
        if !self.is_there(id) {
            lock(&self.left_out).remove(id);
            if self.running(id.as_str()).is_none() {
                self.forget(id);
            }
            return;
        }
        // Two that read the same job would both end it.
        let _settling = lock(&self.settling);
        if !self.catalog.read().knows(id) {
            let read = self.read_record(id);
            let runs = read.as_ref().is_ok_and(|(meta, _)| meta.status == JobStatus::Running);
            if runs && self.leaves_running.load(Ordering::Relaxed) {
                return;
            }
            let was_there = lock(&self.left_out_at_load).contains(id);
            match read {
                Ok((meta, _)) if runs => self.take_over(id, self.reconcile(&meta, was_there)),
                Ok((meta, stamp)) => self.take_in(id, Ok(Ended::new(meta, Some(stamp)))),
                Err(reason) => self.take_in(id, Err(reason)),
            }
        }
    }

    /// Whether there is a directory of that name; yes where nobody can say.
    pub(crate) fn is_there(&self, id: &JobId) -> bool {
        match self.shared.jobs.symlink_metadata(id.as_str()) {
            Ok(metadata) => metadata.is_dir(),
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Takes a job out of the index whose directory is gone.
    pub(crate) fn forget(&self, id: &JobId) {
        if self.catalog.write().remove(id) {
            self.shared.changed();
            self.shared.tell(id, || News::JobDeleted);
            self.look_again(id);
        }
    }

    /// A directory that came back while the index still knew of the job was no news then, and is now.
    pub(crate) fn look_again(&self, id: &JobId) {
        if self.is_there(id) {
            self.catalog.notice(id.as_str(), true);
        }
    }

    /// Takes a job into the index that a host left running and that ended now, hands one over that goes on, or leaves it out.
    fn take_over(&self, id: &JobId, settled: Result<Settled, String>) {
        match settled {
            Ok(Settled::GoesOn(job)) => {
                lock(&self.left_out).remove(id);
                if let Some(resume) = self.resume.get() {
                    resume.resume(job);
                }
            }
            Ok(Settled::Ended(ended)) => {
                let news = super::ended(&ended.meta);
                self.take_in(id, Ok(*ended));
                self.shared.tell(id, || news);
            }
            Err(reason) => self.take_in(id, Err(reason)),
        }
    }

    /// Takes a job into the index that was read, or leaves it out.
    fn take_in(&self, id: &JobId, read: Result<Ended, String>) {
        let ended = match read {
            Ok(ended) => ended,
            Err(reason) => {
                let before = lock(&self.left_out).insert(id.clone(), reason.clone());
                if before.as_ref() != Some(&reason) {
                    tracing::warn!(job = %id, "is left out: {reason}");
                }
                return;
            }
        };
        lock(&self.left_out).remove(id);
        let started_at = ended.meta.started_at.clone();
        let entry = Entry::ended(ended);
        let mut index = self.catalog.write();
        if !index.knows(id) {
            index.insert(entry, &started_at);
        }
        drop(index);
        self.lists.forget();
        self.shared.changed();
    }

    /// Reads a job's record. The error says why the job is left out.
    fn read_record(&self, id: &JobId) -> Result<(Meta, Stamp), String> {
        record::read_meta(&self.shared.jobs, id, &self.shared.limits()).map_err(|e| format!("{META}: {e}"))
    }

    /// Settles a job that nobody runs any more: completed if a result was handed over, else taken up again if it can
    /// be, else failed. What cannot be known for now is an error, and changes nothing; what cannot be stored for now is
    /// kept, and stored later. A job that `was_there` when the store was loaded is one that a host can have left: what
    /// somebody put there since is not run.
    fn reconcile(&self, meta: &Meta, was_there: bool) -> Result<Settled, String> {
        let (id, limits) = (&meta.job_id, &self.shared.limits());
        let unknown = |e: io::Error| format!("whether it handed over a result is not known: {e}");
        let dir = self.job_dir(id).map_err(unknown)?;
        let (status, error, owed) = match record::look_for_result(&dir, id, limits).map_err(unknown)? {
            Left::Submission => (JobStatus::Completed, None, Some(Owed::Submission)),
            Left::Result => (JobStatus::Completed, None, None),
            Left::Nothing => match self.go_on(meta, &dir, was_there) {
                Ok(job) => return Ok(Settled::GoesOn(job)),
                Err(Stays::Unknown(e)) => return Err(format!("whether it can go on is not known: {e}")),
                Err(Stays::Refused(why)) => (JobStatus::Failed, Some(interrupted(&why)), None),
            },
        };
        let meta = Meta { usage: self.usage_so_far(&dir), ..meta.clone() };
        let meta = record::ended(&meta, status, error, self.shared.now());
        let stored = record::store_end(&dir, &meta, owed.as_ref(), limits);
        let stamp = stored.inspect_err(|e| tracing::warn!(job = %id, "its end is stored later: {e}")).ok();
        if let Err(e) = remove_temporaries(&dir) {
            tracing::warn!(job = %id, "temporary files are left: {e}");
        }
        tracing::info!(job = %id, %status, "was left running by a host that stopped");
        let owed = owed.filter(|_| stamp.is_none());
        Ok(Settled::Ended(Box::new(Ended { owed, ..Ended::new(meta, stamp) })))
    }

    /// Takes a job up again. The error says why that cannot be.
    fn go_on(&self, meta: &Meta, dir: &Dir, was_there: bool) -> Result<Arc<RunningJob>, Stays> {
        let limits = &self.shared.limits();
        let refused = |why: &str| Stays::Refused(why.to_owned());
        let resume = self.resume.get().ok_or_else(|| refused("nobody goes on with it"))?;
        if !was_there {
            return Err(refused("it was put there while another one ran, so no host can have left it"));
        }
        if meta.resumes >= limits.resumes {
            let why = format!("it was taken up again {} times, as often as limits.resumes allows", meta.resumes);
            return Err(Stays::Refused(why));
        }
        let unreadable = |file: &'static str| {
            move |e: io::Error| match record::is_of_the_system(&e) {
                true => Stays::Unknown(e),
                false => Stays::Refused(format!("its {file} cannot be read: {e}")),
            }
        };
        let plan = record::read_plan(dir, limits).map_err(unreadable(PLAN))?;
        let plan = plan.ok_or_else(|| refused("it has no plan.json"))?;
        // Counted before anything else is done with it: a job that ends its host does so no more often than is allowed.
        let mut meta = Meta { resumes: meta.resumes.saturating_add(1), ..meta.clone() };
        remove_temporaries(dir).map_err(unreadable(META))?;
        record::store_meta(dir, &meta).map_err(unreadable(META))?;
        {
            // One at a time: a transcript takes many times its size while it is looked at.
            let _one = lock(&self.reading);
            let history = record::read_transcript(dir, limits).map_err(unreadable(TRANSCRIPT))?.unwrap_or_default();
            meta.usage = (!history.is_empty()).then(|| transcript::usage(&history, plan.accepted.agent.clone()));
            let history: Vec<Did> = history.into_iter().map(|line| line.entry).collect();
            resume.check(&meta.job_id, &plan, &history).map_err(Stays::Refused)?;
        }
        let job = self.take_up(&meta, dir).map_err(unreadable(META))?;
        tracing::info!(job = %meta.job_id, "goes on, which a host that stopped left running");
        Ok(job)
    }

    /// What a job's sessions used before its host stopped, by its transcript.
    fn usage_so_far(&self, dir: &Dir) -> Option<JobUsage> {
        let limits = &self.shared.limits();
        let plan = record::read_plan(dir, limits).ok().flatten()?;
        let _one = lock(&self.reading);
        let history = record::read_transcript(dir, limits).ok().flatten()?;
        Some(transcript::usage(&history, plan.accepted.agent))
    }
}

/// The error of a job that a host left running and that does not go on.
pub fn interrupted(why: &str) -> String {
    format!("the host stopped while the job was running, and nothing was submitted; {why}; dispatch the task again")
}
