//! Jobs that a host left running: whether they go on, and what of.
//!
//! A member's directory can bring such jobs along, as it is copied to be installed, and their plans say what is run. So one
//! goes on only where its plan has the [seal](guild_trust::seal) that a host gave it when the job was dispatched, where this very
//! directory was pinned before this host loaded it, and once its component is in service. Until that is known the job is
//! shown as running, can be cancelled, and nothing of it runs.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use guild_contract::JobId;
use guild_jobs::{JobStore, Resume, RunningJob, Sealed, interrupted};
use guild_session::transcript::Entry;

/// Why nothing goes on that the directory of a new member brought along.
const NEW: &str = "the member is new to this host (guild.lock did not have its directory as it is when the host started), \
                   and what a new directory brings along does not go on";

/// Goes on with jobs that a host left running, or fails them.
pub(crate) struct InterruptedJobs {
    /// Who runs the jobs of the member's directory now.
    runner: Mutex<Option<Arc<dyn Resume>>>,
    store: Weak<JobStore>,
    left: Mutex<Left>,
}

/// What becomes of jobs that could go on.
enum Left {
    /// Nobody has decided yet. These wait for it.
    Open(Vec<Arc<RunningJob>>),
    /// They go on.
    GoOn,
    /// They have failed; the reason.
    Fail(String),
}

impl InterruptedJobs {
    /// For the jobs of a store.
    pub(crate) fn new(store: &Arc<JobStore>) -> Self {
        let left = Mutex::new(Left::Open(Vec::new()));
        Self { runner: Mutex::default(), store: Arc::downgrade(store), left }
    }

    /// From now on jobs are resumed by this one.
    pub(crate) fn set_runner(&self, runner: Arc<dyn Resume>) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = Some(runner);
    }

    fn runner(&self) -> Option<Arc<dyn Resume>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether they go on; the first to say so decides. It blocks on storing the end of those that do not.
    pub(crate) fn decide(&self, verdict: Result<(), String>) {
        let waiting = {
            let mut left = self.left();
            let Left::Open(waiting) = &mut *left else { return };
            let waiting = mem::take(waiting);
            *left = verdict.map_or_else(Left::Fail, |()| Left::GoOn);
            waiting
        };
        waiting.into_iter().for_each(|job| self.resume(job));
    }

    /// The member is new to this host: all that its directory brought along is ended when this returns. Only then may it be
    /// pinned, so that a later host does not go on with it. It blocks.
    ///
    /// # Errors
    /// Where nobody knows what there is.
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
        if let Left::Fail(why) = &*self.left() {
            return Err(why.clone());
        }
        self.runner().ok_or("the host is stopping")?.check(job, plan, history)
    }

    fn resume(&self, job: Arc<RunningJob>) {
        let why = match &mut *self.left() {
            Left::Open(waiting) => return waiting.push(job),
            Left::GoOn => None,
            Left::Fail(why) => Some(why.clone()),
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

/// Ends a job that does not go on. It blocks.
pub(crate) fn fail(job: &RunningJob, why: &str) {
    if let Err(e) = job.fail(&interrupted(why)) {
        tracing::error!(job = %job.id(), "the end of the job could not be stored: {e}");
    }
}
