//! A ledger in memory, which the stores of several hosts share.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus};
use guild_jobs::{Birth, Change, Decision, Head, Hold, JobStore, Ledger, News, Refused, events::JobEvent};

/// The log of a job: what all its appends came to.
#[derive(Default)]
struct Log {
    files: BTreeMap<String, Vec<u8>>,
    /// `None` once the job is deleted.
    head: Option<Head>,
    /// The host that holds the job, and the number of its hold.
    holder: Option<(&'static str, u32)>,
    holds: u32,
    /// The number of appends before the job was last taken.
    taken: usize,
    /// The picture and the holder after each append.
    appends: Vec<(Option<Head>, Option<&'static str>)>,
}

impl Log {
    fn change(&mut self, change: Change) {
        match change {
            Change::Put(file, content) => drop(self.files.insert(file, content)),
            Change::Add(file, content) => self.files.entry(file).or_default().extend(content),
            Change::Remove(file) => drop(self.files.remove(&file)),
        }
    }

    fn decide(&mut self, decision: Decision) {
        decision.changes.into_iter().for_each(|change| self.change(change));
        let is_over = decision.head.as_ref().is_none_or(|head| head.meta.status != JobStatus::Running);
        self.holder = self.holder.filter(|_| !is_over);
        self.head = decision.head;
        self.appended();
    }

    fn appended(&mut self) {
        self.appends.push((self.head.clone(), self.holder.map(|(host, _)| host)));
    }
}

/// A host that is told of jobs.
struct Listener {
    host: &'static str,
    store: Arc<JobStore>,
    /// The number of appends of each job that it was told of.
    told: BTreeMap<JobId, usize>,
}

/// A step of the test that is taken with a job.
type Step = Box<dyn FnOnce(&JobId) + Send>;

/// The logs of all jobs.
#[derive(Default)]
pub(crate) struct Logs {
    jobs: Mutex<BTreeMap<JobId, Log>>,
    hosts: Mutex<Vec<Listener>>,
    pub(crate) events: Mutex<Vec<JobEvent>>,
    /// Whether no host can reach the logs.
    pub(crate) is_away: AtomicBool,
    /// The step for the next birth, which is taken before the job's host is answered.
    pub(crate) at_birth: Mutex<Option<Step>>,
    /// The step for the next copy of a job's files.
    pub(crate) at_fetch: Mutex<Option<Step>>,
    /// The number of times that a host waited for its appends.
    pub(crate) settled: AtomicUsize,
}

impl Logs {
    fn jobs(&self) -> Result<MutexGuard<'_, BTreeMap<JobId, Log>>, Refused> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Refused::Unavailable("the logs cannot be reached".to_owned()));
        }
        Ok(self.jobs.lock().unwrap())
    }

    /// The ledger of one host.
    pub(crate) fn of(self: &Arc<Self>, host: &'static str) -> Arc<OfHost> {
        Arc::new(OfHost { host, logs: self.clone() })
    }

    /// Adds a host, which is told of jobs from now on.
    pub(crate) fn join(&self, host: &'static str, store: &Arc<JobStore>) {
        self.hosts.lock().unwrap().push(Listener { host, store: store.clone(), told: BTreeMap::new() });
    }

    /// Tells one host of the next append to each job that it does not know yet, as its consumer of the log does. False
    /// once it knows all.
    pub(crate) fn tell(&self, to: &str) -> bool {
        let mut news = Vec::new();
        for Listener { host, store, told } in self.hosts.lock().unwrap().iter_mut().filter(|one| one.host == to) {
            for (job, log) in self.jobs.lock().unwrap().iter() {
                let told = told.entry(job.clone()).or_default();
                if let Some((head, holder)) = log.appends.get(*told) {
                    let has_taken = log.holder.is_some_and(|(now, _)| now == *host) && *told < log.taken;
                    *told += 1;
                    let is_held = has_taken || *holder == Some(*host);
                    news.push((store.clone(), job.clone(), News { head: head.clone(), is_held }));
                }
            }
        }
        let is_more = !news.is_empty();
        // A store may ask its ledger while it takes news.
        news.into_iter().for_each(|(store, job, news)| store.hear(&job, news));
        is_more
    }

    /// Takes a job that waits, or whose host is dead.
    pub(crate) fn take(self: &Arc<Self>, host: &'static str, job: &JobId) -> Arc<dyn Hold> {
        let mut jobs = self.jobs().unwrap();
        let log = jobs.get_mut(job).unwrap();
        log.holds += 1;
        let is_interrupted = log.holder.replace((host, log.holds)).is_some();
        log.taken = log.appends.len();
        log.appended();
        let (logs, job, holder) = (self.clone(), job.clone(), (host, log.holds));
        Arc::new(Held { logs, job, holder, is_interrupted, queue: Mutex::default() })
    }

    /// A file of a job in its log.
    pub(crate) fn file(&self, job: &JobId, file: &str) -> Option<String> {
        let jobs = self.jobs.lock().unwrap();
        Some(String::from_utf8(jobs.get(job)?.files.get(file)?.clone()).unwrap())
    }

    /// The host that holds a job.
    pub(crate) fn holder(&self, job: &JobId) -> Option<&'static str> {
        self.jobs.lock().unwrap().get(job)?.holder.map(|(host, _)| host)
    }
}

/// The logs as one host uses them.
pub(crate) struct OfHost {
    host: &'static str,
    logs: Arc<Logs>,
}

impl Ledger for OfHost {
    fn begin(&self, birth: Birth<'_>) -> Result<Arc<dyn Hold>, Refused> {
        let mut jobs = self.logs.jobs()?;
        if jobs.contains_key(birth.job) {
            return Err(Refused::Lost);
        }
        assert_eq!(birth.plan.agent, "extractive");
        let mut log = Log { holder: Some((self.host, 1)), holds: 1, head: Some(birth.head), ..Log::default() };
        birth.files.into_iter().for_each(|change| log.change(change));
        log.appended();
        self.logs.events.lock().unwrap().push(birth.event);
        jobs.insert(birth.job.clone(), log);
        drop(jobs);
        let at_birth = self.logs.at_birth.lock().unwrap().take();
        at_birth.into_iter().for_each(|happens| happens(birth.job));
        let (logs, job) = (self.logs.clone(), birth.job.clone());
        Ok(Arc::new(Held { logs, job, holder: (self.host, 1), is_interrupted: false, queue: Mutex::default() }))
    }

    fn decide(
        &self,
        job: &JobId,
        decide: &(dyn Fn(&Head) -> Option<Decision> + Sync),
    ) -> Result<(Head, bool), Refused> {
        let mut jobs = self.logs.jobs()?;
        let log = jobs.get_mut(job).ok_or(Refused::Lost)?;
        let before = log.head.clone().ok_or(Refused::Lost)?;
        let Some(decision) = decide(&before) else { return Ok((before, false)) };
        self.logs.events.lock().unwrap().push(decision.event.clone());
        log.decide(decision);
        Ok((before, true))
    }

    fn fetch(&self, job: &JobId, wanted: &(dyn Fn(&str) -> bool + Sync), into: &Dir) -> Result<(), Refused> {
        let at_fetch = self.logs.at_fetch.lock().unwrap().take();
        at_fetch.into_iter().for_each(|happens| happens(job));
        let jobs = self.logs.jobs()?;
        let log = jobs.get(job).filter(|log| log.head.is_some()).ok_or(Refused::Lost)?;
        for (file, content) in log.files.iter().filter(|(file, _)| wanted(file)) {
            into.create_dir_all(Path::new(file).parent().unwrap()).unwrap();
            into.write(file, content).unwrap();
        }
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    changes: Vec<Change>,
    head: Option<Head>,
    events: Vec<JobEvent>,
}

struct Held {
    logs: Arc<Logs>,
    job: JobId,
    holder: (&'static str, u32),
    is_interrupted: bool,
    /// The changes that are not stored yet. Nothing is stored before somebody waits for it.
    queue: Mutex<Queue>,
}

impl Held {
    /// Appends the queue, then what `last` does to the log, or nothing.
    fn append(&self, last: impl FnOnce(&mut Log)) -> Result<(), Refused> {
        let mut jobs = self.logs.jobs()?;
        let log = jobs.get_mut(&self.job).filter(|log| log.holder == Some(self.holder)).ok_or(Refused::Lost)?;
        let queue = std::mem::take(&mut *self.queue.lock().unwrap());
        queue.changes.into_iter().for_each(|change| log.change(change));
        log.head = queue.head.or(log.head.take());
        self.logs.events.lock().unwrap().extend(queue.events);
        log.appended();
        last(log);
        Ok(())
    }
}

#[async_trait]
impl Hold for Held {
    fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    fn record(&self, change: Change) {
        self.queue.lock().unwrap().changes.push(change);
    }

    fn show(&self, head: &Head) {
        self.queue.lock().unwrap().head = Some(head.clone());
    }

    fn announce(&self, event: &JobEvent) {
        self.queue.lock().unwrap().events.push(event.clone());
    }

    async fn settled(&self) -> Result<(), Refused> {
        self.logs.settled.fetch_add(1, Ordering::Relaxed);
        self.append(|_| {})
    }

    async fn may_go_on(&self) -> bool {
        true
    }

    async fn recalled(&self) {
        std::future::pending().await
    }

    fn end(&self, last: Decision) -> Result<(), Refused> {
        let event = last.event.clone();
        self.append(|log| log.decide(last))?;
        self.logs.events.lock().unwrap().push(event);
        Ok(())
    }

    fn release(&self, _why: &str) -> Result<(), Refused> {
        self.append(|log| {
            log.holder = None;
            log.appended();
        })
    }
}
