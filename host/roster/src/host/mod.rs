//! Opens the members of a directory, or one member, and serves them until the host is stopped.

mod inspection;
pub mod reload;
mod upkeep;

use std::{
    path::PathBuf,
    sync::{Arc, RwLock},
    time::Duration,
};

use futures::future::join_all;
use guild_agent::ReadRoots;
use guild_auth::Ingress;
use guild_cluster::record::Needs;
use guild_config::{Config, Runtime};
use guild_contract::{Limits, MemberKey, host::cluster::ClusterView};
use guild_fs::{clock::SystemClock, durable::open_directory};
use guild_hall::{Hall, HallOptions, memory::Scopes};
use guild_sandbox::Sandbox;
use guild_session::queue::QueueLoad;
use guild_telemetry::ClusterFigures;
use guild_trust::{Approval, seal::Seals};
use tokio::{
    sync::{Mutex, Semaphore, mpsc, oneshot, watch},
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

use crate::{
    check::doctor::Examination,
    cluster::{Cluster, taking::Room},
    discovery,
    events::Hub,
    fakes::Fakes,
    jobs::{host_context::HostContext, memory_budget::MemoryBudget},
    members::{
        commissions::{self, Commissions},
        component_loader::{Load, Loader},
        error::OpenError,
        member::Member,
        neighbours,
        opener::{Opened, Opener, Prepared},
        reconciler::{Reconciler, Renewal},
        roster::{MemberEntry, MemberState, Members, Roster},
    },
    resources::{
        Resources,
        read_roots::{Sources, read_roots},
        runtimes::Runtimes,
    },
    tools::named_toolboxes::{Others, Toolboxes},
};

/// How long the start of a single job waits for the check of the read roots.
const LOOKING: Duration = Duration::from_secs(5);
/// How long a host that stops tries to store that it stopped cleanly.
const ENDING: Duration = Duration::from_secs(10);

/// The members of a host.
#[derive(Clone, Debug)]
pub enum Target {
    /// Every member in a directory (roster mode).
    Members(PathBuf),
    /// The member in this directory.
    Member(PathBuf),
}

/// The options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// `guild.toml`.
    pub config: Config,
    /// The members of the host.
    pub target: Target,
    /// Read roots besides those of the configuration (`--sources`).
    pub sources: Vec<PathBuf>,
    /// The runtime of its sessions, if it is not the configuration's (`--agent`).
    pub agent: Option<Runtime>,
    /// The home of the hall whose commissions the members carry out, if there is one.
    pub hall: Option<PathBuf>,
    /// Whether the service manager passed the hall's socket.
    pub has_passed_socket: bool,
    /// The surroundings of its members, where a probe replaces the real ones.
    pub fakes: Option<Fakes>,
}

/// A host with its members.
pub struct Host {
    opener: Arc<Opener>,
    roster: Arc<Roster>,
    ingress: Arc<Ingress>,
    events: Arc<Hub>,
    hall: Option<Arc<Hall>>,
    /// The key of the only member of a host of one member.
    single: Option<MemberKey>,
    /// Read roots besides those of the configuration.
    sources: Vec<PathBuf>,
    /// The runtime of its sessions, if it is not the configuration's.
    agent: Option<Runtime>,
    /// The channel to the reconciler, which changes the roster of a serving host.
    reconciler: Option<mpsc::Sender<Renewal>>,
    /// The reconciler's task, which ends with the host.
    reconciling: Mutex<JoinSet<()>>,
}

impl Host {
    /// Finds the members, becomes their owner, opens their jobs and starts loading their components. `ingress` is the
    /// host's interface, if it will serve them; then, in roster mode, changes of the members' directories take effect
    /// from now on.
    ///
    /// When it returns, every member answers; jobs and components are still being loaded, and requests that need them
    /// wait.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`]. In roster mode a member that cannot be served is in the state `error`, and the others
    /// are served.
    pub async fn open(options: HostOptions, ingress: Option<Arc<Ingress>>) -> Result<Arc<Self>, OpenError> {
        let HostOptions { config, target, sources, agent, hall, has_passed_socket, fakes } = options;
        let permits = commissions::permits(&config);
        let (delegation, clock) = (config.delegation, Arc::new(SystemClock));
        let hall = hall.map(|home| {
            let limits = Arc::new(config.limits.clone());
            let git = fakes.as_ref().and_then(|fakes| fakes.git.clone());
            Hall::open(HallOptions { home, has_passed_socket, permits, delegation, git, limits, clock })
        });
        let hall = hall.transpose().map_err(|e| OpenError::Hall(e.to_string()))?;
        let approval = Arc::new(Approval::new(&config));
        let cluster = match (&config.cluster, &ingress) {
            (Some(options), Some(ingress)) => {
                Some(Cluster::join(options, &config, ingress.url()).await.map_err(OpenError::Cluster)?)
            }
            // A task without a server is this machine's alone.
            _ => None,
        };
        if let (Some(cluster), Some(hall)) = (&cluster, &hall)
            && let Err(why) = cluster.serve_hall(hall).await
        {
            cluster.leave().await;
            return Err(OpenError::Cluster(why));
        }
        let mut seals =
            cluster.as_ref().map_or_else(|| Seals::new(config.directory.clone()), |cluster| cluster.seals());
        if let Some(home) = hall.as_ref().map(|hall| hall.home()) {
            for from in home.former() {
                seals = seals.moved(from, home.path());
                if let Err(e) = approval.moved(from, home.path()) {
                    tracing::warn!("members of a home that was moved are new to this host: {e}");
                }
            }
        }
        let limits = Arc::new(config.limits.clone());
        let scopes = |hall: &Arc<Hall>| Scopes::open(hall.home().dir(), limits.clone(), Arc::new(SystemClock));
        let shared = hall.as_ref().map(scopes).transpose().map_err(|e| OpenError::Hall(e.to_string()))?.map(Arc::new);
        guild_confine::set_room(limits.processes_bytes);
        let named = sources.clone();
        let roots = read_roots(&config, sources)?;
        let runtimes = Runtimes::new(&config, fakes).map_err(OpenError::Config)?;
        let resources = Arc::new(Resources { sources: Sources::new(roots.clone()), runtimes });
        let mut config = config.with_agent(agent);
        if let Target::Members(path) = &target {
            config.members = Some(path.clone());
        }
        let config = Arc::new(config);
        let permits = Arc::new(Semaphore::new(limits.running_jobs as usize));
        let base = ingress.as_ref().map(|ingress| ingress.url());
        let ingress = ingress.unwrap_or_else(|| Arc::new(Ingress::of_this_machine(&config)));
        let roster = Arc::new(Roster::new(ingress.clone()));
        let events = match &cluster {
            None => Hub::new(&limits),
            Some(cluster) => Hub::of_log(cluster.log_id().to_owned(), &limits),
        };
        let mut context = HostContext {
            limits: limits.clone(),
            config: config.clone(),
            approval,
            resources: resources.clone(),
            ingress: ingress.clone(),
            seals: Arc::new(seals),
            resumptions: Arc::default(),
            permits,
            budget: MemoryBudget::new(&limits),
            toolboxes: Toolboxes::new(roster.offers(), Others::None, true),
            events: events.clone(),
            hall: hall.clone(),
            shared,
            cluster: cluster.clone(),
        };
        context.share();
        let loader = Arc::new(Loader::new(limits.clone(), config.dev.is_some()));
        let serves = base.is_some();
        let (mut one, mut loads) = (None, Vec::new());
        if let Target::Member(path) = &target {
            let found = discovery::single(path, config.members.as_deref(), &config).map_err(OpenError::Member)?;
            (context.toolboxes, loads) = neighbours::find(&roster, &found.key, &found.manifest, &context, serves);
            one = Some(found);
        }
        let context = RwLock::new(Arc::new(context));
        let opener = Arc::new(Opener { context, base, single: one.is_some(), loader, roster: roster.clone() });
        let (mut opened, mut single, mut published) = (Vec::new(), None, None);
        if let Some(found) = one {
            let (path, looked) = (found.key.to_string(), Ok(found.mark.clone()));
            let Some((member, load)) = opener.open(found, None).await? else {
                return Err(OpenError::Member(format!(
                    "member {path} has no `component` in its guild-member.json, so there is nothing to serve"
                )));
            };
            single = Some(member.key().clone());
            opened.push(Opened { path, looked, state: MemberState::Ready(member), load: Some(load) });
        }
        if let Target::Members(path) = &target {
            let unreadable = |source| OpenError::Members { path: path.clone(), source };
            if let Some(cluster) = &cluster {
                let mut members = cluster.published(path).map_err(unreadable)?;
                members.catch_up(&config, &opener.context().approval).await;
                published = Some(members);
            }
            let dir = open_directory(path).map_err(unreadable)?;
            let found = discovery::discover(&dir).map_err(unreadable)?;
            opened = join_all(found.into_iter().map(|found| opener.open_found(found, None))).await;
            for Opened { path, state, .. } in &opened {
                if let MemberState::Error(reason) = state {
                    tracing::error!(member = path, "the member is not in service: {reason}");
                }
            }
            let known = |key: &str| opened.iter().any(|opened| opened.path == key);
            for key in config.keys_without_member(known) {
                tracing::warn!("guild.toml has [member.{key:?}], and there is no such member");
            }
        }
        roster.begin(opened.iter().map(|opened| (opened.path.clone(), opened.state.clone())));
        let looking = spawn_blocking(move || roots.as_ref().map(warn_of_roots));
        let swept = spawn_blocking(move || resources.runtimes.sweep()).await;
        if swept.is_err() {
            tracing::error!("what earlier sessions left could not be removed");
        }
        // A host answers meanwhile. The report of a single job comes after the warnings, unless the check takes long.
        if !serves {
            let _ = tokio::time::timeout(LOOKING, looking).await;
        }
        let mut reconciling = JoinSet::new();
        start(&opener.loader, &mut opened, loads);
        let mut renewals = None;
        if serves {
            let (sender, received) = mpsc::channel(1);
            renewals = Some(sender);
            let members = if let Target::Members(path) = target { Some(path) } else { None };
            let reconciler = Reconciler::new(opener.clone(), members, opened, received);
            reconciling.spawn(reconciler.run());
            reconciling.spawn(upkeep::run(opener.clone()));
        }
        if let Some(published) = published {
            let opener = opener.clone();
            reconciling.spawn(published.follow(move || {
                let context = opener.context();
                (context.config.clone(), context.approval.clone())
            }));
        }
        if let Some(cluster) = &cluster {
            reconciling.spawn(cluster.clone().compact());
            reconciling.spawn(cluster.clone().follow(events.clone()));
            let configured = opener.clone();
            reconciling.spawn(cluster.clone().tell_settings(move || configured.context().config.clone()));
            cluster.caught_up().await;
            let (opener, places) = (opener.clone(), opener.clone());
            let reserve = move |member: &MemberKey, needs: &Needs| {
                let slot = places.context().resources.runtimes.get(needs.runtime.parse().ok()?).ok()?;
                slot.queue.try_acquire(member, 1)
            };
            reconciling.spawn(cluster.clone().take_jobs(move || room(&opener), reserve));
        }
        if let Some(hall) = &hall {
            hall.set_tidy_after(config.tidy_after);
            let begun = hall.begin_work(Arc::new(Commissions::new(roster.clone(), config.file.clone()))).await;
            begun.map_err(|e| OpenError::Hall(e.to_string()))?;
        }
        Ok(Arc::new(Self {
            opener,
            roster,
            ingress,
            events,
            hall,
            single,
            sources: named,
            agent,
            reconciler: renewals,
            reconciling: Mutex::new(reconciling),
        }))
    }

    /// The use of the queues of sessions and of component calls by name.
    pub fn queue_loads(&self) -> Vec<(&'static str, QueueLoad)> {
        let calls = self.opener.loader.sandbox().map(Sandbox::queue_loads);
        self.opener.context().resources.runtimes.queue_loads().into_iter().chain(calls.into_iter().flatten()).collect()
    }

    /// Waits until the other hosts of its cluster have declared this host dead, and tells why: all its jobs are theirs
    /// then, and it has to end. It waits for ever on a host without a cluster.
    pub async fn died(&self) -> String {
        match &self.opener.context().cluster {
            Some(cluster) => cluster.died().await,
            None => std::future::pending().await,
        }
    }

    /// Hands the jobs of this host over to others of its cluster at the ends of their turns, which takes a minute at most.
    /// A host without a cluster has nobody to hand them to.
    pub async fn drain(&self) {
        let Some(cluster) = self.opener.context().cluster.clone() else { return };
        let idle = async {
            let members: Vec<_> = self.members().values().filter_map(MemberEntry::member).cloned().collect();
            join_all(members.into_iter().map(|member| spawn_blocking(move || member.give_idle_back()))).await;
        };
        cluster.drain(idle).await;
    }

    /// The name and the address of the host that serves the hall of the cluster; `None` on that host, and on one without a
    /// cluster.
    ///
    /// # Errors
    ///
    /// Returns a sentence when no host serves the hall.
    pub fn hall_elsewhere(&self) -> Option<Result<(String, String), String>> {
        let context = self.opener.context();
        let cluster = context.cluster.as_ref().filter(|_| self.hall.is_none())?;
        let found = cluster.hall_elsewhere().map(|host| (host.owner.host, host.card.url));
        Some(found.ok_or_else(|| {
            "no host of the cluster serves the hall now; attempts and meetings wait for a host with --hall".to_owned()
        }))
    }

    /// Waits until the host has heard of all that other hosts of its cluster have stored about jobs before. It does not
    /// wait long, and not at all on a host without a cluster.
    pub async fn hear_all(&self) {
        if let Some(cluster) = &self.opener.context().cluster {
            cluster.hear_all().await;
        }
    }

    /// The state of the cluster that the host belongs to; none for a host on its own.
    pub async fn cluster(&self) -> Option<ClusterView> {
        let cluster = self.opener.context().cluster.clone()?;
        Some(cluster.view().await)
    }

    /// Whether the host belongs to a cluster.
    pub fn is_in_cluster(&self) -> bool {
        self.opener.context().cluster.is_some()
    }

    /// The figures of the cluster that the host belongs to.
    pub fn cluster_figures(&self) -> Option<ClusterFigures> {
        self.opener.context().cluster.as_ref().map(|cluster| cluster.figures())
    }

    /// Whether the host may begin something: always, unless it is cut off from its cluster.
    pub fn may_begin(&self) -> bool {
        self.opener.context().cluster.as_ref().is_none_or(|cluster| cluster.may_begin())
    }

    /// The present limits of this host.
    pub fn limits(&self) -> Arc<Limits> {
        self.opener.limits()
    }

    /// The present configuration of this host.
    pub fn config(&self) -> Arc<Config> {
        self.opener.context().config.clone()
    }

    /// Prepares another configuration without changing anything yet. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the configuration cannot be put in service.
    pub(crate) fn prepare(&self, config: Config) -> Result<Prepared, String> {
        let old = self.opener.context();
        let config = config.for_running(&old.config);
        let roots = read_roots(&config, self.sources.clone()).map_err(|e| OpenError::from(e).to_string())?;
        let runtimes = old.resources.runtimes.renewed(&config)?;
        let rules = self.ingress.prepare(&config).map_err(|e| e.to_string())?;
        let approval = Arc::new(Approval::new(&config));
        let mut config = config.with_agent(self.agent);
        // The directory of members changes only at the next start.
        config.members.clone_from(&old.config.members);
        let config = Arc::new(config);
        let limits = Arc::new(config.limits.clone());
        let resources = Arc::new(Resources { sources: Sources::new(roots.clone()), runtimes });
        let mut context = HostContext { limits, config, approval, resources, ..(*old).clone() };
        let mut loads = Vec::new();
        if let Some(member) = self.single() {
            let (key, manifest, serves) = (member.key(), member.manifest(), self.opener.base.is_some());
            (context.toolboxes, loads) = neighbours::find(&self.roster, key, manifest, &context, serves);
        }
        Ok(Prepared { context, rules, loads, roots })
    }

    /// Puts a prepared configuration in service, for all members at once. Jobs and requests under way keep the one that
    /// they began with.
    ///
    /// # Errors
    ///
    /// Returns an error when the configuration cannot be put in service. Nothing has changed then.
    pub(crate) async fn renew(&self, prepared: Prepared) -> Result<(), String> {
        let stopping = || "the host is stopping".to_owned();
        let reconciler =
            self.reconciler.as_ref().ok_or("this process serves no member, so it has nothing to reload")?;
        let (done, outcome) = oneshot::channel();
        let roots = prepared.roots.clone();
        reconciler.send(Renewal { prepared, done }).await.map_err(|_| stopping())?;
        outcome.await.map_err(|_| stopping())??;
        if let Some(hall) = &self.hall {
            let config = self.config();
            hall.permit(commissions::permits(&config));
            hall.set_delegation(config.delegation);
            hall.set_tidy_after(config.tidy_after);
            self.opener.context().share();
        }
        // Nobody waits for the check of the roots.
        drop(spawn_blocking(move || roots.as_ref().map(warn_of_roots)));
        Ok(())
    }

    /// The present state of the only member of a host of one member.
    pub fn single(&self) -> Option<Arc<Member>> {
        self.member(self.single_key()?)
    }

    /// The key of the only member of a host of one member.
    pub fn single_key(&self) -> Option<&str> {
        self.single.as_ref().map(MemberKey::as_str)
    }

    /// The member of that key, if it is served, in its present state for one request or one job.
    pub fn member(&self, key: &str) -> Option<Arc<Member>> {
        match self.roster.now().state(key) {
            Some(MemberState::Ready(member)) => Some(member),
            _ => None,
        }
    }

    /// The roster of served members.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// All present members, by key.
    pub fn members(&self) -> Arc<Members> {
        self.roster.now().members()
    }

    /// Ends the reconciler, and waits for that: after that, dropping the host drops the members. The next host knows
    /// that this one stopped cleanly, unless that cannot be stored in time: the store of a cluster may be away for long.
    pub async fn end(&self) {
        let ended = timeout(ENDING, async {
            self.reconciling.lock().await.shutdown().await;
            if let Some(cluster) = &self.opener.context().cluster {
                cluster.leave().await;
            }
            let resumptions = self.opener.context().resumptions.clone();
            let _ = spawn_blocking(move || resumptions.end()).await;
        });
        if ended.await.is_err() {
            tracing::warn!("this host stops without having told so, since what it did last cannot be stored");
        }
    }

    /// The options with which a check finds what this host finds.
    pub fn examination(&self) -> Examination {
        let config = self.config();
        Examination {
            members: config.members.clone().filter(|_| self.single.is_none()),
            config: (*config).clone(),
            sources: self.sources.clone(),
            agent: self.agent,
            hall: self.hall.as_ref().map(|hall| hall.home().path().to_owned()),
            serves_hall: self.hall.is_some(),
            online: false,
        }
    }

    /// The limits whose use is counted, with what is in use now.
    pub fn limits_in_use(&self) -> [(&'static str, u64); 4] {
        let context = self.opener.context();
        let free = u64::try_from(context.permits.available_permits()).unwrap_or(u64::MAX);
        [
            ("running_jobs", u64::from(context.limits.running_jobs).saturating_sub(free)),
            ("running_bytes", context.budget.taken()),
            ("requests_bytes", self.ingress.memory_in_use()),
            ("listeners", self.events.subscribers()),
        ]
    }

    /// The interface for requests.
    pub fn ingress(&self) -> &Arc<Ingress> {
        &self.ingress
    }

    /// The events of this host.
    pub fn events(&self) -> &Arc<Hub> {
        &self.events
    }

    /// The hall whose commissions the members carry out, if there is one.
    pub fn hall(&self) -> Option<&Arc<Hall>> {
        self.hall.as_ref()
    }

    /// Counts the changes of the served members and of their tools.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.roster.changes()
    }
}

/// Reads jobs and loads components, in the background.
fn start(loader: &Arc<Loader>, opened: &mut [Opened], loads: Vec<Load>) {
    for Opened { state, .. } in opened.iter() {
        let MemberState::Ready(member) = state else { continue };
        let (loader, member) = (loader.clone(), member.clone());
        tokio::spawn(async move { loader.in_turn(move || member.load_jobs()).await });
    }
    for load in opened.iter_mut().filter_map(|opened| opened.load.take()).chain(loads) {
        tokio::spawn(loader.clone().load(load));
    }
}

/// Warns of read roots without files for sessions. It blocks.
fn warn_of_roots(roots: &ReadRoots) {
    match roots.look(1) {
        Ok(looked) => {
            let path = |name: &str| roots.paths().find(|(other, _)| *other == name).map(|(_, path)| path.display());
            for root in looked {
                if let (Some(problem), Some(path)) = (root.problem(), path(&root.name)) {
                    let advice = match root.unreadable {
                        Some(_) => "; check its permissions, or take it out of `[[roots]]` in guild.toml and --sources",
                        None => "",
                    };
                    tracing::warn!("the read root {:?} ({path}) {problem}{advice}", root.name);
                }
            }
        }
        Err(error) => tracing::warn!("the read roots could not be looked at: {error}"),
    }
}

/// The jobs that the host can carry out now, for the other hosts of its cluster.
fn room(opener: &Opener) -> Room {
    let context = opener.context();
    let most = u32::try_from(context.permits.available_permits()).unwrap_or(u32::MAX);
    let places = Runtime::ALL.iter().filter_map(|runtime| {
        let load = context.resources.runtimes.get(*runtime).ok()?.queue.load();
        let waiting = u32::try_from(load.waiting).unwrap_or(u32::MAX);
        Some((runtime.to_string(), load.permits.saturating_sub(load.held).saturating_sub(waiting).min(most)))
    });
    let members = opener.roster.now().members();
    let loaded = members.iter().filter_map(|(key, entry)| {
        let component = entry.member()?.component();
        Some((key.clone(), component.ready()?.plugin.sha256().to_owned()))
    });
    Room { places: places.collect(), members: loaded.collect() }
}
