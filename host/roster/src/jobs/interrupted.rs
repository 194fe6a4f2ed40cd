//! Decides whether jobs that the end of a host interrupted are resumed.
//!
//! A member's directory can contain such jobs when it is copied to be installed, and their plans determine the work. So
//! a job is resumed only if its plan has the [seal](guild_trust::seal) that a host gave it at its dispatch, if this
//! very directory had a pin before this host loaded it, and once its component is in service. Until that is known the
//! job is shown as running and can be cancelled, but does not run. If the component cannot be in service, the job
//! fails; the job of a meeting, which runs nothing until the user speaks, waits until it can.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use guild_contract::{JobId, Resumption};
use guild_jobs::{JobStore, Resume, RunningJob, Sealed, StoreError, interrupted};
use guild_session::{activation::Plan, transcript::Entry};

/// The reason that jobs in the directory of a new member are not resumed.
const NEW: &str = "the member is new to this host (guild.lock did not have its directory as it is when the host started), \
                   and what a new directory brings along is not resumed";

/// Resumes jobs that were interrupted by the end of a host, or fails them.
pub(crate) struct InterruptedJobs {
    /// The present runner of the jobs of the member's directory.
    runner: Mutex<Option<Arc<dyn Resume>>>,
    store: Weak<JobStore>,
    /// Whether the hosts of a cluster have the jobs.
    is_shared: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    decision: Decision,
    waiting: Vec<Arc<RunningJob>>,
    /// The jobs that only [`InterruptedJobs::let_on`] resumes. The store has them until they end, for example by a
    /// cancellation.
    held_back: Vec<Weak<RunningJob>>,
    /// Whether the host is about to stop, and gives all of them back.
    is_stopping: bool,
}

impl State {
    /// Removes this job, if it is there, and ended jobs.
    fn take_held_back(&mut self, job: &Arc<RunningJob>) -> bool {
        let mut is_there = false;
        self.held_back.retain(|held| {
            let is_it = held.as_ptr() == Arc::as_ptr(job);
            is_there |= is_it;
            !is_it && held.strong_count() > 0
        });
        is_there
    }
}

/// Whether interrupted jobs are resumed.
#[derive(Default)]
enum Decision {
    /// The decision is open, and the jobs wait for it.
    #[default]
    Open,
    Resume,
    /// The component is not in service, for this reason: the jobs fail, and the jobs of meetings wait.
    NotInService(String),
    /// The member is new, so the jobs fail.
    New,
}

impl Decision {
    /// The reason that a job fails, if it does.
    fn fails(&self, is_meeting: impl FnOnce() -> bool) -> Option<String> {
        match self {
            Self::NotInService(why) if !is_meeting() => Some(why.clone()),
            Self::New => Some(NEW.to_owned()),
            Self::Open | Self::Resume | Self::NotInService(_) => None,
        }
    }
}

impl InterruptedJobs {
    /// For the jobs of a store, which hosts of a cluster may share.
    pub(crate) fn new(store: &Arc<JobStore>, is_shared: bool) -> Self {
        Self { runner: Mutex::default(), store: Arc::downgrade(store), is_shared, state: Mutex::default() }
    }

    /// Sets the runner that resumes jobs from now on.
    pub(crate) fn set_runner(&self, runner: Arc<dyn Resume>) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = Some(runner);
    }

    fn runner(&self) -> Option<Arc<dyn Resume>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether the jobs are resumed, by whether the component is in service. After they were resumed, later
    /// decisions have no effect. It blocks on storing the ends of failed jobs.
    pub(crate) fn decide(&self, in_service: Result<(), String>) {
        self.transition_to(in_service.map_or_else(Decision::NotInService, |()| Decision::Resume));
    }

    fn transition_to(&self, decision: Decision) {
        let waiting = {
            let mut state = self.state();
            if matches!(state.decision, Decision::Resume | Decision::New) {
                return;
            }
            state.decision = decision;
            mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|job| self.resume(job));
    }

    /// Releases a job that is held back, and resumes it. A job that waits for the component is resumed once that is in
    /// service. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is not held back, or its record cannot be written.
    pub(crate) fn let_on(&self, job: Arc<RunningJob>) -> Result<(), StoreError> {
        // `resume` reads the record with the state locked: it sees this release, or has listed the job as held back.
        job.let_on()?;
        let is_ready = self.state().take_held_back(&job);
        if is_ready {
            self.resume(job);
        }
        Ok(())
    }

    /// Gives the jobs that wait here, and those that are held back, to the other hosts of the cluster. It blocks.
    pub(crate) fn give_back(&self) {
        let (waiting, held_back) = {
            let mut state = self.state();
            state.is_stopping = true;
            (mem::take(&mut state.waiting), mem::take(&mut state.held_back))
        };
        let Some(store) = self.store.upgrade() else { return };
        let held_back = held_back.iter().filter_map(Weak::upgrade);
        waiting.into_iter().chain(held_back).for_each(|job| store.give_back(job.id()));
    }

    /// Ends all jobs in the directory of a member that is new to this host. The member may be pinned only after this,
    /// so that no later host resumes them. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the jobs cannot be read.
    pub(crate) fn end_all_of_a_new_member(&self) -> io::Result<()> {
        if self.is_shared {
            // They are in no directory: they come from the cluster's log, and have the seal of its key.
            return Ok(());
        }
        self.transition_to(Decision::New);
        self.store.upgrade().map_or(Ok(()), |store| store.recover())
    }
}

impl Resume for InterruptedJobs {
    fn seal(&self, job: &JobId, plan: &[u8]) -> Option<String> {
        self.runner()?.seal(job, plan)
    }

    fn check(&self, job: &JobId, plan: &Sealed, history: &[Entry]) -> Result<(), String> {
        if let Some(why) = self.state().decision.fails(|| matches!(plan.accepted.plan, Plan::Conversation(_))) {
            return Err(why);
        }
        self.runner().ok_or("the host is stopping")?.check(job, plan, history)
    }

    fn resume(&self, job: Arc<RunningJob>) {
        // A plan that cannot be read now is read again when the job is resumed.
        let is_meeting = || job.plan().map_or(true, |plan| matches!(plan.accepted.plan, Plan::Conversation(_)));
        let why = {
            let mut state = self.state();
            if state.is_stopping {
                drop(state);
                return self.store.upgrade().map_or((), |store| store.give_back(job.id()));
            }
            match (state.decision.fails(is_meeting), &state.decision) {
                (None, Decision::Open | Decision::NotInService(_)) => return state.waiting.push(job),
                (None, _) if job.resumption() == Some(Resumption::HeldBack) => {
                    state.take_held_back(&job);
                    return state.held_back.push(Arc::downgrade(&job));
                }
                (why, _) => why,
            }
        };
        // A job that was cancelled while it waited has ended.
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
    match job.fail(&interrupted(why)) {
        // Another host has ended the job, or carries it out.
        Ok(_) | Err(StoreError::Lost) => {}
        Err(e) => tracing::error!(job = %job.id(), "the end of the job could not be stored: {e}"),
    }
}
