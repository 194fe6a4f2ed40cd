//! Takes jobs of the cluster that wait, or whose host is dead, and carries them out.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use guild_cluster::{
    claims::{Taken, take_next},
    log::JobName,
    record::Needs,
};
use guild_contract::{JobId, MemberKey};
use guild_jobs::StoreError;
use guild_session::queue::Permit;
use tokio::{task::spawn_blocking, time::sleep};

use super::Cluster;

/// The interval at which a host looks for jobs to take, if nothing wakes it.
const LOOK: Duration = Duration::from_secs(1);
/// How long a place is kept for a job that this host has taken. Its session begins sooner, unless the job waits for a
/// person, or until other jobs have shown that they can be resumed.
const RESERVED: Duration = Duration::from_secs(10);

/// The jobs that a host can carry out now.
pub(crate) struct Room {
    /// The free places of each runtime.
    pub(crate) places: BTreeMap<String, u32>,
    /// The digests of the components in service, by member.
    pub(crate) members: BTreeMap<String, String>,
}

/// A place for the session of a job that this host has taken.
struct Reserved {
    place: Permit<MemberKey>,
    /// The sequence by which the host took the job.
    tail: u64,
    since: Instant,
}

/// The places of jobs that this host has taken, until their sessions begin.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<JobName, Reserved>>);

impl Places {
    fn all(&self) -> MutexGuard<'_, HashMap<JobName, Reserved>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Takes jobs that wait, and those of dead hosts, as long as this host has room for them.
    pub(crate) async fn take_jobs(
        self: Arc<Self>,
        room: impl Fn() -> Room + Send + 'static,
        reserve: impl Fn(&MemberKey, &Needs) -> Option<Permit<MemberKey>> + Send + Sync + 'static,
    ) {
        let mut hosts = self.presence.changes();
        loop {
            self.places.all().retain(|_, reserved| reserved.since.elapsed() < RESERVED);
            let Room { places, members } = room();
            self.presence.tell(|card| (card.places, card.members) = (places, members));
            if !self.may_begin() {
                sleep(LOOK).await;
                continue;
            }
            match take_next(&self.queue, &self.logs, &self.presence, &reserve).await {
                Ok(Some(taken)) => {
                    self.adopt(taken).await;
                    continue;
                }
                Ok(None) => {}
                Err(e) => tracing::warn!("no waiting job can be taken at the moment: {e}"),
            }
            tokio::select! {
                () = self.waiting.notified() => {}
                changed = hosts.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.queue.orphan(|owner| self.presence.is_over(owner));
                }
                () = sleep(LOOK) => {}
            }
        }
    }

    /// The place that was reserved for the session of a job when this host took it.
    pub(crate) fn reserved(&self, member: &MemberKey, job: &JobId) -> Option<Permit<MemberKey>> {
        let reserved = self.places.all().remove(&JobName { member: member.clone(), job: job.clone() });
        reserved.map(|reserved| reserved.place)
    }

    /// Frees the place of a job that this host does not hold after a message of its log. The host may hear of it late, and
    /// have taken the job since: then the place stays.
    pub(super) fn free_place(&self, name: &JobName, sequence: u64) {
        let mut places = self.places.all();
        if places.get(name).is_some_and(|reserved| sequence >= reserved.tail) {
            places.remove(name);
        }
    }

    /// Carries a job out that this host has taken, in the place that is reserved for it.
    async fn adopt(self: &Arc<Self>, taken: Taken<Permit<MemberKey>>) {
        let Taken { name, job: taken, is_interrupted, place } = taken;
        let jobs = self.jobs(&name.member);
        let Some(store) = self.members().get(&name.member).and_then(|member| member.store.upgrade()) else {
            tracing::warn!(job = %name.job, "the job was taken, and its member {} was removed here", name.member);
            // A hold that nobody uses gives the job back.
            return drop(jobs.hold(&name.job, &taken, is_interrupted));
        };
        if taken.standing.epoch > 1 {
            self.takeovers.fetch_add(1, Ordering::Relaxed);
        }
        // The host counts the place as taken before the session begins, and tells others so.
        let reserved = Reserved { place, tail: taken.tail, since: Instant::now() };
        self.places.all().insert(name.clone(), reserved);
        let job = name.clone();
        let adopted = spawn_blocking(move || {
            let hold = jobs.hold(&name.job, &taken, is_interrupted);
            let why = match store.adopt(&name.job, hold.clone()) {
                Ok(()) => {
                    tracing::info!(job = %name.job, "the job goes on at this host");
                    return true;
                }
                Err(StoreError::Lost | StoreError::Unknown(_)) => {
                    tracing::info!(job = %name.job, "the job has ended while this host took it");
                    return true;
                }
                Err(why) => why.to_string(),
            };
            tracing::error!(
                job = %name.job,
                "the job that was taken cannot go on here, and is tried again after a while; `guild cancel {}` ends it: \
                 {why}",
                name.job
            );
            if let Err(e) = hold.release(&why) {
                tracing::error!(job = %name.job, "the job cannot be given back: {e}");
            }
            false
        });
        match adopted.await {
            Ok(true) => {}
            Ok(false) => self.queue.pass_over(&job),
            Err(_) => {
                tracing::error!(job = %job.job, "the host failed while it took the job");
                self.queue.pass_over(&job);
            }
        }
        // It may have taken long to fetch the job's files.
        if let Some(reserved) = self.places.all().get_mut(&job) {
            reserved.since = Instant::now();
        }
    }
}
