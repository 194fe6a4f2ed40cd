//! Recovers jobs that were running when their host stopped (REQ-WD-47): each is completed, resumed or failed.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cap_std::fs::Dir;
use guild_contract::{EventDetail, JobId, JobStatus, JobUsage, Meta, Resumption};
use guild_fs::durable::remove_temporaries;
use guild_session::{
    activation::Plan,
    transcript::{self, Entry as TranscriptEntry},
};

use super::{
    JobStore, end_of,
    index::{Entry, State},
};
use crate::{
    Sealed,
    files::{
        journal::Position,
        record::{self, FoundResult, HELD_BACK, META, PLAN, TRANSCRIPT, UnsavedResult},
    },
    running::{RunningJob, ended::EndedJob},
    sync::lock,
};

/// From that size on, whoever reads a transcript notes it first: a host has memory for any shorter one.
const LONG_BYTES: u64 = 256 * 1024;

/// Resumes interrupted jobs.
pub trait Resume: Send + Sync {
    /// A seal, by which [`Self::check`] knows later that the job with this plan, [`Sealed::text`], was made here and not copied
    /// with a directory. It blocks.
    fn seal(&self, _job: &JobId, _plan: &[u8]) -> Option<String> {
        None
    }

    /// Checks whether a job can be resumed, by its plan and what its sessions have done. The error says why not.
    fn check(&self, job: &JobId, plan: &Sealed, history: &[TranscriptEntry]) -> Result<(), String>;

    /// Resumes a job by its [`RunningJob::plan`]. It must not wait for the job.
    fn resume(&self, job: Arc<RunningJob>);
}

/// How a store recovers interrupted jobs.
#[derive(Default)]
pub(super) struct Recovery {
    /// The first one stays: it may have been given jobs already.
    pub(super) resume: OnceLock<Arc<dyn Resume>>,
    /// Whether they are left to the next host.
    pub(super) is_deferred: AtomicBool,
    /// Held while a job is read that the index does not have: two threads that read the same job would both end it.
    pub(super) reading: Mutex<()>,
    /// Held while a transcript is read, which takes many times its size.
    transcript: Mutex<()>,
}

/// Why a job is not resumed.
enum NotResumed {
    /// It cannot be resumed, and fails.
    Refused(String),
    /// Its files cannot be read for now; it is tried again.
    Unknown(io::Error),
}

impl JobStore {
    /// Recovers all interrupted jobs, also those that [`Self::defer_recovery`] left out. It blocks until that is done.
    ///
    /// # Errors
    /// If `jobs/` cannot be read.
    pub fn recover(&self) -> io::Result<()> {
        self.recovery.is_deferred.store(false, Ordering::Relaxed);
        // Waits for a load that is under way.
        self.load();
        self.unknown_ids()?.iter().for_each(|id| self.compare(id));
        Ok(())
    }

    /// Puts a recovered job into the index and resumes it if it is running, or records why it cannot be read.
    pub(super) fn insert_recovered(&self, id: &JobId, recovered: Result<State, String>) {
        match recovered {
            Ok(State::Running(job)) => {
                self.unreadable.remove(id);
                if let Some(resume) = self.recovery.resume.get() {
                    resume.resume(job);
                }
            }
            Ok(State::Ended(ended)) => {
                let end = end_of(&ended.meta);
                self.insert_read(id, Ok(*ended));
                self.context.publish(id, || end);
            }
            Err(reason) => self.insert_read(id, Err(reason)),
        }
    }

    /// Completes an interrupted job that has a submitted result, else resumes it, else fails it. If its files cannot be read for
    /// now, that is an error and changes nothing; an end that cannot be stored for now is stored later. Only a job that
    /// `was_at_load` can have been interrupted: a directory that appeared since is not run.
    pub(super) fn recover_job(&self, meta: &Meta, was_at_load: bool) -> Result<State, String> {
        let (id, limits) = (&meta.job_id, &self.context.limits());
        let unknown = |e: io::Error| format!("cannot tell whether it has a result: {e}");
        let dir = self.job_dir(id).map_err(unknown)?;
        let (status, error, unsaved) = match record::find_result(&dir, id, limits).map_err(unknown)? {
            FoundResult::Submission => (JobStatus::Completed, None, Some(UnsavedResult::Submission)),
            FoundResult::Result => (JobStatus::Completed, None, None),
            FoundResult::Nothing => match self.resume_job(meta, &dir, was_at_load) {
                Ok(job) => return Ok(State::Running(job)),
                Err(NotResumed::Unknown(e)) => return Err(format!("cannot tell whether it can be resumed: {e}")),
                Err(NotResumed::Refused(why)) => (JobStatus::Failed, Some(interrupted(&why)), None),
            },
        };
        let mut meta = record::ended(meta.clone(), status, error, self.context.now());
        let stored = record::store_end(&dir, &meta, unsaved.as_ref(), limits);
        let mut stored = stored
            .inspect_err(|e| tracing::warn!(job = %id, "cannot store the end of the job, trying again later: {e}"))
            .ok();
        // Its end is stored first: if the host ends while it reads what the job used, the next one does not read it again.
        meta.usage = self.usage_so_far(&dir);
        if stored.is_some() && meta.usage.is_some() {
            match record::store_meta(&dir, &meta) {
                Ok(with_usage) => stored = Some(with_usage),
                Err(e) => tracing::warn!(job = %id, "cannot store what the job used: {e}"),
            }
        }
        if let Err(e) = remove_temporaries(&dir) {
            tracing::warn!(job = %id, "cannot remove temporary files: {e}");
        }
        tracing::info!(job = %id, %status, "ended job interrupted by host stop");
        let unsaved = unsaved.filter(|_| stored.is_none());
        Ok(State::Ended(Box::new(EndedJob { unsaved, ..EndedJob::new(meta, stored) })))
    }

    /// Makes an interrupted job a running one.
    fn resume_job(&self, meta: &Meta, dir: &Dir, was_at_load: bool) -> Result<Arc<RunningJob>, NotResumed> {
        let limits = &self.context.limits();
        let refused = |why: &str| NotResumed::Refused(why.to_owned());
        let resume = self.recovery.resume.get().ok_or_else(|| refused("this host resumes no jobs"))?;
        if !was_at_load {
            return Err(refused("it appeared while another host was running, so it was not interrupted"));
        }
        let unreadable = |file: &'static str| {
            move |e: io::Error| match record::is_transient(&e) {
                true => NotResumed::Unknown(e),
                false => NotResumed::Refused(format!("its {file} cannot be read: {e}")),
            }
        };
        let plan = record::read_plan(dir, limits).map_err(unreadable(PLAN))?;
        let plan = plan.ok_or_else(|| refused("it has no plan.json"))?;
        // A host that ended while it resumed this job alone was ended by this job, as far as can be told.
        let is_suspect = matches!(meta.resumption, Some(Resumption::Alone | Resumption::HeldBack));
        // A conversation runs nothing until the user says something, so a restart does not count as a crash of it.
        let counts = !matches!(plan.accepted.plan, Plan::Conversation(_));
        if counts && !is_suspect && meta.resumes >= limits.resumes {
            let why = format!("it was resumed {} times, as often as limits.resumes allows", meta.resumes);
            return Err(NotResumed::Refused(why));
        }
        let mut meta = meta.clone();
        remove_temporaries(dir).map_err(unreadable(META))?;
        let read = |meta: &mut Meta| -> Result<(), NotResumed> {
            let history = record::read_transcript(dir, limits, Position::default())
                .map_err(unreadable(TRANSCRIPT))?
                .unwrap_or_default();
            meta.usage = (!history.is_empty()).then(|| transcript::usage(&history, plan.accepted.agent.clone()));
            let history: Vec<TranscriptEntry> = history.into_iter().map(|line| line.entry).collect();
            resume.check(&meta.job_id, &plan, &history).map_err(NotResumed::Refused)
        };
        let one = lock(&self.recovery.transcript);
        let before = meta.resumption;
        match before {
            // Its transcript is read once it is let on: that may be what ends the host. What it used was noted.
            Some(Resumption::HeldBack) => resume.check(&meta.job_id, &plan, &[]).map_err(NotResumed::Refused)?,
            Some(Resumption::Alone) => {
                meta.resumption = Some(Resumption::HeldBack);
                meta.usage = None;
                record::store_meta(dir, &meta).map_err(unreadable(META))?;
                read(&mut meta)?;
                note(dir, &meta);
            }
            _ if !counts || !is_long(dir) => read(&mut meta)?,
            _ => {
                // It is read alone, and is more of a suspect the more often a host ended meanwhile.
                let reading = before.map_or(Resumption::Together, |_| Resumption::Alone);
                note(dir, &Meta { resumption: Some(reading), usage: None, ..meta.clone() });
                let outcome = read(&mut meta);
                note(dir, &Meta { usage: None, ..meta.clone() });
                outcome?;
            }
        }
        drop(one);
        let description = meta.description.clone();
        let job = RunningJob::resumed(self.context.clone(), self.itself.clone(), meta, dir);
        let job = Arc::new(job.map_err(unreadable(META))?);
        self.insert_running(&job, || match is_suspect {
            true => EventDetail::JobSummary { summary: job.snapshot().summary },
            false => EventDetail::JobResumed { description },
        });
        if is_suspect {
            job.log(HELD_BACK);
            tracing::warn!(job = %job.id(), "{HELD_BACK}; `guild resume {}` lets it on", job.id());
        } else {
            tracing::info!(job = %job.id(), "resuming job interrupted by host stop");
        }
        Ok(job)
    }

    /// What a job's sessions used before its host stopped, by its transcript.
    fn usage_so_far(&self, dir: &Dir) -> Option<JobUsage> {
        let limits = &self.context.limits();
        let plan = record::read_plan(dir, limits).ok().flatten()?;
        let _one = lock(&self.recovery.transcript);
        let history = record::read_transcript(dir, limits, Position::default()).ok().flatten()?;
        Some(transcript::usage(&history, plan.accepted.agent))
    }

    /// Puts a running job into the index, and publishes `begin`.
    pub(super) fn insert_running(&self, job: &Arc<RunningJob>, begin: impl FnOnce() -> EventDetail) {
        let mut index = self.catalog.write();
        index.unclaim(job.id());
        index.insert(Entry::new(State::Running(job.clone())));
        // While the index is locked, so that no event of the job precedes this one.
        self.context.publish(job.id(), begin);
    }
}

/// Whether the transcript of a job is so long that reading it can be what ends a host.
fn is_long(dir: &Dir) -> bool {
    dir.symlink_metadata(TRANSCRIPT).is_ok_and(|transcript| transcript.len() >= LONG_BYTES)
}

/// Stores the record of a job that is not running yet. Where that fails, a host that ends now suspects it of less, or of more.
fn note(dir: &Dir, meta: &Meta) {
    if let Err(e) = record::store_meta(dir, meta) {
        tracing::warn!(job = %meta.job_id, "cannot store that the job is read: {e}");
    }
}

/// The error of an interrupted job that is not resumed.
pub fn interrupted(why: &str) -> String {
    format!("the host stopped while the job was running, and nothing was submitted; {why}; dispatch the task again")
}
