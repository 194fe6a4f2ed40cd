//! Decides whether jobs that the end of a host interrupted are resumed.
//!
//! A member's directory can bring such jobs along, as it is copied to be installed, and their plans say what is run. So one
//! is resumed only where its plan has the [seal](guild_trust::seal) that a host gave it when the job was dispatched, where this very
//! directory had a pin before this host loaded it, and once its component is in service. Until that is known the job is
//! shown as running, can be cancelled, and nothing of it runs. Where the component cannot be in service, it fails; that of a
//! meeting, of which nothing runs until somebody speaks, waits until it can.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use guild_contract::{JobId, Resumption};
use guild_jobs::{JobStore, Resume, RunningJob, Sealed, StoreError, interrupted};
use guild_session::{activation::Plan, transcript::Entry};

/// Why jobs that the directory of a new member brought along are not resumed.
const NEW: &str = "the member is new to this host (guild.lock did not have its directory as it is when the host started), \
                   and what a new directory brings along is not resumed";

/// Resumes jobs that were interrupted by the end of a host, or fails them.
pub(crate) struct InterruptedJobs {
    /// Who runs the jobs of the member's directory now.
    runner: Mutex<Option<Arc<dyn Resume>>>,
    store: Weak<JobStore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    decision: Decision,
    waiting: Vec<Arc<RunningJob>>,
    /// Those that nothing but [`InterruptedJobs::let_on`] resumes. The store has them until they end, as when they are cancelled.
    held_back: Vec<Weak<RunningJob>>,
}

impl State {
    /// Takes out the one that is this job, if it is there, and those that have ended.
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
    /// It is not decided yet, and they wait for it.
    #[default]
    Open,
    Resume,
    /// The component is not in service, for this reason: they fail, and those of meetings wait.
    NotInService(String),
    /// They fail, since the member is new.
    New,
}

impl Decision {
    /// Why a job fails, if it does.
    fn fails(&self, is_meeting: impl FnOnce() -> bool) -> Option<String> {
        match self {
            Self::NotInService(why) if !is_meeting() => Some(why.clone()),
            Self::New => Some(NEW.to_owned()),
            Self::Open | Self::Resume | Self::NotInService(_) => None,
        }
    }
}

impl InterruptedJobs {
    /// For the jobs of a store.
    pub(crate) fn new(store: &Arc<JobStore>) -> Self {
        Self { runner: Mutex::default(), store: Arc::downgrade(store), state: Mutex::default() }
    }

    /// From now on jobs are resumed by this one.
    pub(crate) fn set_runner(&self, runner: Arc<dyn Resume>) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = Some(runner);
    }

    fn runner(&self) -> Option<Arc<dyn Resume>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether they are resumed, by whether the component is in service. Once they are, later decisions have no effect.
    /// It blocks on storing the end of those that are not.
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

    /// Lets a job on that is held back, and resumes it; one that waits for the component is resumed with that. It blocks.
    ///
    /// # Errors
    /// Where it is not held back, or its record cannot be written.
    pub(crate) fn let_on(&self, job: Arc<RunningJob>) -> Result<(), StoreError> {
        let is_ready = {
            let mut state = self.state();
            job.let_on()?;
            state.take_held_back(&job)
        };
        if is_ready {
            self.resume(job);
        }
        Ok(())
    }

    /// The member is new to this host: all that its directory brought along is ended when this returns. Only then may it be
    /// pinned, so that no later host resumes them. It blocks.
    ///
    /// # Errors
    /// Where the jobs cannot be read.
    pub(crate) fn end_all_of_a_new_member(&self) -> io::Result<()> {
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
        // One that cannot be read now is looked at again by whoever resumes it.
        let is_meeting = || job.plan().map_or(true, |plan| matches!(plan.accepted.plan, Plan::Conversation(_)));
        let why = {
            let mut state = self.state();
            match (state.decision.fails(is_meeting), &state.decision) {
                (None, Decision::Open | Decision::NotInService(_)) => return state.waiting.push(job),
                (None, _) if job.resumption() == Some(Resumption::HeldBack) => {
                    state.take_held_back(&job);
                    return state.held_back.push(Arc::downgrade(&job));
                }
                (why, _) => why,
            }
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
