//! Makes a host one of a cluster: it hears of the jobs of all hosts, and takes those that wait or whose host is dead.

pub(crate) mod directory;
pub(crate) mod published;
pub(crate) mod taking;

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use futures::future::join_all;
use guild_cluster::{
    buckets::memory::Memory,
    claims::Queue,
    ledger::MemberJobs,
    link::Link,
    log::{JobName, Logs},
    presence::{Card, Cards, HostSeen, Identity, Presence},
    reads::Reads,
    record::{Needs, Owner},
    rules::{Holder, Times},
    seal::Key,
    watch::{JobSeen, Jobs},
};
use guild_config::{CLUSTER_KEY_BYTES, ClusterOptions, Config};
use guild_contract::{
    EventDetail, JobId, MemberKey, capability::MANAGER, host::cluster::ClusterView, manifest::FILE_TOOLS, rpc::RpcError,
};
use guild_fs::file_lock::FileLock;
use guild_hall::Hall;
use guild_jobs::{
    Accepted, JobStore, Ledger,
    memory::shelf::{NoteFiles, Shelf},
};
use guild_telemetry::{ClusterFigures, record};
use guild_trust::seal::Seals;
use jiff::Timestamp;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::{block_in_place, spawn_blocking},
    time::{sleep, timeout},
};

use self::{directory::own_directory, taking::Places};
use crate::{
    cluster_view::{roots, seal_key, servers, settings, view},
    events::Hub,
};

/// How long a decision about a job is tried before its caller is told that the store is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for which a host that stops waits for the ends of its sessions' turns.
const DRAIN: Duration = Duration::from_secs(60);
/// The time for which a request waits for what was stored before it.
const READ: Duration = Duration::from_secs(2);
/// The answer of a host that begins nothing.
const CUT_OFF: &str =
    "this host is about to stop, or does not reach the cluster's store; ask another host, or again later";
/// The time after a job's end, at the host where it ended, until its log is replaced by one message; and the interval at
/// which a host looks for such logs.
const COMPACT_AFTER: Duration = Duration::from_secs(10 * 60);
const COMPACT_EACH: Duration = Duration::from_secs(60);
/// The interval at which a host reads the settings for its card.
const TELL: Duration = Duration::from_secs(30);
/// The directory of a member with the host's copy of its notes. Those in `memory/` are of the time before the cluster.
const NOTES: &str = ".memory";

/// The host's place in its cluster.
pub(crate) struct Cluster {
    name: String,
    key: [u8; CLUSTER_KEY_BYTES],
    link: Link,
    logs: Logs,
    presence: Arc<Presence>,
    queue: Queue,
    reads: Reads,
    /// The most jobs that may wait for a place (`queued_jobs`).
    queued_jobs: usize,
    memory: Memory,
    /// The jobs that this host has gone on with after another host had begun them.
    takeovers: AtomicU64,
    /// The beginning of the ids of events, which is the same at each host.
    log_id: String,
    members: Mutex<BTreeMap<MemberKey, ServedMember>>,
    /// The jobs that ended at this host, whose logs are not replaced yet.
    ended: Mutex<VecDeque<(Instant, JobName)>>,
    /// The number of members that were added, whose jobs have to be heard of.
    added: watch::Sender<u64>,
    /// The number of those of whose jobs this host has heard; none before it knows the jobs that there were at its start.
    followed: watch::Sender<Option<u64>>,
    /// The places of jobs that this host has taken, until their sessions begin.
    places: Places,
    /// Notified when there may be a job to take.
    waiting: Notify,
    /// The host's own directory beside `guild.toml`.
    directory: PathBuf,
    /// The hall that this host serves.
    hall: OnceLock<Arc<Hall>>,
    /// Held as long as this life of the host, so that no other process is a host of the same name and directory.
    _lock: FileLock,
}

/// A member that this host serves.
struct ServedMember {
    jobs: MemberJobs,
    store: Weak<JobStore>,
}

impl Cluster {
    /// Joins the cluster, as a host that others reach at `url`.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says what to do when the servers cannot be reached or do not keep what they acknowledge,
    /// when a stream is missing or has another shape, and when a host of the same name is alive.
    pub(crate) async fn join(options: &ClusterOptions, config: &Config, url: String) -> Result<Arc<Self>, String> {
        let key = options.read_key()?;
        let (lock, path, directory) = own_directory(config.directory.as_deref(), &options.host)?;
        let texts = |urls: &[url::Url]| urls.iter().map(|url| url.as_str().to_owned()).collect::<Vec<_>>();
        Link::check_servers(&texts(&options.monitor), options.ca.as_deref()).await.map_err(|e| e.to_string())?;
        let link = Link::connect(&servers(options)).await.map_err(|e| e.to_string())?;
        link.check_streams().await.map_err(|e| e.to_string())?;
        let log_id = link.log_id().await.map_err(|e| e.to_string())?;
        let owner = Owner::new(&options.host);
        let logs = Logs::new(link.clone(), owner.clone(), PATIENCE);
        let url = options.url.as_ref().map_or(url, |url| url.as_str().to_owned());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let roots = roots(config);
        let sealed_by = seal_key(options)?;
        let settings = settings(config, &sealed_by, &roots);
        let card = Card { url, version, roots, settings, ..Card::default() };
        let (identity, runtime) = (Identity { owner, directory }, Handle::current());
        let times = Times { silent: options.silent, stop: options.stop, ..Times::default() };
        let joined = Presence::join(link.clone(), sealed_by, identity, card, times, &runtime);
        let presence = Arc::new(joined.await.map_err(|e| e.to_string())?);
        let lives = presence.clone();
        let is_over = Arc::new(move |owner: &Owner| lives.is_over(owner));
        let memory = Memory::start(link.clone(), logs.own().clone(), is_over, runtime);
        tracing::info!("the host {} is in the cluster {}", options.host, options.name);
        Ok(Arc::new(Self {
            name: options.name.clone(),
            key,
            reads: Reads::of_jobs(link.clone()),
            link,
            logs,
            presence,
            queue: Queue::default(),
            queued_jobs: options.queued_jobs,
            memory,
            takeovers: AtomicU64::default(),
            log_id,
            members: Mutex::default(),
            ended: Mutex::default(),
            added: watch::Sender::default(),
            followed: watch::Sender::default(),
            places: Places::default(),
            waiting: Notify::new(),
            directory: path,
            hall: OnceLock::new(),
            _lock: lock,
        }))
    }

    /// The beginning of the ids of events.
    pub(crate) fn log_id(&self) -> &str {
        &self.log_id
    }

    /// The key of what this host seals for others.
    fn seal_key(&self) -> Key {
        Key::of_cluster(&self.name, self.key)
    }

    /// The seals of jobs, which are the same at each host.
    pub(crate) fn seals(&self) -> Seals {
        Seals::of_cluster(&self.name, self.key)
    }

    /// The ledger of the jobs of a member.
    pub(crate) fn ledger(self: &Arc<Self>, member: &MemberKey) -> Arc<dyn Ledger> {
        Arc::new(self.jobs(member))
    }

    /// The notes of a member, which all hosts share. Its directory has this host's copy of them.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says what to do when the notes cannot be read.
    pub(crate) async fn notes(&self, member: &MemberKey, dir: &Dir) -> Result<Box<dyn Shelf>, String> {
        let files = NoteFiles::new(dir, NOTES.into()).map_err(|e| format!("{NOTES}/: {e}"))?;
        self.memory.shelf(member.as_str(), files).await.map_err(|e| e.to_string())
    }

    /// Waits until this host has all notes that were stored before, at any host.
    ///
    /// # Errors
    ///
    /// Returns an error when this host may begin nothing now, or the store does not answer.
    pub(crate) async fn notes_of_now(&self) -> Result<(), RpcError> {
        if !self.may_begin() {
            return Err(RpcError::busy(CUT_OFF));
        }
        self.memory.all_of_now().await.map_err(|e| RpcError::busy(e.to_string()))
    }

    /// Waits until this host has heard of all that was stored about jobs before, at any host. It does not wait for a
    /// store that is away: the host answers as it knows then.
    pub(crate) async fn hear_all(&self) {
        if !self.presence.is_heard() {
            return;
        }
        if timeout(READ, self.reads.all_of_now()).await.is_err() {
            tracing::debug!("a request may not see the last changes: the store does not answer");
        }
    }

    /// Refuses a dispatch while this host may begin nothing, or as many jobs wait for a place as may.
    ///
    /// # Errors
    ///
    /// Returns an error that says so, or names the setting.
    pub(crate) fn check_accepts(&self) -> Result<(), RpcError> {
        if !self.may_begin() {
            return Err(RpcError::busy(CUT_OFF));
        }
        let waiting = self.queue.waiting();
        if waiting < self.queued_jobs {
            return Ok(());
        }
        record::limit_reached("queued_jobs");
        Err(RpcError::busy(format!(
            "{waiting} jobs of the cluster wait for a place, and no more may by `queued_jobs` in [cluster] of guild.toml; \
             try again when some have begun, or add places: hosts, or `sessions` of the runtimes"
        )))
    }

    /// The jobs of a member, of which this host has one list as long as it runs.
    fn jobs(self: &Arc<Self>, member: &MemberKey) -> MemberJobs {
        let mut members = self.members();
        let served = members.entry(member.clone()).or_insert_with(|| {
            let (this, key) = (Arc::downgrade(self), member.clone());
            let needs = move |job: &JobId, plan: &Accepted| {
                this.upgrade().map_or_else(Needs::default, |this| this.needs(&key, job, plan))
            };
            let (logs, presence) = (self.logs.clone(), self.presence.clone());
            let jobs = MemberJobs::new(logs, member.clone(), Arc::new(needs), presence, Handle::current());
            ServedMember { jobs, store: Weak::new() }
        });
        served.jobs.clone()
    }

    /// The needs of a job with a plan that this host accepted.
    fn needs(&self, member: &MemberKey, job: &JobId, plan: &Accepted) -> Needs {
        let card = self.presence.card();
        let is_of = |hall: &Arc<Hall>| plan.grants.holds(&MANAGER) || hall.attempt_of(job.as_str()).is_some();
        let reads = plan
            .plan
            .session()
            .is_none_or(|session| session.tools.iter().any(|tool| FILE_TOOLS.contains(&tool.as_str())));
        Needs {
            runtime: plan.agent.clone(),
            roots: if reads { card.roots } else { Vec::new() },
            hall: self.hall.get().is_some_and(is_of),
            member: card.members.get(member.as_str()).cloned().unwrap_or_default(),
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<MemberKey, ServedMember>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member that this host serves from now on, and waits until its jobs are known. At the start,
    /// [`Self::caught_up`] does that for all.
    pub(crate) async fn add(self: &Arc<Self>, member: &MemberKey, store: &Arc<JobStore>) {
        let served = ServedMember { jobs: self.jobs(member), store: Arc::downgrade(store) };
        self.members().insert(member.clone(), served);
        let mut number = 0;
        self.added.send_modify(|added| {
            *added += 1;
            number = *added;
        });
        let mut followed = self.followed.subscribe();
        let is_started = followed.borrow().is_some();
        if is_started {
            let _ = followed.wait_for(|followed| *followed >= Some(number)).await;
        }
    }

    /// Waits until the jobs that there were at the start are known.
    pub(crate) async fn caught_up(&self) {
        let _ = self.followed.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until another host has declared this one dead, and tells why. Its jobs are others' then.
    pub(crate) async fn died(&self) -> String {
        self.presence.died().await
    }

    /// Claims the hall of the cluster for this host.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the host that serves it, or why the store does not answer.
    pub(crate) async fn serve_hall(&self, hall: &Arc<Hall>) -> Result<(), String> {
        self.presence.claim_hall().await.map_err(|e| e.to_string())?;
        let _ = self.hall.set(hall.clone());
        Ok(())
    }

    /// The host that serves the hall, if it is another one, with its address.
    pub(crate) fn hall_elsewhere(&self) -> Option<HostSeen> {
        self.presence.others().into_iter().find(|host| host.card.hall && host.dead_by.is_none())
    }

    /// Whether this host may begin something: the others hear of it.
    pub(crate) fn may_begin(&self) -> bool {
        self.presence.may_begin()
    }

    /// Gives the jobs of this host back at the end of their turns, and waits until it has none, for a limited time.
    /// `idle` gives those back that have not begun here.
    pub(crate) async fn drain(&self, idle: impl Future<Output = ()>) {
        self.presence.drain();
        let jobs: Vec<_> = self.members().values().map(|member| member.jobs.clone()).collect();
        let released = async {
            idle.await;
            join_all(jobs.iter().map(MemberJobs::released)).await;
        };
        if timeout(DRAIN, released).await.is_err() {
            let left: Vec<_> = jobs.iter().flat_map(MemberJobs::held).map(|job| job.to_string()).collect();
            tracing::warn!(
                "some jobs did not reach the end of a turn within {} s, and others go on with their last: {}",
                DRAIN.as_secs(),
                left.join(", ")
            );
        }
    }

    /// The state of the cluster as this host sees it.
    pub(crate) async fn view(&self) -> ClusterView {
        let hosts = self.presence.others().into_iter().chain([self.presence.own()]).collect();
        let streams = self.link.states().await.unwrap_or_default();
        let now = Timestamp::now().as_nanosecond();
        let cards = Cards { hosts, unsealed: self.presence.unsealed() };
        let takeovers = Some(self.takeovers.load(Ordering::Relaxed));
        ClusterView { takeovers, ..view(&self.name, cards, &self.queue, streams, now) }
    }

    /// The figures of the cluster as this host sees it.
    pub(crate) fn figures(&self) -> ClusterFigures {
        let own = self.presence.own();
        let refreshed = own.silent;
        let hosts: Vec<HostSeen> =
            self.presence.others().into_iter().chain([own]).filter(|host| host.dead_by.is_none()).collect();
        let mut places = BTreeMap::<String, u64>::new();
        for (runtime, free) in hosts.iter().flat_map(|host| &host.card.places) {
            *places.entry(runtime.clone()).or_default() += u64::from(*free);
        }
        let waited = |since: i128| Timestamp::now().as_nanosecond().saturating_sub(since);
        let oldest = self.queue.oldest().and_then(|since| u64::try_from(waited(since)).ok()).unwrap_or(0);
        ClusterFigures {
            hosts: hosts.len() as u64,
            waiting: self.queue.waiting() as u64,
            oldest: Duration::from_nanos(oldest),
            places,
            takeovers: self.takeovers.load(Ordering::Relaxed),
            claims_lost: self.queue.claims().lost,
            outbox_bytes: self.logs.queued_bytes() as u64,
            refreshed,
        }
    }

    /// Leaves the cluster: others take the jobs that this host still holds.
    pub(crate) async fn leave(&self) {
        if let Err(e) = self.presence.leave().await {
            tracing::warn!("the other hosts take over when this one has been silent for a while: {e}");
        }
    }

    /// Hears of all jobs, and tells of events, as long as the host runs.
    pub(crate) async fn follow(self: Arc<Self>, events: Arc<Hub>) {
        let latest = || Jobs::latest(self.link.clone()).for_readers(&self.reads);
        let mut added = self.added.subscribe();
        let (mut news, mut number, mut last) = (latest(), *added.borrow_and_update(), 0);
        loop {
            let seen = tokio::select! {
                seen = news.next() => seen,
                // The sender is this.
                _ = added.changed() => {
                    (news, number) = (latest(), *added.borrow_and_update());
                    continue;
                }
            };
            let is_caught_up = self.followed.borrow().is_some();
            let Some(seen) = seen else {
                if !is_caught_up {
                    events.begin_after(last);
                }
                self.followed.send_replace(Some(number));
                continue;
            };
            // The store waits for its files for a moment.
            block_in_place(|| self.hear(&seen));
            // After a new beginning, the events of before are known.
            if is_caught_up && seen.sequence > last {
                if seen.sequence > last + 1 {
                    // The messages in between were removed with their jobs while this host was cut off.
                    events.begin_after(seen.sequence - 1);
                }
                let (told, is_own) = (seen.job_events(), seen.writer == *self.logs.own());
                for event in told.iter().filter(|_| is_own) {
                    if let EventDetail::JobEnded { status, .. } = &event.detail {
                        record::job_ended(&seen.name.member, *status);
                        self.ended().push_back((Instant::now(), seen.name.clone()));
                    }
                }
                events.hear(&seen.name.member, seen.sequence, told, is_own);
            }
            last = last.max(seen.sequence);
        }
    }

    /// Passes the news of a job to the store of its member, and to the queue.
    fn hear(&self, seen: &JobSeen) {
        let own = self.logs.own();
        self.queue.hear(seen, own);
        let is_held = matches!(&seen.standing.holder, Holder::Held(owner) if owner == own);
        if !is_held {
            self.free_place(&seen.name, seen.sequence);
        }
        let served = self.members().get(&seen.name.member).map(|member| (member.jobs.clone(), member.store.upgrade()));
        if let Some((jobs, Some(store))) = served {
            match jobs.news(seen) {
                Ok(news) => store.hear(&seen.name.job, news),
                Err(e) => tracing::error!(job = %seen.name.job, "{e}"),
            }
        }
        // A job that has ended here leaves its place to another.
        if seen.standing.holder == Holder::Waiting || (seen.writer == *own && !is_held) {
            self.waiting.notify_one();
        }
    }

    fn ended(&self) -> MutexGuard<'_, VecDeque<(Instant, JobName)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the logs of jobs that ended here a while ago, as long as the host runs.
    pub(crate) async fn compact(self: Arc<Self>) {
        loop {
            sleep(COMPACT_EACH).await;
            while let Some(name) = self.next_to_compact() {
                if let Err(e) = self.logs.compact(&name).await {
                    tracing::info!(job = %name.job, "the job's log stays as it is until a sweep: {e}");
                }
            }
        }
    }

    /// The next job that ended here a while ago.
    fn next_to_compact(&self) -> Option<JobName> {
        let mut ended = self.ended();
        let is_due = ended.front().is_some_and(|(since, _)| since.elapsed() >= COMPACT_AFTER);
        if is_due { ended.pop_front().map(|(_, name)| name) } else { None }
    }

    /// Keeps the card's roots and settings those of the configuration and of the files beside it, as long as the host
    /// runs.
    pub(crate) async fn tell_settings(self: Arc<Self>, config: impl Fn() -> Arc<Config> + Send + Sync + 'static) {
        let (key, config) = (self.seal_key(), Arc::new(config));
        loop {
            sleep(TELL).await;
            let (key, config) = (key.clone(), config.clone());
            let read = spawn_blocking(move || {
                let config = config();
                let roots = roots(&config);
                (settings(&config, &key, &roots), roots)
            });
            if let Ok(read) = read.await {
                self.presence.tell(|card| (card.settings, card.roots) = read);
            }
        }
    }
}
