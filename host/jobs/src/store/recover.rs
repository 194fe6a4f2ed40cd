//! Recovers jobs that were running when their host stopped (REQ-WD-47): each is completed, resumed or failed.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cap_std::fs::Dir;
use futures::executor::block_on;
use guild_contract::{EventDetail, JobId, JobStatus, JobUsage, Meta, Resumption};
use guild_fs::durable::remove_temporaries;
use guild_session::{
    activation::Plan,
    transcript::{self, Entry as TranscriptEntry},
};

use super::{
    JobStore,
    index::{Entry, State},
};
use crate::{
    Sealed,
    files::{
        journal::Position,
        record::{self, FoundResult, HELD_BACK, META, PLAN, TRANSCRIPT, UnsavedResult},
    },
    ledger::{Change, Hold},
    running::{
        RunningJob,
        ended::{EndedJob, end_of},
    },
    sync::lock,
};

/// The size from which reading a transcript is recorded first, since a host may not have the memory for a longer one.
const LONG_BYTES: u64 = 256 * 1024;

/// Resumes interrupted jobs.
pub trait Resume: Send + Sync {
    /// A seal, by which [`Self::check`] knows later that the job with this plan, [`Sealed::text`], was made here and
    /// not copied with a directory. It blocks.
    fn seal(&self, _job: &JobId, _plan: &[u8]) -> Option<String> {
        None
    }

    /// Checks whether a job can be resumed, by its plan and what its sessions have done. The error tells why not.
    fn check(&self, job: &JobId, plan: &Sealed, history: &[TranscriptEntry]) -> Result<(), String>;

    /// Resumes a job by its [`RunningJob::plan`]. It must not wait for the job.
    fn resume(&self, job: Arc<RunningJob>);
}

/// The state of recovering interrupted jobs.
#[derive(Default)]
pub(super) struct Recovery {
    /// The first resumer stays, since it may have received jobs already.
    pub(super) resume: OnceLock<Arc<dyn Resume>>,
    /// Whether they are left to the next host.
    pub(super) is_deferred: AtomicBool,
    /// Held while a job is read that is not in the index, since two threads that read the same job would both end it.
    pub(super) reading: Mutex<()>,
    /// Held while a transcript is read, which takes many times its size.
    transcript: Mutex<()>,
}

/// An interrupted job, after its recovery.
pub(super) enum Recovered {
    /// It is in the index, and goes on.
    Resumed(Arc<RunningJob>),
    /// It has ended, and is not in the index yet.
    Ended(Box<EndedJob>),
}

impl Recovered {
    /// The job's status now.
    pub(super) fn status(&self) -> JobStatus {
        match self {
            Self::Resumed(job) => job.status(),
            Self::Ended(ended) => ended.meta.status,
        }
    }
}

/// The reason that a job is not resumed.
enum NotResumed {
    /// The job cannot be resumed, and fails.
    Refused(String),
    /// The job's files cannot be read for now, which is tried again.
    Unknown(io::Error),
}

impl JobStore {
    /// Recovers all interrupted jobs, also those that [`Self::defer_recovery`] left out. It blocks until that is done.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn recover(&self) -> io::Result<()> {
        self.recovery.is_deferred.store(false, Ordering::Relaxed);
        // This waits for a load under way.
        self.load();
        self.unknown_ids()?.iter().for_each(|id| self.compare(id));
        Ok(())
    }

    /// Adds a recovered job to the index and resumes it if it is running, or records the reason that it cannot be read.
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

    /// Completes an interrupted job that has a submitted result, else resumes it, else fails it. If its files cannot be
    /// read for now, that is an error and changes nothing; an end that cannot be stored for now is stored later. Only a
    /// job that `was_at_load` can have been interrupted: a directory that appeared since is not run.
    pub(super) fn recover_job(
        &self,
        meta: &Meta,
        was_at_load: bool,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Recovered, String> {
        let (id, limits) = (&meta.job_id, &self.context.limits());
        let unknown = |e: io::Error| format!("cannot tell whether it has a result: {e}");
        let dir = self.job_dir(id).map_err(unknown)?;
        let (status, error, unsaved) = match record::find_result(&dir, id, limits).map_err(unknown)? {
            FoundResult::Submission => (JobStatus::Completed, None, Some(UnsavedResult::Submission)),
            FoundResult::Result => (JobStatus::Completed, None, None),
            FoundResult::Nothing => match self.resume_job(meta, &dir, was_at_load, hold.clone()) {
                Ok(job) => return Ok(Recovered::Resumed(job)),
                Err(NotResumed::Unknown(e)) => return Err(format!("cannot tell whether it can be resumed: {e}")),
                Err(NotResumed::Refused(why)) => (JobStatus::Failed, Some(interrupted(&why)), None),
            },
        };
        let mut meta = record::ended(meta.clone(), status, error, self.context.now());
        let stored = record::store_end(&dir, &meta, unsaved.as_ref(), limits);
        let mut stored = stored
            .inspect_err(|e| tracing::warn!(job = %id, "cannot store the end of the job, trying again later: {e}"))
            .ok();
        // Its end is stored first: if the host ends while it reads the job's usage, the next host does not read it
        // again.
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
        if let Some(hold) = hold {
            self.end_recovered(&hold, &dir, &meta)?;
        }
        let unsaved = unsaved.filter(|_| stored.is_none());
        Ok(Recovered::Ended(Box::new(EndedJob { unsaved, ..EndedJob::new(meta, stored) })))
    }

    /// Makes an interrupted job a running one.
    fn resume_job(
        &self,
        meta: &Meta,
        dir: &Dir,
        was_at_load: bool,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Arc<RunningJob>, NotResumed> {
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
        // If a host ended while it resumed this job alone, this job is the suspected cause.
        let is_suspect = matches!(meta.resumption, Some(Resumption::Alone | Resumption::HeldBack));
        // A conversation runs nothing until the user sends a message, so a restart does not count as its crash.
        let counts = !matches!(plan.accepted.plan, Plan::Conversation(_));
        let is_interrupted = hold.as_ref().is_none_or(|hold| hold.is_interrupted());
        if counts && is_interrupted && !is_suspect && meta.resumes >= limits.resumes {
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
            // Its transcript is read after its release, since reading it may end the host. Its usage was recorded.
            Some(Resumption::HeldBack) => resume.check(&meta.job_id, &plan, &[]).map_err(NotResumed::Refused)?,
            Some(Resumption::Alone) => {
                meta.resumption = Some(Resumption::HeldBack);
                meta.usage = None;
                store_record(dir, &meta, hold.as_ref()).map_err(unreadable(META))?;
                read(&mut meta)?;
                note(dir, &meta, hold.as_ref());
            }
            _ if !counts || !is_long(dir) => read(&mut meta)?,
            _ => {
                // The transcript is read alone, and each end of a host meanwhile makes the job more suspect.
                let reading = before.map_or(Resumption::Together, |_| Resumption::Alone);
                note(dir, &Meta { resumption: Some(reading), usage: None, ..meta.clone() }, hold.as_ref());
                let outcome = read(&mut meta);
                note(dir, &Meta { usage: None, ..meta.clone() }, hold.as_ref());
                outcome?;
            }
        }
        drop(one);
        let description = meta.description.clone();
        let job = RunningJob::resumed(self.context.clone(), self.itself.clone(), meta, dir, hold);
        let job = Arc::new(job.map_err(unreadable(META))?);
        let begin = match is_suspect {
            true => EventDetail::JobSummary { summary: job.snapshot().summary },
            false => EventDetail::JobResumed { description },
        };
        if !self.insert_running(&job, Some(begin)) {
            return Err(NotResumed::Unknown(io::Error::other("it has ended meanwhile")));
        }
        if is_suspect {
            job.log(HELD_BACK);
            tracing::warn!(job = %job.id(), "{HELD_BACK}; `guild resume {}` lets it on", job.id());
        } else if is_interrupted {
            tracing::info!(job = %job.id(), "resuming job interrupted by host stop");
        }
        Ok(job)
    }

    /// The usage of a job's sessions before its host stopped, from its transcript.
    fn usage_so_far(&self, dir: &Dir) -> Option<JobUsage> {
        let limits = &self.context.limits();
        let plan = record::read_plan(dir, limits).ok().flatten()?;
        let _one = lock(&self.recovery.transcript);
        let history = record::read_transcript(dir, limits, Position::default()).ok().flatten()?;
        Some(transcript::usage(&history, plan.accepted.agent))
    }

    /// Adds a running job to the index, and publishes `begin`, unless the ledger has that event already. False if the ledger
    /// has told of the job's end while this host took it.
    pub(super) fn insert_running(&self, job: &Arc<RunningJob>, begin: Option<EventDetail>) -> bool {
        let mut index = self.catalog.write();
        match index.get(job.id().as_str()) {
            // Those who follow the job have its entry.
            Some(entry) => {
                let mut state = lock(&entry.state);
                if state.with_meta(|meta| meta.status != JobStatus::Running) {
                    return false;
                }
                *state = State::Running(job.clone());
            }
            // It was deleted meanwhile.
            None if self.context.ledger.is_some() && !index.knows(job.id()) => return false,
            None => index.insert(Entry::new(State::Running(job.clone()))),
        }
        let kept = index.unclaim(job.id());
        // The event is published while the index is locked, so that no event of the job precedes it.
        if let Some(begin) = begin {
            job.publish(|| begin);
        }
        drop(index);
        self.context.changed();
        if let Some(news) = kept {
            self.hear(job.id(), news);
        }
        true
    }
}

/// Whether the transcript of a job is so long that reading it may end a host.
fn is_long(dir: &Dir) -> bool {
    dir.symlink_metadata(TRANSCRIPT).is_ok_and(|transcript| transcript.len() >= LONG_BYTES)
}

/// Stores the record of a job that is not running yet, for other hosts too.
fn store_record(dir: &Dir, meta: &Meta, hold: Option<&Arc<dyn Hold>>) -> io::Result<()> {
    record::store_meta(dir, meta)?;
    if let Some(hold) = hold {
        hold.record(Change::Put(META.to_owned(), record::pretty(meta)?));
        block_on(hold.settled()).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Like [`store_record`]. If that fails and the host ends now, the next host suspects the job less or more than it
/// should.
fn note(dir: &Dir, meta: &Meta, hold: Option<&Arc<dyn Hold>>) {
    if let Err(e) = store_record(dir, meta, hold) {
        tracing::warn!(job = %meta.job_id, "cannot store that the job is read: {e}");
    }
}

/// The error of an interrupted job that is not resumed.
pub fn interrupted(why: &str) -> String {
    format!("the host stopped while the job was running, and nothing was submitted; {why}; dispatch the task again")
}
