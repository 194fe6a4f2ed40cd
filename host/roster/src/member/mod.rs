//! A member whose jobs this host keeps: what the wire, the command line and the tests call.

mod resume;

use std::{
    io::{self, Read},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cap_std::fs::{OpenOptions, OpenOptionsExt};
use guild_config::Runtime;
use guild_contract::{
    Bounds, Grants, JobId, Manifest, MemberKey,
    json::parsed_bytes,
    manifest::Interface,
    rpc::{CancelView, Deleted, DispatchParams, Dispatched, ListParams, ResultView, RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use guild_jobs::{Accepted, JobStore, NewJob, RunningJob, StoreError};
use guild_sandbox::{ActivateScope, CallError, Plugin};
use guild_session::{
    activation::{Activation, Plan, Request},
    meter::session_limits,
    session::Wanted,
};
use rustix::fs::OFlags;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};
use tracing::Instrument as _;

use self::resume::Runner;
use crate::{
    blocking::blocking,
    component::{self, Component},
    condense,
    context::HostContext,
    data::MemberData,
    granted::ceiling,
    reach::Reach,
    schema::{self, Schema, config_schema},
    serving::Serving,
    toolbox::Toolbox,
    toolboxes::Offered,
    work::{self, JobRequest},
};

/// The member's own text: who this worker is. It is read at each activation, so an edit holds from the next job on.
const POSTURE: &str = "posture.md";
/// A posture is a prompt; what is longer is a mistake.
const POSTURE_BYTES: u64 = 256 * 1024;
/// How long a cancel waits for the job's work to be gone.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// A member that this host owns and serves, as its manifest and its component have it now. Where those change, another
/// `Member` over the same [`MemberData`] takes its place; whoever holds this one goes on with what it began with.
pub struct Member {
    /// What outlives such a change.
    pub(crate) data: Arc<MemberData>,
    pub(crate) manifest: Manifest,
    /// The SHA-256 of the manifest's bytes, in lower-case hexadecimal.
    pub(crate) manifest_sha256: String,
    config_schema: Option<Schema>,
    config_checks: Semaphore,
    pub(crate) component: watch::Receiver<Component>,
    pub(crate) context: HostContext,
    /// What its jobs reach, with what it is granted.
    pub(crate) reach: Reach,
    pub(crate) agent: Runtime,
    granted_tools: Vec<String>,
    toolbox: Option<Arc<Toolbox>>,
}

impl Member {
    /// A member as this manifest has it. It is the one in service once it [enters service](Self::enter_service). The caller says
    /// where its component will come from.
    ///
    /// # Errors
    /// Where the manifest's `configSchema` is no JSON Schema.
    pub(crate) fn new(
        data: Arc<MemberData>,
        (manifest, manifest_sha256): (Manifest, String),
        context: HostContext,
        reach: Reach,
        component: watch::Receiver<Component>,
    ) -> Result<Arc<Self>, String> {
        let config_schema = manifest.component.as_ref().map(config_schema).transpose()?.flatten();
        let agent = context.config.agent_of(&data.key)?;
        let granted_tools = reach.tools();
        let offers_tools = manifest.component.as_ref().is_some_and(|spec| spec.world.exports_toolbox());
        let toolbox = offers_tools.then(|| {
            Toolbox::new(
                data.key.clone(),
                data.memory.clone(),
                &reach,
                (&context.sources, &context.runtimes, &context.limits),
                component.clone(),
            )
        });
        let config_checks = Semaphore::new(schema::PLACES);
        Ok(Arc::new(Self {
            data,
            manifest,
            manifest_sha256,
            config_schema,
            config_checks,
            component,
            context,
            reach,
            agent,
            granted_tools,
            toolbox,
        }))
    }

    /// What this member is granted holds from now on for its directory, and interrupted jobs are resumed with it. Other
    /// processes are told how it is served.
    pub(crate) fn enter_service(self: &Arc<Self>) {
        let HostContext { config, sources, limits, runtimes, .. } = &self.context;
        let data = &self.data;
        data.tell(Serving::of(&data.key, &self.reach.grants, config, sources));
        data.store.set_limits(limits.clone());
        data.memory.set_limits(limits.clone());
        data.memory.set_condenser(condense::condenser(runtimes, self.agent, &data.key), Handle::current());
        data.interrupted.set_runner(Arc::new(Runner::new(self)));
    }

    /// The member's key.
    pub fn key(&self) -> &MemberKey {
        &self.data.key
    }

    /// The member's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its tools; none where its world exports no `toolbox`.
    pub fn toolbox(&self) -> Option<&Arc<Toolbox>> {
        self.toolbox.as_ref()
    }

    /// The tools of the toolboxes that its manifest names, all of them (REQ-WKR-12, REQ-WKR-13).
    ///
    /// # Errors
    /// See [`Toolboxes::resolve`].
    pub(crate) async fn offered(&self, until: Instant) -> Result<Offered, RpcError> {
        let named = self.manifest.component.as_ref().map_or(&[][..], |spec| &spec.toolboxes);
        self.context.toolboxes.resolve(self.key(), named, until).await
    }

    /// The limits that hold for it.
    pub fn limits(&self) -> &guild_contract::Limits {
        &self.context.limits
    }

    /// The member's jobs.
    pub fn store(&self) -> &Arc<JobStore> {
        &self.data.store
    }

    /// Reads the jobs that are there, and reconciles those that a host which is gone left running. It blocks.
    pub(crate) fn load_jobs(&self) {
        let report = self.data.store.load();
        let (recovered, unreadable) = (report.recovered.len(), report.unreadable.len());
        tracing::info!(member = %self.data.key, jobs = report.jobs, recovered, unreadable, "jobs loaded");
    }

    /// `worker/dispatch`: checks the dispatch, has the component plan it, makes the job and starts its work (REQ-WD-5).
    ///
    /// # Errors
    /// Invalid parameters and the plugin's refusal are -32602; a host at one of its limits is -32000; a component that is
    /// not in service, its own or a toolbox's that it needs, is -32603. No job exists then.
    pub async fn dispatch(self: &Arc<Self>, params: DispatchParams) -> Result<Dispatched, RpcError> {
        self.dispatch_and(params, |_| ()).await
    }

    /// [`Self::dispatch`], which says so as soon as the job exists: also where its caller has gone away by then.
    pub async fn dispatch_and(
        self: &Arc<Self>,
        params: DispatchParams,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Dispatched, RpcError> {
        let outcome = self.accept(params, created).await;
        match &outcome {
            Ok(Dispatched { job_id }) => tracing::debug!(member = %self.key(), job = %job_id, "dispatch accepted"),
            Err(RpcError { code, message, .. }) => {
                let why = one_line(message, LOGGED_CHARS);
                tracing::debug!(member = %self.key(), code, why, "dispatch refused");
            }
        }
        outcome
    }

    async fn accept(
        self: &Arc<Self>,
        params: DispatchParams,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Dispatched, RpcError> {
        let limits = &self.context.limits;
        let wait_until = Instant::now() + Duration::from_secs(limits.dispatch_wait_seconds.into());
        let agent = self.agent(params.agent.as_deref())?;
        let request = self.request(params)?;
        let place = self.context.places.clone().try_acquire_owned().map_err(|_| {
            RpcError::busy(format!(
                "the host runs limits.running_jobs = {} jobs; try again when one has ended",
                limits.running_jobs
            ))
        })?;
        let keep = |bytes: u64| self.context.kept.keep(&self.data.kept, bytes);
        let kept = keep(kept_of(&request))?;
        let plugin = self.plugin(wait_until).await?;
        let offered = self.offered(wait_until).await?;
        let activation = Arc::new(self.activation(request, &offered, wait_until).await?);
        let scope =
            ActivateScope { memory: self.data.memory.clone(), files: self.reach.reader.files.clone(), wait_until };
        let span = tracing::debug_span!("activate", member = %self.key(), job = %activation.job);
        let activated = plugin.activate(&activation, scope).instrument(span).await.map_err(|e| match e {
            CallError::Busy(_) => RpcError::busy(format!("{e}; try again")),
            e => RpcError::internal(e.to_string()),
        })?;
        let plan = activated.outcome.map_err(|refusal| RpcError::invalid_params(refusal.to_string()))?;
        let kept = (kept, keep(kept_for(&activation, &plan))?);
        let wanted = match &plan {
            Plan::Session(session) => Some((session.model.clone(), false)),
            Plan::OwnRun(_) => self.has_sessions().then_some((None, true)),
        };
        if let Some((model, later)) = wanted {
            let this = self.clone();
            let ready = move || this.ready(agent, model.as_deref(), later).map_err(RpcError::invalid_params);
            blocking(ready).await?;
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
            // A plan that names another one was refused.
            let no_tool = |name: String| RpcError::internal(format!("no toolbox has the tool {name:?}"));
            let job = this.create(&activation, plan.clone(), activated.log, created).await?;
            let job_id = job.id().clone();
            let held = (place, kept, this.data.begin(&job_id));
            let request = match &plan.plan {
                Plan::Session(session) => JobRequest::Session(offered.only(&session.toolbox_tools).map_err(no_tool)?),
                Plan::OwnRun(_) => JobRequest::OwnRun(plugin, activation),
            };
            // The web of a job is its own: it keeps the pages that the job has read.
            let reach = this.reach_with(this.reach.grants.clone());
            let served = (this.data.clone(), this.context.limits.clone(), this.context.runtimes.clone());
            tokio::spawn(work::carry_out(served, job, plan, reach, request, held));
            Ok(Dispatched { job_id })
        });
        started.await.unwrap_or_else(|_| Err(RpcError::internal("the host is stopping")))
    }

    /// The runtime of a job: the member's, or the one that the caller asks for, where the operator lets callers choose.
    pub(crate) fn agent(&self, asked: Option<&str>) -> Result<Runtime, RpcError> {
        let Some(asked) = asked else { return Ok(self.agent) };
        let agent: Runtime = asked.parse().map_err(RpcError::invalid_params)?;
        if agent == self.agent || self.context.config.dispatch_agents.contains(&agent) {
            return Ok(agent);
        }
        Err(RpcError::invalid_params(format!(
            "the agent {agent} cannot be asked for: the operator allows it with dispatch_agents = [\"{agent}\"] in \
             guild.toml; without `agent`, the job runs on {}",
            self.agent
        )))
    }

    /// The runtimes that a caller may ask for; none where there is no choice.
    pub fn agents(&self) -> Vec<String> {
        let others: Vec<&Runtime> =
            self.context.config.dispatch_agents.iter().filter(|agent| **agent != self.agent).collect();
        if others.is_empty() {
            return Vec::new();
        }
        others.into_iter().chain([&self.agent]).map(ToString::to_string).collect()
    }

    /// Whether a session with that model could start now; or, `later`, one that its component starts. It blocks.
    ///
    /// # Errors
    /// What to set or install.
    fn ready(&self, agent: Runtime, model: Option<&str>, later: bool) -> Result<(), String> {
        self.context.runtimes.ready(agent, &Wanted { model, later, ..self.wanted() }).map(drop)
    }

    /// What every session of this member wants.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted { files: self.reach.reader.files.as_deref(), ..Wanted::default() }
    }

    /// What a job reaches that has these grants.
    fn reach_with(&self, grants: Arc<Grants>) -> Reach {
        Reach::new(Some(self.key()), grants, &self.context.sources, &self.context.runtimes)
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
        let limits = &self.context.limits;
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

    /// Refuses what the member's own schema does not take.
    async fn check_config(&self, config: &Value, until: Instant) -> Result<(), RpcError> {
        let Some(schema) = &self.config_schema else { return Ok(()) };
        let taken = schema.check(config, &self.context.limits, &self.config_checks, until).await;
        taken.map_err(|refused| match refused {
            schema::Refused::Invalid(why) => {
                RpcError::invalid_params(format!("`config` is not what {} takes: {why}", self.data.key))
            }
            schema::Refused::Busy => RpcError::busy(format!(
                "the configurations of other dispatches to {} are being checked; try again",
                self.data.key
            )),
        })
    }

    /// Where its component is now.
    pub fn component(&self) -> Component {
        self.component.borrow().clone()
    }

    /// Whether its component is in service, once that is known.
    pub async fn is_in_service(&self) -> bool {
        self.loaded().await;
        self.component().ready().is_some()
    }

    /// Waits until its component is in service, or cannot be.
    pub async fn loaded(&self) {
        // An error says that the host is stopping.
        let _ = self.component.clone().wait_for(Component::has_ended).await;
    }

    /// The toolboxes that it names and whose components are still being loaded.
    pub fn toolboxes_loading(&self) -> Vec<String> {
        let named = self.manifest.component.as_ref().map_or(&[][..], |spec| &spec.toolboxes);
        let all = self.context.toolboxes.components(named).into_iter();
        all.filter(|(_, component)| !component.borrow().has_ended()).map(|(key, _)| key.to_string()).collect()
    }

    /// Waits until its component, and those of the toolboxes that it names, are in service or cannot be: as long as that
    /// takes. `compiling` is told what is compiled meanwhile.
    pub async fn prepared(&self, compiling: impl Fn(&str)) {
        let spec = self.manifest.component.as_ref();
        let own = spec.map(|spec| (spec.file.clone(), self.component.clone()));
        let toolboxes = self.context.toolboxes.components(spec.map_or(&[], |spec| &spec.toolboxes));
        let toolboxes = toolboxes.into_iter().map(|(key, component)| (format!("the toolbox {key}"), component));
        for (what, mut component) in own.into_iter().chain(toolboxes) {
            loop {
                match &*component.borrow_and_update() {
                    Component::Loading(None) => {}
                    Component::Loading(Some(_)) => compiling(&what),
                    Component::Ready(_) | Component::Failed(_) => break,
                }
                if component.changed().await.is_err() {
                    break;
                }
            }
        }
    }

    /// The component, once it is loaded.
    async fn plugin(&self, until: Instant) -> Result<Arc<Plugin>, RpcError> {
        Ok(component::ready(&self.component, self.key(), until).await?.plugin.clone())
    }

    async fn activation(
        self: &Arc<Self>,
        request: Request,
        offered: &Offered,
        until: Instant,
    ) -> Result<Activation, RpcError> {
        let this = self.clone();
        self.check_config(&request.config, until).await?;
        let (posture, memories) = blocking(move || {
            let memories = if this.reach.grants.memory { this.data.memory.injection() } else { Vec::new() };
            Ok((this.posture()?, memories))
        })
        .await?;
        Ok(Activation {
            job: self.data.store.new_id(),
            request,
            posture,
            memories,
            granted_tools: self.granted_tools.clone(),
            toolbox_tools: offered.definitions(),
            bounds: self.ceiling(),
        })
    }

    /// The smaller of manifest and operator.
    pub(crate) fn ceiling(&self) -> Bounds {
        let limits = &self.context.limits;
        self.manifest.component.as_ref().map_or_else(|| session_limits(limits), |spec| ceiling(spec, limits))
    }

    fn posture(&self) -> Result<String, RpcError> {
        let unreadable =
            |why: String| RpcError::internal(format!("{POSTURE} of member {} cannot be read: {why}", self.data.key));
        let mut options = OpenOptions::new();
        // A pipe in its place is opened without waiting for a writer, and refused.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = match self.data.dir.open_with(POSTURE, &options) {
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
        let (store, new) =
            (self.data.store.clone(), NewJob { id: activation.job.clone(), description, task, config, plan });
        blocking(move || {
            let job = store.create(new)?;
            created(job.id());
            log.iter().for_each(|line| job.log(line));
            Ok(job)
        })
        .await
    }

    /// The names of the tools of its component, once that is compiled, however long that takes.
    ///
    /// # Errors
    /// Where the component is broken.
    pub async fn tool_names(&self) -> Result<Vec<String>, RpcError> {
        let Some(toolbox) = self.toolbox() else { return Ok(Vec::new()) };
        let catalogue = loop {
            match toolbox.tools(toolbox.patience()).await {
                // It is still being compiled, for which there is a limit.
                Err(error) if error.code == code::BUSY => {}
                tools => break tools?,
            }
        };
        Ok(catalogue.tools.iter().map(|tool| tool.name.clone()).collect())
    }

    /// `worker/list`: the JSON of a [`guild_contract::rpc::JobList`].
    ///
    /// # Errors
    /// A filter that is no glob is -32602.
    pub async fn list(&self, params: ListParams) -> Result<Bytes, RpcError> {
        match self.data.store.list_now(&params) {
            Some(list) => Ok(list),
            None => self.in_store(move |store| store.list(&params)).await,
        }
    }

    /// `worker/status`: the JSON of a [`guild_contract::rpc::StatusView`].
    ///
    /// # Errors
    /// An unknown job is -32602 (REQ-WD-46).
    pub async fn status(&self, id: &str) -> Result<Bytes, RpcError> {
        if let Some(status) = self.data.store.status_now(id) {
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
        let work = self.data.under_way(id);
        let id = id.to_owned();
        let cancelled = self.in_store(move |store| store.cancel(&id)).await?;
        if let Some(work) = work {
            // A host call that blocks cannot be interrupted; the answer does not wait for it for ever.
            let _ = tokio::time::timeout(LAST_WRITE, work.cancelled()).await;
        }
        Ok(cancelled)
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
        let store = self.data.store.clone();
        blocking(move || Ok(work(&store)?)).await
    }
}

/// Bytes that the host keeps of a dispatch until its job has ended.
fn kept_of(Request { description, task, config }: &Request) -> u64 {
    (description.len() + task.len()) as u64 + parsed_bytes(config.to_string().as_bytes())
}

/// Bytes that it keeps besides, of what the component was told and has planned.
fn kept_for(activation: &Activation, plan: &Plan) -> u64 {
    let told = activation.memories.iter().map(|note| note.content.len()).sum::<usize>() + activation.posture.len();
    let planned = match plan {
        Plan::Session(session) => session.system_prompt.len() + session.prompt.len(),
        Plan::OwnRun(_) => 0,
    };
    (told + planned) as u64
}
