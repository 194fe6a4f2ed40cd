//! The ledger of a member's jobs on the logs of the cluster, and the news of jobs for its store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus, MemberKey};
use guild_jobs::{Accepted, Birth, Change, Decision, Head, Hold, Ledger, News, Refused, events::JobEvent};
use tokio::{runtime::Handle, sync::watch, time::sleep};

use crate::{
    buckets::keys::{CallersKey, Keys},
    error::StoreError,
    link::wait,
    log::{Append, JobName, Logs},
    presence::Presence,
    record::{Content, Folded, Needs, Record},
    rules::{Holder, Standing},
    watch::JobSeen,
    writer::{NotStored, Writer},
};

/// The pause before a host tries again to give a job back.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells what a host needs to carry a job with this plan out.
pub type NeedsOf = Arc<dyn Fn(&JobId, &Accepted) -> Needs + Send + Sync>;

/// The jobs of one member, which all hosts of the cluster serve. It is cheap to clone.
#[derive(Clone)]
pub struct MemberJobs {
    logs: Logs,
    keys: Keys,
    member: MemberKey,
    needs: NeedsOf,
    holds: Holds,
    presence: Arc<Presence>,
    tails: Tails,
    runtime: Handle,
}

/// The sequence up to which this host knows each job. A server that lags may answer with less, which would take back
/// what callers were told.
type Tails = Arc<Mutex<HashMap<JobId, u64>>>;

/// The jobs that this host holds, each with the sequence by which it took the job.
type Holds = Arc<watch::Sender<HashMap<JobId, u64>>>;

impl MemberJobs {
    /// The jobs of a member. Appends run on `runtime`, which has more than one thread, since the methods of the ledger
    /// block.
    pub fn new(logs: Logs, member: MemberKey, needs: NeedsOf, presence: Arc<Presence>, runtime: Handle) -> Self {
        Self {
            keys: Keys::new(logs.clone()),
            logs,
            member,
            needs,
            holds: Holds::default(),
            presence,
            tails: Tails::default(),
            runtime,
        }
    }

    fn tails(&self) -> MutexGuard<'_, HashMap<JobId, u64>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this host holds none of the member's jobs.
    pub async fn released(&self) {
        let _ = self.holds.subscribe().wait_for(HashMap::is_empty).await;
    }

    /// The member's jobs that this host holds.
    pub fn held(&self) -> Vec<JobId> {
        self.holds.borrow().keys().cloned().collect()
    }

    fn holds(&self, job: &JobId) -> bool {
        self.holds.borrow().contains_key(job)
    }

    fn name(&self, job: &JobId) -> JobName {
        JobName { member: self.member.clone(), job: job.clone() }
    }

    /// The sequence up to which this host knows a job.
    fn tail(&self, job: &JobId) -> u64 {
        self.tails().get(job).copied().unwrap_or(0)
    }

    fn note_tail(&self, job: &JobId, sequence: u64) {
        let mut tails = self.tails();
        let tail = tails.entry(job.clone()).or_default();
        *tail = sequence.max(*tail);
    }

    /// The hold on a job that this host has taken, perhaps after an interruption, for [`guild_jobs::JobStore::adopt`].
    pub fn hold(&self, job: &JobId, taken: &Folded, is_interrupted: bool) -> Arc<dyn Hold> {
        let head = taken.head.clone().unwrap_or_default();
        let writer = Writer::start(self.logs.clone(), self.name(job), taken, head, &self.runtime);
        self.holds.send_modify(|holds| {
            holds.insert(job.clone(), taken.tail);
        });
        self.note_tail(job, taken.tail);
        Arc::new(HeldJob {
            writer,
            name: job.clone(),
            since: taken.tail,
            epoch: taken.standing.epoch,
            is_interrupted,
            is_over: AtomicBool::new(false),
            jobs: self.clone(),
        })
    }

    /// The news of one of the member's jobs, for [`guild_jobs::JobStore::hear`].
    ///
    /// # Errors
    ///
    /// Returns an error when the job's picture cannot be read.
    pub fn news(&self, seen: &JobSeen) -> Result<News, StoreError> {
        let is_gone = seen.standing.holder == Holder::Gone;
        match is_gone {
            true => drop(self.tails().remove(&seen.name.job)),
            false => self.note_tail(&seen.name.job, seen.sequence),
        }
        let head = if is_gone { None } else { Some(picture(&seen.name, &seen.head)?) };
        let is_own = seen.standing.holder == Holder::Held(self.logs.own().clone());
        if is_own && !self.holds(&seen.name.job) {
            // The birth or the claim may be answered while it is tried. What its host does then follows in the log.
            let (jobs, name, epoch, sequence) = (self.clone(), seen.name.clone(), seen.standing.epoch, seen.sequence);
            self.runtime.spawn(async move {
                sleep(jobs.logs.patience() * 2).await;
                if jobs.tail(&name.job) <= sequence {
                    jobs.give_back(name, epoch).await;
                }
            });
        }
        let is_older = || self.holds.borrow().get(&seen.name.job).is_some_and(|since| seen.sequence < *since);
        Ok(News { head, is_held: is_own || is_older() })
    }

    /// Gives a job back that this host holds in this epoch by the log alone, so that nobody would carry it out: its birth or
    /// its claim was stored and never answered, or its work was dropped without an end.
    async fn give_back(self, name: JobName, epoch: u64) {
        let standing = Standing { holder: Holder::Held(self.logs.own().clone()), epoch };
        let free = |job: &Folded| {
            let why = "its host does not carry it out".to_owned();
            let head = job.head.clone().unwrap_or_default();
            let is_stray = job.standing == standing && !self.holds(&name.job);
            is_stray.then(|| Append { records: vec![Record::Free { why }], head, events: Vec::new() })
        };
        while !self.holds(&name.job) {
            match self.logs.decide(&name, self.tail(&name.job), free).await {
                Ok((_, is_free)) => {
                    return if is_free {
                        tracing::info!(job = %name.job, "the job is given back, since this host does not carry it out");
                    };
                }
                Err(error @ StoreError::Unreachable(_)) => {
                    tracing::info!(job = %name.job, "the job cannot be given back at the moment: {error}");
                }
                Err(error) => return tracing::error!(job = %name.job, "the job cannot be given back: {error}"),
            }
            sleep(PAUSE).await;
        }
    }
}

fn unavailable(error: impl ToString) -> Refused {
    Refused::Unavailable(error.to_string())
}

fn json(value: &impl serde::Serialize) -> Result<String, Refused> {
    serde_json::to_string(value).map_err(unavailable)
}

fn record(change: Change) -> Record {
    match change {
        Change::Put(file, content) => Record::Put { file, content: Content::of(content) },
        Change::Add(file, content) => Record::Add { file, content: Content::of(content) },
        Change::Remove(file) => Record::Remove { file },
    }
}

/// The append of a decision: an end, a change of an end, or a deletion.
fn append(decision: Decision) -> Result<Append, Refused> {
    let events = vec![json(&decision.event)?];
    let Some(head) = &decision.head else {
        return Ok(Append { records: vec![Record::Gone], head: String::new(), events });
    };
    let end = (head.meta.status != JobStatus::Running).then_some(Record::End);
    let records = decision.changes.into_iter().map(record).chain(end).collect();
    Ok(Append { records, head: json(head)?, events })
}

/// The picture in a header.
fn picture(name: &JobName, head: &str) -> Result<Head, StoreError> {
    let unreadable = |e| StoreError::Damaged(format!("the picture of {} cannot be read: {e}", name.subject()));
    serde_json::from_str(head).map_err(unreadable)
}

impl Ledger for MemberJobs {
    fn begin(&self, birth: Birth<'_>) -> Result<Arc<dyn Hold>, Refused> {
        let name = self.name(birth.job);
        if let Some(key) = &birth.head.meta.key {
            let key = CallersKey { token: birth.head.meta.token.as_deref(), key: &key.key };
            let claimed = self.keys.claim(key, &name);
            let job = wait(&self.runtime, claimed).map_err(unavailable)?;
            if job != name {
                let why = "another host has just made a job of this key; ask again, and its id is the answer";
                return Err(Refused::Unavailable(why.to_owned()));
            }
        }
        let files = birth.files.into_iter().filter_map(|change| match change {
            Change::Put(file, content) | Change::Add(file, content) => Some((file, Content::of(content))),
            Change::Remove(_) => None,
        });
        let append = Append { records: Vec::new(), head: json(&birth.head)?, events: vec![json(&birth.event)?] };
        let begun = self.logs.begin(&name, (self.needs)(birth.job, birth.plan), files.collect(), true, append);
        match wait(&self.runtime, begun) {
            Ok(Some(born)) => Ok(self.hold(birth.job, &born, false)),
            Ok(None) => Err(Refused::Lost),
            Err(error @ StoreError::Unreachable(_)) => {
                let why = "the job may have been accepted; a dispatch with a `key` can be repeated";
                Err(Refused::Unavailable(format!("{error}; {why}")))
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    fn decide(
        &self,
        job: &JobId,
        decide: &(dyn Fn(&Head) -> Option<Decision> + Sync),
    ) -> Result<(Head, bool), Refused> {
        let name = self.name(job);
        let head_of = |job: &Folded| match &job.standing.holder {
            Holder::Unborn | Holder::Gone => Err(Refused::Lost),
            _ => picture(&name, job.head.as_deref().unwrap_or_default()).map_err(unavailable),
        };
        let decide = |job: &Folded| append(decide(&head_of(job).ok()?)?).ok();
        let decided = self.logs.decide(&name, self.tail(job), decide);
        let (before, is_stored) = wait(&self.runtime, decided).map_err(unavailable)?;
        let head = head_of(&before)?;
        // The sequence of the append is at least the next one.
        self.note_tail(job, before.tail + u64::from(is_stored));
        Ok((head, is_stored))
    }

    fn fetch(&self, job: &JobId, wanted: &(dyn Fn(&str) -> bool + Sync), into: &Dir) -> Result<(), Refused> {
        let fetched = async {
            let job = self.logs.read_from(&self.name(job), self.tail(job)).await.map_err(unavailable)?;
            if matches!(job.standing.holder, Holder::Unborn | Holder::Gone) {
                return Err(Refused::Lost);
            }
            self.logs.fetch(&job, wanted, into).await.map_err(unavailable)
        };
        wait(&self.runtime, fetched)
    }
}

/// A job that this host holds.
struct HeldJob {
    writer: Writer,
    name: JobId,
    since: u64,
    epoch: u64,
    is_interrupted: bool,
    /// Whether the job has ended, or is another host's.
    is_over: AtomicBool,
    jobs: MemberJobs,
}

impl HeldJob {
    /// Appends the last records of the hold, and waits until they are stored.
    fn finish(&self, last: Append) -> Result<(), Refused> {
        let stored = wait(&self.jobs.runtime, self.writer.finish(last)).map_err(refused);
        self.is_over.store(matches!(stored, Ok(()) | Err(Refused::Lost)), Ordering::Relaxed);
        stored
    }
}

impl Drop for HeldJob {
    fn drop(&mut self) {
        let was_last = self.jobs.holds.send_if_modified(|holds| {
            // The host may have taken the job again.
            let is_last = holds.get(&self.name) == Some(&self.since);
            is_last && holds.remove(&self.name).is_some()
        });
        if was_last && !self.is_over.load(Ordering::Relaxed) && !self.writer.is_lost() {
            let name = self.jobs.name(&self.name);
            self.jobs.runtime.spawn(self.jobs.clone().give_back(name, self.epoch));
        }
    }
}

fn refused(error: NotStored) -> Refused {
    match error {
        NotStored::Lost(_) => Refused::Lost,
        NotStored::Store(error) => unavailable(error),
    }
}

#[async_trait]
impl Hold for HeldJob {
    fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    fn record(&self, change: Change) {
        self.writer.record(record(change));
    }

    fn show(&self, head: &Head) {
        match json(head) {
            Ok(head) => self.writer.show(head),
            Err(e) => tracing::error!("the picture of a job cannot be written: {e}"),
        }
    }

    fn announce(&self, event: &JobEvent) {
        match json(event) {
            Ok(event) => self.writer.announce(event),
            Err(e) => tracing::error!("an event cannot be written: {e}"),
        }
    }

    async fn settled(&self) -> Result<(), Refused> {
        self.writer.settled(None).await.map_err(refused)
    }

    async fn may_go_on(&self) -> bool {
        self.jobs.presence.may_go_on().await
    }

    async fn recalled(&self) {
        self.jobs.presence.drains().await;
    }

    fn end(&self, last: Decision) -> Result<(), Refused> {
        self.finish(append(last)?)
    }

    fn release(&self, why: &str) -> Result<(), Refused> {
        let free = vec![Record::Free { why: why.to_owned() }];
        let last = Append { records: free, head: self.writer.head(), events: Vec::new() };
        self.finish(last)
    }
}

impl JobSeen {
    /// The events of the message, in order. One that cannot be read is logged and left out.
    pub fn job_events(&self) -> Vec<JobEvent> {
        if self.events.is_empty() {
            return Vec::new();
        }
        serde_json::from_str(&self.events).unwrap_or_else(|e| {
            tracing::warn!("the events of {} at {} cannot be read: {e}", self.name.subject(), self.sequence);
            Vec::new()
        })
    }
}
