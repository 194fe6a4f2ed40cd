//! Which interrupted jobs are resumed at the same time, over all members of a host.
//!
//! A job can end the host that runs it, and would end each next one that resumes it. So what a resumed job is suspected of is
//! kept in its record: [`Resumption`] is stored before any of the job runs, and removed once it has run for
//! `limits.resume_trial_seconds`, or when the host stops cleanly. A host that finds it there was preceded by one that ended
//! soon after it had resumed the job.
//!
//! Jobs without such a mark are resumed together. One with a mark is resumed alone: it waits until no other resumed job is on
//! trial, and the next ones wait for it. If the host ends again meanwhile, that job alone is held back. A job that made a turn
//! alone is not held back, but stays a suspect until its trial is over. Jobs that are dispatched now wait for nothing.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guild_contract::{JobId, JobStatus, Resumption};
use guild_jobs::RunningJob;
use tokio::{
    sync::{OwnedRwLockWriteGuard, RwLock, watch},
    task::spawn_blocking,
    time::{Instant, sleep, timeout_at},
};

/// Between two tries to store that a job is resumed.
const AGAIN: Duration = Duration::from_secs(5);

/// The resumed jobs of a host.
#[derive(Default)]
pub(crate) struct Resumptions {
    /// Held by each resumed job during its trial, exclusively by a suspect.
    turns: Arc<RwLock<()>>,
    on_trial: Mutex<HashMap<JobId, Arc<RunningJob>>>,
}

/// A job's turn to be resumed, once there is a place for its session.
pub(crate) enum Turn {
    /// It holds up no suspect while it waits for that place.
    Together,
    /// Nobody else's turn comes until this job's trial is over.
    Alone(OwnedRwLockWriteGuard<()>),
}

/// The time in which a resumed job is watched.
pub(crate) struct Trial {
    resumptions: Arc<Resumptions>,
    how: Resumption,
    /// The job's share of the turns, or all of them.
    _turn: Box<dyn Send>,
}

impl Resumptions {
    /// Waits until a job may be resumed.
    pub(crate) async fn turn(&self, job: &RunningJob) -> Turn {
        match job.resumption() {
            None => {
                drop(self.turns.read().await);
                Turn::Together
            }
            Some(_) => Turn::Alone(self.turns.clone().write_owned().await),
        }
    }

    /// Uses a turn. `None` if a suspect's came first, so that the job has to wait for another.
    pub(crate) fn trial(self: &Arc<Self>, turn: Turn) -> Option<Trial> {
        let (how, turn): (_, Box<dyn Send>) = match turn {
            Turn::Together => (Resumption::Together, Box::new(self.turns.clone().try_read_owned().ok()?)),
            Turn::Alone(turn) => (Resumption::Alone, Box::new(turn)),
        };
        Some(Trial { resumptions: self.clone(), how, _turn: turn })
    }

    /// The host stops cleanly: no job is suspected of its end. It blocks.
    pub(crate) fn end(&self) {
        let on_trial: Vec<_> = self.on_trial().drain().collect();
        for (_, job) in on_trial {
            store(&job, None);
        }
    }

    fn on_trial(&self) -> MutexGuard<'_, HashMap<JobId, Arc<RunningJob>>> {
        self.on_trial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trial {
    /// Stores that the job is resumed now, before any of it runs, and watches it for that time, or until it ends.
    pub(crate) async fn begin(self, job: &Arc<RunningJob>, time: Duration) {
        let how = self.how;
        self.resumptions.on_trial().insert(job.id().clone(), job.clone());
        while let Err(e) = blocking(job, move |job| job.begin_resumed(how)).await {
            tracing::error!(job = %job.id(), "waiting to resume the job until its record can be written: {e}");
            tokio::select! {
                () = sleep(AGAIN) => {}
                () = job.cancelled().cancelled() => break,
            }
        }
        let (before, changes) = (turns(job), job.changes());
        tokio::spawn(self.watch(job.clone(), time, before, changes));
    }

    async fn watch(
        mut self,
        job: Arc<RunningJob>,
        time: Duration,
        turns_before: u32,
        mut changes: watch::Receiver<()>,
    ) {
        let until = Instant::now() + time;
        while let Ok(Ok(())) = timeout_at(until, changes.changed()).await {
            if job.status() != JobStatus::Running {
                break;
            }
            if self.how == Resumption::Alone && turns(&job) > turns_before {
                self.how = Resumption::Together;
                let _ = blocking(&job, |job| Ok(store(job, Some(Resumption::Together)))).await;
            }
        }
        // What is not there any more was cleared as the host stopped.
        if self.resumptions.on_trial().remove(job.id()).is_some() {
            let _ = blocking(&job, |job| Ok(store(job, None))).await;
        }
    }
}

fn turns(job: &RunningJob) -> u32 {
    job.usage().map_or(0, |used| used.usage.turns)
}

/// Stores how a job was resumed. Where that fails, the job stays suspected, which delays it after a crash.
fn store(job: &RunningJob, how: Option<Resumption>) {
    if let Err(e) = job.set_resumption(how) {
        tracing::warn!(job = %job.id(), "cannot store that the job runs: {e}");
    }
}

async fn blocking(
    job: &Arc<RunningJob>,
    work: impl FnOnce(&RunningJob) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let job = job.clone();
    spawn_blocking(move || work(&job)).await.unwrap_or_else(|e| Err(io::Error::other(e)))
}
