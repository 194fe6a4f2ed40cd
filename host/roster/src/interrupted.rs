//! Jobs that were interrupted by the end of a host: whether they are resumed.
//!
//! A member's directory can bring such jobs along, as it is copied to be installed, and their plans say what is run. So one
//! is resumed only where its plan has the [seal](guild_trust::seal) that a host gave it when the job was dispatched, where this very
//! directory was pinned before this host loaded it, and once its component is in service. Until that is known the job is
//! shown as running, can be cancelled, and nothing of it runs.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use guild_contract::JobId;
use guild_jobs::{JobStore, Resume, RunningJob, Sealed, interrupted};
use guild_session::transcript::Entry;

/// Why jobs that the directory of a new member brought along are not resumed.
const NEW: &str = "the member is new to this host (guild.lock did not have its directory as it is when the host started), \
                   and what a new directory brings along is not resumed";

/// Resumes jobs that were interrupted by the end of a host, or fails them.
pub(crate) struct InterruptedJobs {
    /// Who runs the jobs of the member's directory now.
    runner: Mutex<Option<Arc<dyn Resume>>>,
    store: Weak<JobStore>,
    decision: Mutex<Decision>,
}

/// Whether interrupted jobs are resumed.
enum Decision {
    /// It is not decided yet. These wait for it.
    Open(Vec<Arc<RunningJob>>),
    Resume,
    /// They fail; the reason.
    Fail(String),
}

impl InterruptedJobs {
    /// For the jobs of a store.
    pub(crate) fn new(store: &Arc<JobStore>) -> Self {
        let decision = Mutex::new(Decision::Open(Vec::new()));
        Self { runner: Mutex::default(), store: Arc::downgrade(store), decision }
    }

    /// From now on jobs are resumed by this one.
    pub(crate) fn set_runner(&self, runner: Arc<dyn Resume>) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = Some(runner);
    }

    fn runner(&self) -> Option<Arc<dyn Resume>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn decision(&self) -> MutexGuard<'_, Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether they are resumed; later decisions have no effect. It blocks on storing the end of those that are not.
    pub(crate) fn decide(&self, verdict: Result<(), String>) {
        let waiting = {
            let mut decision = self.decision();
            let Decision::Open(waiting) = &mut *decision else { return };
            let waiting = mem::take(waiting);
            *decision = verdict.map_or_else(Decision::Fail, |()| Decision::Resume);
            waiting
        };
        waiting.into_iter().for_each(|job| self.resume(job));
    }

    /// The member is new to this host: all that its directory brought along is ended when this returns. Only then may it be
    /// pinned, so that no later host resumes them. It blocks.
    ///
    /// # Errors
    /// Where the jobs cannot be read.
    pub(crate) fn end_all_of_a_new_member(&self) -> io::Result<()> {
        self.decide(Err(NEW.to_owned()));
        self.store.upgrade().map_or(Ok(()), |store| store.recover())
    }
}

impl Resume for InterruptedJobs {
    fn seal(&self, job: &JobId, plan: &[u8]) -> Option<String> {
        self.runner()?.seal(job, plan)
    }

    fn check(&self, job: &JobId, plan: &Sealed, history: &[Entry]) -> Result<(), String> {
        if let Decision::Fail(why) = &*self.decision() {
            return Err(why.clone());
        }
        self.runner().ok_or("the host is stopping")?.check(job, plan, history)
    }

    fn resume(&self, job: Arc<RunningJob>) {
        let why = match &mut *self.decision() {
            Decision::Open(waiting) => return waiting.push(job),
            Decision::Resume => None,
            Decision::Fail(why) => Some(why.clone()),
        };
        // Somebody may have cancelled it while it waited, and then it has ended.
        if job.cancelled().is_cancelled() {
            return;
        }
        match (why, self.runner()) {
            (None, Some(runner)) => runner.resume(job),
            (None, None) => {}
            (Some(why), _) => fail(&job, &why),
        }
    }
}

/// Ends a job that is not resumed. It blocks.
pub(crate) fn fail(job: &RunningJob, why: &str) {
    if let Err(e) = job.fail(&interrupted(why)) {
        tracing::error!(job = %job.id(), "the end of the job could not be stored: {e}");
    }
}
