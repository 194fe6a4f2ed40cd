//! Orders the resumption of interrupted jobs over all members: a job that may have ended a host is tried alone.
//!
//! A job can end the host that runs it, and would end each next one that resumes it. So the suspicion against a resumed
//! job is kept in its record: [`Resumption`] is stored before any of the job runs, and removed once it has run for
//! `limits.resume_trial_seconds`, or when the host stops cleanly. A host that finds it there was preceded by one that
//! ended soon after it had resumed the job.
//!
//! Jobs without such a mark are resumed together. One with a mark is resumed alone: it waits until no other resumed job
//! is on trial, and the next ones wait for it. If the host ends again meanwhile, that job alone is held back. A job
//! that made a turn alone is not held back, but stays a suspect until its trial is over. Jobs that are dispatched now
//! wait for nothing.

use std::{
    collections::HashMap,
    io,
    sync::{self, Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guild_contract::{JobId, Resumption};
use guild_jobs::RunningJob;
use tokio::{
    sync::{OwnedRwLockWriteGuard, RwLock, watch},
    task::spawn_blocking,
    time::{Instant, sleep, timeout_at},
};

/// The pause between two attempts to record that a job is resumed.
const AGAIN: Duration = Duration::from_secs(5);

/// The resumed jobs of a host.
#[derive(Default)]
pub(crate) struct Resumptions {
    /// Held by each resumed job during its trial, exclusively by a suspect.
    turns: Arc<RwLock<()>>,
    on_trial: Mutex<HashMap<JobId, Arc<RunningJob>>>,
    /// Whether the host has stopped cleanly. It is read-locked while a suspicion is stored, so that none is stored
    /// after the stop.
    ended: sync::RwLock<bool>,
}

/// A job's turn to be resumed, once there is a place for its session.
pub(crate) enum Turn {
    /// The job delays no suspect while it waits for that place.
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

    /// Records that the host stops cleanly, so that no job is suspected of its end. It blocks.
    pub(crate) fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
        let on_trial: Vec<_> = self.on_trial().drain().collect();
        for (_, job) in on_trial {
            store(&job, None);
        }
    }

    /// Stores a change of a job's record, on a thread that may block. `None`, without a change, if the host has stopped
    /// cleanly.
    async fn unless_ended<T: Send + 'static>(
        self: &Arc<Self>,
        job: &Arc<RunningJob>,
        work: impl FnOnce(&Self, &Arc<RunningJob>) -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let (this, job) = (self.clone(), job.clone());
        let done = spawn_blocking(move || {
            let ended = this.ended.read().unwrap_or_else(PoisonError::into_inner);
            (!*ended).then(|| work(&this, &job))
        });
        done.await.map_err(io::Error::other)
    }

    fn on_trial(&self) -> MutexGuard<'_, HashMap<JobId, Arc<RunningJob>>> {
        self.on_trial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trial {
    /// Stores that the job is resumed now, before any of it is read or runs, and watches it for that time, or until it
    /// ends. Once the host has stopped, the next one resumes it, and this waits until it is cancelled.
    pub(crate) async fn begin(self, job: &Arc<RunningJob>, time: Duration) {
        let how = self.how;
        loop {
            let begun = self.resumptions.unless_ended(job, move |resumptions, job| {
                resumptions.on_trial().insert(job.id().clone(), job.clone());
                job.begin_resumed(how)
            });
            let again = match begun.await {
                Ok(Some(Ok(()))) => break,
                Ok(None) => Duration::MAX,
                Ok(Some(Err(e))) | Err(e) => {
                    tracing::error!(job = %job.id(), "waiting to resume the job until its record can be written: {e}");
                    AGAIN
                }
            };
            tokio::select! {
                () = sleep(again) => {}
                () = job.cancelled().cancelled() => break,
            }
        }
        let (before, changes) = (tokens(job), job.changes());
        tokio::spawn(self.watch(job.clone(), time, before, changes));
    }

    async fn watch(
        mut self,
        job: Arc<RunningJob>,
        time: Duration,
        tokens_before: u64,
        mut changes: watch::Receiver<()>,
    ) {
        let until = Instant::now() + time;
        while !job.is_over() && matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
            if self.how == Resumption::Alone && tokens(&job) > tokens_before {
                self.how = Resumption::Together;
                let stored = self.resumptions.unless_ended(&job, |_, job| store(job, Some(Resumption::Together)));
                let _ = stored.await;
            }
        }
        // The stop of the host clears remaining suspicions.
        let cleared = self.resumptions.unless_ended(&job, |resumptions, job| {
            let on_trial = resumptions.on_trial().remove(job.id());
            if on_trial.is_some() {
                store(job, None);
            }
        });
        let _ = cleared.await;
    }
}

/// Tokens that a job has used: they are counted when a turn was answered, and the turn itself before that.
fn tokens(job: &RunningJob) -> u64 {
    job.usage().map_or(0, |used| used.usage.tokens())
}

/// Stores the way in which a job was resumed. If that fails, the job stays suspected, which delays it after a crash.
fn store(job: &RunningJob, how: Option<Resumption>) {
    if let Err(e) = job.set_resumption(how) {
        tracing::warn!(job = %job.id(), "cannot store that the job runs: {e}");
    }
}
