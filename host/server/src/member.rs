//! A member whose jobs this host keeps: what the wire, the command line and the tests call.

use std::{
    collections::HashMap,
    io::{self, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use guild_contract::{
    Bounds, Grants, JobId, Limits, Manifest, MemberKey,
    manifest::Interface,
    rpc::{CancelView, Deleted, DispatchParams, Dispatched, ListParams, ResultView, code},
};
use guild_jobs::{
    Condense, Condensed, Condenser, JobStore, MemoryStore, NewJob, OwnerLock, RunningJob, StoreError, StoreOptions,
    SystemClock,
    activation::{Accepted, Activation, MemoryNote, Plan, Request},
    session::{Account, Meter, Wanted, session_limits},
};
use guild_sandbox::{ActivateScope, CallError, Plugin};
use rustix::fs::OFlags;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Runtime},
    discovery::FoundMember,
    plugins::Component,
    reach::{Reach, Sources, ceiling},
    resume::Resumer,
    rpc::RpcError,
    runtimes::Runtimes,
    work::{self, Commission},
};

/// The member's own text: who this worker is. It is read at each activation, so an edit holds from the next job on.
const POSTURE: &str = "posture.md";
/// A posture is a prompt; what is longer is a mistake.
const POSTURE_BYTES: u64 = 256 * 1024;
/// How long a cancel waits for the job's work to be gone.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// A member that this host owns and serves.
pub struct Member {
    pub(crate) key: MemberKey,
    pub(crate) manifest: Manifest,
    pub(crate) dir: Dir,
    pub(crate) store: Arc<JobStore>,
    pub(crate) memory: Arc<MemoryStore>,
    config_schema: Option<jsonschema::Validator>,
    component: watch::Receiver<Component>,
    pub(crate) means: Means,
    /// What its jobs reach, with what it is granted.
    pub(crate) reach: Reach,
    agent: Runtime,
    granted_tools: Vec<String>,
    under_way: Mutex<HashMap<String, CancellationToken>>,
    pub(crate) resumer: Arc<Resumer>,
    _owner: OwnerLock,
}

/// A job whose work is under way.
struct UnderWay {
    member: Arc<Member>,
    id: JobId,
    ended: CancellationToken,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.member.under_way().remove(self.id.as_str());
        self.ended.cancel();
    }
}

/// What the operator gives a member to work with.
#[derive(Clone)]
pub struct Means {
    /// The host's limits; for a member, with its own in place.
    pub limits: Arc<Limits>,
    /// What the operator allows.
    pub(crate) config: Arc<Config>,
    /// The read roots.
    pub(crate) sources: Arc<Sources>,
    /// What runs sessions, and the web.
    pub(crate) runtimes: Arc<Runtimes>,
    /// A place for each job that may run, over all members of the host.
    pub places: Arc<Semaphore>,
}

impl Member {
    /// Opens a member's jobs and memory. The caller holds its owner lock, and says where its component will come from.
    ///
    /// # Errors
    /// Where the manifest's `configSchema` is no JSON Schema, or the directories cannot be opened.
    pub(crate) fn open(
        found: FoundMember,
        means: Means,
        reach: Reach,
        component: watch::Receiver<Component>,
        owner: OwnerLock,
    ) -> Result<Arc<Self>, String> {
        let FoundMember { key, dir, manifest } = found;
        let config_schema = config_schema(&manifest)?;
        let clock = Arc::new(SystemClock);
        let (limits, directory) = (means.limits.clone(), |name| move |e: io::Error| format!("{name}/: {e}"));
        let options = StoreOptions { limits: limits.clone(), clock: clock.clone() };
        let store = JobStore::open(&dir, options).map_err(directory("jobs"))?;
        let memory = MemoryStore::open(&dir, limits, clock).map_err(directory("memory"))?;
        let agent = means.config.agent_of(&key)?;
        memory.set_condenser(condenser(agent, &means, &key), Handle::current());
        let member = Arc::new_cyclic(|this| Self {
            key,
            dir,
            store,
            memory,
            config_schema,
            component,
            granted_tools: reach.tools(),
            reach,
            means,
            manifest,
            agent,
            under_way: Mutex::default(),
            resumer: Arc::new(Resumer::new(this.clone())),
            _owner: owner,
        });
        member.store.set_resume(member.resumer.clone());
        Ok(member)
    }

    /// The member's key.
    pub fn key(&self) -> &MemberKey {
        &self.key
    }

    /// The member's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The member's jobs.
    pub fn store(&self) -> &Arc<JobStore> {
        &self.store
    }

    /// Reads the jobs that are there, and reconciles those that a host which is gone left running. It blocks.
    pub(crate) fn load_jobs(&self) {
        let report = self.store.load();
        tracing::info!(member = %self.key, ?report, "jobs loaded");
    }

    /// `worker/dispatch`: checks the dispatch, has the component plan it, makes the job and starts its work (REQ-WD-5).
    ///
    /// # Errors
    /// Invalid parameters and the plugin's refusal are -32602; a host at one of its limits is -32000. No job exists then.
    pub async fn dispatch(self: &Arc<Self>, params: DispatchParams) -> Result<Dispatched, RpcError> {
        self.dispatch_and(params, |_| ()).await
    }

    /// [`Self::dispatch`], which says so as soon as the job exists: also where its caller has gone away by then.
    pub(crate) async fn dispatch_and(
        self: &Arc<Self>,
        params: DispatchParams,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Dispatched, RpcError> {
        let limits = &self.means.limits;
        let wait_until = Instant::now() + Duration::from_secs(limits.dispatch_wait_seconds.into());
        let agent = self.agent(params.agent.as_deref())?;
        let request = self.request(params)?;
        let place = self.means.places.clone().try_acquire_owned().map_err(|_| {
            busy(format!(
                "the host runs limits.running_jobs = {} jobs; try again when one has ended",
                limits.running_jobs
            ))
        })?;
        let plugin = self.plugin(wait_until).await?;
        let activation = Arc::new(self.activation(request).await?);
        let scope = ActivateScope { memory: self.memory.clone(), files: self.reach.reader.files.clone(), wait_until };
        let activated = plugin.activate(&activation, scope).await.map_err(|e| match e {
            CallError::Busy(_) => busy(format!("{e}; try again")),
            e => RpcError::internal(e.to_string()),
        })?;
        let plan = activated.outcome.map_err(|refusal| RpcError::invalid_params(refusal.to_string()))?;
        let wanted = match &plan {
            Plan::Session(session) => Some(Wanted { model: session.model.as_deref(), ..self.wanted() }),
            Plan::OwnRun(_) => self.has_sessions().then(|| Wanted { later: true, ..self.wanted() }),
        };
        if let Some(wanted) = wanted {
            self.means.runtimes.ready(agent, &wanted).map_err(RpcError::invalid_params)?;
        }
        let plan = Accepted {
            agent: agent.to_string(),
            granted_tools: activation.granted_tools.clone(),
            grants: (*self.reach.grants).clone(),
            ceiling: activation.bounds,
            plan,
        };
        // A caller that goes away now must not leave a job behind that nobody carries out.
        let this = self.clone();
        let started = tokio::spawn(async move {
            let job = this.create(&activation, plan.clone(), activated.log, created).await?;
            let job_id = job.id().clone();
            let held = (place, this.begin(&job_id));
            let commission = match plan.plan {
                Plan::Session(_) => Commission::Session,
                Plan::OwnRun(_) => Commission::OwnRun(plugin, activation),
            };
            // The web of a job is its own: it keeps the pages that the job has read.
            let reach = this.reach_with(this.reach.grants.clone());
            tokio::spawn(work::carry_out(this, job, plan, reach, commission, held));
            Ok(Dispatched { job_id })
        });
        started.await.unwrap_or_else(|_| Err(RpcError::internal("the host is stopping")))
    }

    /// The runtime of a job: the member's, or the one that the caller asks for, where the operator lets callers choose.
    pub(crate) fn agent(&self, asked: Option<&str>) -> Result<Runtime, RpcError> {
        let Some(asked) = asked else { return Ok(self.agent) };
        let agent: Runtime = asked.parse().map_err(RpcError::invalid_params)?;
        if agent == self.agent || self.means.config.dispatch_agents.contains(&agent) {
            return Ok(agent);
        }
        Err(RpcError::invalid_params(format!(
            "the agent {agent} cannot be asked for: the operator allows it with dispatch_agents = [\"{agent}\"] in \
             guild.toml; without `agent`, the job runs on {}",
            self.agent
        )))
    }

    /// What every session of this member wants.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted { files: self.reach.reader.files.as_deref(), ..Wanted::default() }
    }

    /// What a job reaches that has these grants.
    fn reach_with(&self, grants: Arc<Grants>) -> Reach {
        Reach::new(grants, &self.means.sources, &self.means.runtimes)
    }

    /// What a job reaches that was accepted earlier, perhaps by a host with another policy: what was granted then, and
    /// still is.
    pub(crate) fn reach_of(&self, plan: &Accepted) -> Reach {
        self.reach_with(Arc::new((*self.reach.grants).clone().and(&plan.grants)))
    }

    /// Whether its component may start sessions of its own.
    fn has_sessions(&self) -> bool {
        self.reach.grants.has(Interface::Agent)
    }

    /// What the caller may say, within the limits and the member's own schema.
    fn request(&self, params: DispatchParams) -> Result<Request, RpcError> {
        let limits = &self.means.limits;
        let config = Value::Object(params.config.unwrap_or_default());
        let bounded = |name: &str, bytes: usize, limit: &str, max: u64| {
            if bytes as u64 <= max {
                return Ok(());
            }
            Err(RpcError::invalid_params(format!("`{name}` has {bytes} bytes, more than limits.{limit} = {max}")))
        };
        for (name, text) in [("description", &params.description), ("task", &params.task)] {
            if text.trim().is_empty() {
                return Err(RpcError::invalid_params(format!("Invalid params: `{name}` must not be empty")));
            }
        }
        bounded("description", params.description.len(), "description_bytes", limits.description_bytes)?;
        bounded("task", params.task.len(), "task_bytes", limits.task_bytes)?;
        bounded("config", config.to_string().len(), "config_bytes", limits.config_bytes)?;
        Ok(Request { description: params.description, task: params.task, config })
    }

    /// The member's own schema, which may be slow.
    fn check_config(&self, config: &Value) -> Result<(), RpcError> {
        let Some(schema) = &self.config_schema else { return Ok(()) };
        let problems: Vec<String> = schema.iter_errors(config).take(5).map(|e| describe(&e)).collect();
        if problems.is_empty() {
            return Ok(());
        }
        let what = format!("`config` is not what {} takes: {}", self.key, problems.join("; "));
        Err(RpcError::invalid_params(what))
    }

    /// The component, once it is loaded.
    async fn plugin(&self, until: Instant) -> Result<Arc<Plugin>, RpcError> {
        let mut component = self.component.clone();
        let loaded = component.wait_for(|component| !matches!(component, Component::Loading));
        match tokio::time::timeout_at(until.into(), loaded).await {
            Ok(Ok(component)) => match &*component {
                Component::Ready(plugin) => Ok(plugin.clone()),
                Component::Failed(why) => {
                    Err(RpcError::internal(format!("member {} is in state error: {why}", self.key)))
                }
                Component::Loading => Err(busy("the component is being loaded; try again".to_owned())),
            },
            Ok(Err(_)) => Err(RpcError::internal("the host is stopping")),
            Err(_) => Err(busy("the component is still being compiled; try again".to_owned())),
        }
    }

    async fn activation(self: &Arc<Self>, request: Request) -> Result<Activation, RpcError> {
        let this = self.clone();
        let config = request.config.clone();
        let (posture, memories) = blocking(move || {
            this.check_config(&config)?;
            let memories = if this.reach.grants.memory { this.memory.injection() } else { Vec::new() };
            Ok((this.posture()?, memories))
        })
        .await?;
        Ok(Activation {
            job: self.store.new_id(),
            request,
            posture,
            memories,
            granted_tools: self.granted_tools.clone(),
            toolbox_tools: Vec::new(),
            bounds: self.ceiling(),
        })
    }

    /// The smaller of manifest and operator.
    pub(crate) fn ceiling(&self) -> Bounds {
        let limits = &self.means.limits;
        self.manifest.component.as_ref().map_or_else(|| session_limits(limits), |spec| ceiling(spec, limits))
    }

    fn posture(&self) -> Result<String, RpcError> {
        let unreadable =
            |why: String| RpcError::internal(format!("{POSTURE} of member {} cannot be read: {why}", self.key));
        let mut options = OpenOptions::new();
        // A pipe in its place is opened without waiting for a writer, and refused.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = match self.dir.open_with(POSTURE, &options) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(e) => return Err(unreadable(e.to_string())),
        };
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return Err(unreadable("it is not a regular file".to_owned()));
        }
        let mut posture = String::new();
        file.take(POSTURE_BYTES + 1).read_to_string(&mut posture).map_err(|e| unreadable(e.to_string()))?;
        if posture.len() as u64 > POSTURE_BYTES {
            return Err(unreadable(format!("it is larger than {POSTURE_BYTES} bytes")));
        }
        Ok(posture)
    }

    async fn create(
        &self,
        activation: &Activation,
        plan: Accepted,
        log: Vec<String>,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Arc<RunningJob>, RpcError> {
        let Request { description, task, config } = activation.request.clone();
        let (store, new) = (self.store.clone(), NewJob { id: activation.job.clone(), description, task, config, plan });
        blocking(move || {
            let job = store.create(new)?;
            created(job.id());
            log.iter().for_each(|line| job.log(line));
            Ok(job)
        })
        .await
    }

    /// `worker/list`: the JSON of a [`guild_contract::rpc::JobList`].
    ///
    /// # Errors
    /// A filter that is no glob is -32602.
    pub async fn list(&self, params: ListParams) -> Result<Bytes, RpcError> {
        match self.store.list_now(&params) {
            Some(list) => Ok(list),
            None => self.in_store(move |store| store.list(&params)).await,
        }
    }

    /// `worker/status`: the JSON of a [`guild_contract::rpc::StatusView`].
    ///
    /// # Errors
    /// An unknown job is -32602 (REQ-WD-46).
    pub async fn status(&self, id: &str) -> Result<Bytes, RpcError> {
        if let Some(status) = self.store.status_now(id) {
            return Ok(status);
        }
        let id = id.to_owned();
        self.in_store(move |store| store.status(&id)).await
    }

    /// `worker/result` (REQ-WD-14).
    ///
    /// # Errors
    /// An unknown job, and one that has no result, is -32602.
    pub async fn result(&self, id: &str) -> Result<ResultView, RpcError> {
        let id = id.to_owned();
        self.in_store(move |store| store.result(&id)).await
    }

    /// `worker/cancel` (REQ-WD-16). When it answers, the transition is stored and no file of the job changes any more:
    /// a component that wrote its artifacts itself is gone.
    ///
    /// # Errors
    /// An unknown job is -32602.
    pub async fn cancel(&self, id: &str) -> Result<CancelView, RpcError> {
        let work = self.under_way().get(id).cloned();
        let id = id.to_owned();
        let cancelled = self.in_store(move |store| store.cancel(&id)).await?;
        if let Some(work) = work {
            // A host call that blocks cannot be interrupted; the answer does not wait for it for ever.
            let _ = tokio::time::timeout(LAST_WRITE, work.cancelled()).await;
        }
        Ok(cancelled)
    }

    /// The work of running jobs, by id: each token is cancelled when the work has ended.
    fn under_way(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the work of a job begins. It has ended when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, id: &JobId) -> impl Drop + Send + use<> {
        let ended = CancellationToken::new();
        self.under_way().insert(id.to_string(), ended.clone());
        UnderWay { member: self.clone(), id: id.clone(), ended }
    }

    /// `worker/delete` (REQ-WD-17).
    ///
    /// # Errors
    /// An unknown job, and one that is running or failed, is -32602.
    pub async fn delete(&self, id: &str) -> Result<Deleted, RpcError> {
        let id = id.to_owned();
        self.in_store(move |store| store.delete(&id)).await
    }

    async fn in_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&JobStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let store = self.store.clone();
        blocking(move || Ok(work(&store)?)).await
    }
}

/// Has the member's runtime condense its memories, when it has a place for that.
fn condenser(agent: Runtime, means: &Means, key: &MemberKey) -> Condenser {
    let (runtimes, key) = (means.runtimes.clone(), key.clone());
    let condense: Condense = Arc::new(move |notes, max_chars, bounds| {
        let (runtimes, key) = (runtimes.clone(), key.clone());
        Box::pin(async move { condense(&runtimes, agent, &key, notes, max_chars, bounds).await })
    });
    Condenser { agent: agent.to_string(), condense }
}

async fn condense(
    runtimes: &Runtimes,
    agent: Runtime,
    key: &MemberKey,
    notes: Vec<MemoryNote>,
    max_chars: usize,
    bounds: Bounds,
) -> Condensed {
    let slot = match runtimes.get(agent) {
        Ok(slot) => slot,
        Err(why) => return Condensed { text: Err(why), account: Account::default(), seconds: 0.0 },
    };
    let _place = slot.places.take(key).await;
    // Its time begins with its place.
    let (meter, begun) = (Meter::new(bounds), Instant::now());
    let until = meter.deadline() + work::GRACE;
    let text = tokio::time::timeout_at(until.into(), slot.runtime.condense(notes, max_chars, meter.clone())).await;
    let text = text.unwrap_or_else(|_| Err("it took too long".to_owned()));
    Condensed { text, account: meter.account(), seconds: begun.elapsed().as_secs_f64() }
}

/// Runs what blocks on storage where blocking is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(RpcError::internal("the host is stopping")))
}

fn busy(why: String) -> RpcError {
    RpcError::new(code::BUSY, why)
}

pub(crate) fn config_schema(manifest: &Manifest) -> Result<Option<jsonschema::Validator>, String> {
    let schema = manifest.component.as_ref().and_then(|component| component.config_schema.as_ref());
    let compiled = schema.map(jsonschema::validator_for).transpose();
    compiled.map_err(|e| format!("`component.configSchema` in guild-member.json is no JSON Schema: {e}"))
}

/// Where in `config`, and what is wrong there.
fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    if place.is_empty() { error.to_string() } else { format!("at {place}: {error}") }
}
