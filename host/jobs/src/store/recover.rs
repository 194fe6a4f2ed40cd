//! Interrupted jobs: those that were running when their host stopped. None stays so (REQ-WD-47): each is completed, resumed
//! or failed.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus, JobUsage, Meta, News};
use guild_session::transcript::{self, Entry as TranscriptEntry};

use super::{JobStore, end_of};
use crate::{
    Sealed,
    durable::remove_temporaries,
    ended::EndedJob,
    index::Entry,
    record::{self, FoundResult, META, PLAN, TRANSCRIPT, UnsavedResult},
    running::RunningJob,
    sync::lock,
};

/// Resumes interrupted jobs.
pub trait Resume: Send + Sync {
    /// What shows [`Self::check`] later that the job with this plan, [`Sealed::text`], was made here, and did not come along
    /// with a directory. It blocks.
    fn seal(&self, _job: &JobId, _plan: &[u8]) -> Option<String> {
        None
    }

    /// Whether a job can be resumed, by its plan and what its sessions have done. The error says why not.
    fn check(&self, job: &JobId, plan: &Sealed, history: &[TranscriptEntry]) -> Result<(), String>;

    /// Resumes a job, which is running, by [`RunningJob::plan`]. It must not wait for it.
    fn resume(&self, job: Arc<RunningJob>);
}

/// What a store does with interrupted jobs.
#[derive(Default)]
pub(super) struct Recovery {
    resume: OnceLock<Arc<dyn Resume>>,
    /// They are left to the next host.
    deferred: AtomicBool,
    /// Held by the one who reads a job that the index does not know: two that read the same one would both end it.
    reading: Mutex<()>,
    /// Held while a transcript is read, which takes many times its size.
    transcript: Mutex<()>,
}

impl Recovery {
    /// The first one stays: jobs may have been handed to it already.
    pub(super) fn set_resume(&self, resume: Arc<dyn Resume>) {
        let _ = self.resume.set(resume);
    }

    pub(super) fn defer(&self, deferred: bool) {
        self.deferred.store(deferred, Ordering::Relaxed);
    }

    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed)
    }

    pub(super) fn lock_reading(&self) -> MutexGuard<'_, ()> {
        lock(&self.reading)
    }

    /// The seal of a new job's plan.
    pub(super) fn seal(&self, job: &JobId, plan: &[u8]) -> Option<String> {
        self.resume.get()?.seal(job, plan)
    }
}

/// Why a job is not resumed.
enum NotResumed {
    /// It cannot be; it has failed.
    Refused(String),
    /// The system did not let the host look; it is tried again.
    Unknown(io::Error),
}

/// What becomes of an interrupted job.
pub(super) enum Recovered {
    /// It has ended.
    Ended(Box<EndedJob>),
    /// It is running again.
    Resumed(Arc<RunningJob>),
}

impl Recovered {
    pub(super) fn status(&self) -> JobStatus {
        match self {
            Self::Ended(ended) => ended.meta.status,
            Self::Resumed(_) => JobStatus::Running,
        }
    }
}

impl JobStore {
    /// Recovers all interrupted jobs, also those that [`Self::defer_recovery`] left out. It blocks until that is done.
    ///
    /// # Errors
    /// Where `jobs/` cannot be read.
    pub fn recover(&self) -> io::Result<()> {
        self.recovery.defer(false);
        // It waits for a load that is under way.
        self.load();
        self.ids_on_disk()?.iter().for_each(|id| self.compare(id));
        Ok(())
    }

    /// Puts a recovered job into the index, or hands it over to be resumed; or notes why it is no job.
    pub(super) fn insert_recovered(&self, id: &JobId, recovered: Result<Recovered, String>) {
        match recovered {
            Ok(Recovered::Resumed(job)) => {
                self.unreadable.remove(id);
                if let Some(resume) = self.recovery.resume.get() {
                    resume.resume(job);
                }
            }
            Ok(Recovered::Ended(ended)) => {
                let end = end_of(&ended.meta);
                self.insert_read(id, Ok(*ended));
                self.context.publish(id, || end);
            }
            Err(reason) => self.insert_read(id, Err(reason)),
        }
    }

    /// Completes an interrupted job whose result was handed over, else resumes it, else fails it. What cannot be known for
    /// now is an error, and changes nothing; what cannot be stored for now is kept, and stored later. Only a job that
    /// `was_at_load` can have been interrupted: what somebody put there since is not run.
    pub(super) fn recover_job(&self, meta: &Meta, was_at_load: bool) -> Result<Recovered, String> {
        let (id, limits) = (&meta.job_id, &self.context.limits());
        let unknown = |e: io::Error| format!("cannot tell whether it has a result: {e}");
        let dir = self.job_dir(id).map_err(unknown)?;
        let (status, error, unsaved) = match record::find_result(&dir, id, limits).map_err(unknown)? {
            FoundResult::Submission => (JobStatus::Completed, None, Some(UnsavedResult::Submission)),
            FoundResult::Result => (JobStatus::Completed, None, None),
            FoundResult::Nothing => match self.resume_job(meta, &dir, was_at_load) {
                Ok(job) => return Ok(Recovered::Resumed(job)),
                Err(NotResumed::Unknown(e)) => return Err(format!("cannot tell whether it can be resumed: {e}")),
                Err(NotResumed::Refused(why)) => (JobStatus::Failed, Some(interrupted(&why)), None),
            },
        };
        let meta = Meta { usage: self.usage_so_far(&dir), ..meta.clone() };
        let meta = record::ended(&meta, status, error, self.context.now());
        let stored = record::store_end(&dir, &meta, unsaved.as_ref(), limits);
        let stored = stored
            .inspect_err(|e| tracing::warn!(job = %id, "cannot store the end of the job, trying again later: {e}"))
            .ok();
        if let Err(e) = remove_temporaries(&dir) {
            tracing::warn!(job = %id, "cannot remove temporary files: {e}");
        }
        tracing::info!(job = %id, %status, "ended job interrupted by host stop");
        let unsaved = unsaved.filter(|_| stored.is_none());
        Ok(Recovered::Ended(Box::new(EndedJob { unsaved, ..EndedJob::new(meta, stored) })))
    }

    /// Starts an interrupted job again.
    fn resume_job(&self, meta: &Meta, dir: &Dir, was_at_load: bool) -> Result<Arc<RunningJob>, NotResumed> {
        let limits = &self.context.limits();
        let refused = |why: &str| NotResumed::Refused(why.to_owned());
        let resume = self.recovery.resume.get().ok_or_else(|| refused("this host resumes no jobs"))?;
        if !was_at_load {
            return Err(refused("it appeared while another host was running, so it was not interrupted"));
        }
        if meta.resumes >= limits.resumes {
            let why = format!("it was resumed {} times, as often as limits.resumes allows", meta.resumes);
            return Err(NotResumed::Refused(why));
        }
        let unreadable = |file: &'static str| {
            move |e: io::Error| match record::is_transient(&e) {
                true => NotResumed::Unknown(e),
                false => NotResumed::Refused(format!("its {file} cannot be read: {e}")),
            }
        };
        let plan = record::read_plan(dir, limits).map_err(unreadable(PLAN))?;
        let plan = plan.ok_or_else(|| refused("it has no plan.json"))?;
        // Counted first: a job that crashes its host does so no more often than is allowed.
        let mut meta = Meta { resumes: meta.resumes.saturating_add(1), ..meta.clone() };
        remove_temporaries(dir).map_err(unreadable(META))?;
        record::store_meta(dir, &meta).map_err(unreadable(META))?;
        {
            let _one = lock(&self.recovery.transcript);
            let history = record::read_transcript(dir, limits).map_err(unreadable(TRANSCRIPT))?.unwrap_or_default();
            meta.usage = (!history.is_empty()).then(|| transcript::usage(&history, plan.accepted.agent.clone()));
            let history: Vec<TranscriptEntry> = history.into_iter().map(|line| line.entry).collect();
            resume.check(&meta.job_id, &plan, &history).map_err(NotResumed::Refused)?;
        }
        let job = RunningJob::resumed(self.context.clone(), self.itself.clone(), &meta, dir);
        let job = Arc::new(job.map_err(unreadable(META))?);
        self.insert_running(&job, &meta, || News::JobResumed { description: meta.description.clone() });
        tracing::info!(job = %meta.job_id, "resuming job interrupted by host stop");
        Ok(job)
    }

    /// What a job's sessions used before its host stopped, by its transcript.
    fn usage_so_far(&self, dir: &Dir) -> Option<JobUsage> {
        let limits = &self.context.limits();
        let plan = record::read_plan(dir, limits).ok().flatten()?;
        let _one = lock(&self.recovery.transcript);
        let history = record::read_transcript(dir, limits).ok().flatten()?;
        Some(transcript::usage(&history, plan.accepted.agent))
    }

    /// Puts a running job into the index, and publishes that it began.
    pub(super) fn insert_running(&self, job: &Arc<RunningJob>, meta: &Meta, begin: impl FnOnce() -> News) {
        let mut index = self.catalog.write();
        index.unclaim(&meta.job_id);
        index.insert(Entry::running(job.clone()), &meta.started_at);
        // Before anybody else can do anything to it.
        self.context.publish(&meta.job_id, begin);
        drop(index);
        self.context.changed();
    }
}

/// The error of an interrupted job that is not resumed.
pub fn interrupted(why: &str) -> String {
    format!("the host stopped while the job was running, and nothing was submitted; {why}; dispatch the task again")
}
