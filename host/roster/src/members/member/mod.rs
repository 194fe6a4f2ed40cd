//! Defines a member in service: its manifest, its component, and its grants.

mod attachments;
mod converse;
mod dispatch;
mod jobs;
mod resume;

use std::{sync::Arc, time::Instant};

use guild_config::Runtime;
use guild_contract::{
    Bounds, Grants, Manifest, MemberKey, MemberLimits, Narrowed, SpendError,
    hall::{Model, Overrides},
    manifest::ComponentSpec,
    rpc::{RpcError, code},
    text::nearest::choices,
};
use guild_hall::Attempt;
use guild_jobs::JobStore;
use guild_session::{meter::session_limits, session::Wanted};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

use self::resume::Runner;
use crate::{
    discovery::granted::ceiling,
    jobs::{condense, host_context::HostContext, member_data::MemberData},
    resources::{Reach, runtimes::may_spend, serving_options::Serving},
    tools::{
        component::Component,
        named_toolboxes::Offered,
        schema::{self, Schema, config_schema},
        toolbox::Toolbox,
    },
};

/// A member that this host owns and serves, as its manifest and its component have it now. Where those change, another
/// `Member` over the same [`MemberData`] replaces it; jobs and requests keep the one that they began with.
pub struct Member {
    /// The state that outlives such a change.
    pub(crate) data: Arc<MemberData>,
    pub(crate) manifest: Manifest,
    /// The SHA-256 of the manifest's bytes, in lower-case hexadecimal.
    pub(crate) manifest_sha256: String,
    config_schema: Option<Schema>,
    config_checks: Semaphore,
    pub(crate) component: watch::Receiver<Component>,
    /// The host's context, with the member's own limits.
    pub(crate) context: HostContext,
    pub(crate) grants: Arc<Grants>,
    /// The resources that its activations reach.
    reach: Reach,
    agent: Runtime,
    toolbox: Option<Arc<Toolbox>>,
}

impl Member {
    /// A member as this manifest has it. It is the one in service once it [enters service](Self::enter_service). The
    /// caller sends `component` where its component comes from.
    ///
    /// # Errors
    ///
    /// Returns an error when the manifest's `configSchema` is not a JSON Schema.
    pub(crate) fn new(
        data: Arc<MemberData>,
        (manifest, manifest_sha256): (Manifest, String),
        context: HostContext,
        grants: Arc<Grants>,
        component: watch::Receiver<Component>,
    ) -> Result<Arc<Self>, String> {
        let config_schema = manifest.component.as_ref().map(config_schema).transpose()?.flatten();
        let agent = context.config.agent_of(&data.key)?;
        let offers_tools = manifest.component.as_ref().is_some_and(|spec| spec.world.exports_toolbox());
        let toolbox = offers_tools.then(|| {
            Toolbox::new(
                data.key.clone(),
                data.memory.clone(),
                grants.clone(),
                context.resources.clone(),
                context.limits.clone(),
                component.clone(),
            )
        });
        Ok(Arc::new(Self {
            config_schema,
            config_checks: Semaphore::new(schema::PERMITS),
            reach: context.resources.reach(Some(&data.key), &grants),
            data,
            manifest,
            manifest_sha256,
            component,
            context,
            grants,
            agent,
            toolbox,
        }))
    }

    /// From now on, what this member is granted holds for its directory, and interrupted jobs are resumed with it.
    /// Other processes of the user can read how it is served.
    pub(crate) fn enter_service(self: &Arc<Self>) {
        let HostContext { config, limits, resources, .. } = &self.context;
        let data = &self.data;
        data.note_serving(Serving::of(&data.key, &self.grants, config, &resources.sources));
        data.store.set_limits(limits.clone());
        data.memory.set_limits(limits.clone());
        data.memory.set_condenser(
            condense::condenser(resources, &self.context.ingress, self.agent, &data.key),
            Handle::current(),
        );
        data.interrupted.set_runner(Arc::new(Runner::new(self)));
        // For a component still loading, its outcome decides.
        if self.component().ready().is_some() {
            data.interrupted.decide(Ok(()));
        }
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
    ///
    /// Returns the errors of [`Toolboxes::resolve`].
    pub(crate) async fn offered(&self, until: Instant) -> Result<Offered, RpcError> {
        self.context.toolboxes.resolve(self.key(), self.toolboxes(), until).await
    }

    /// The toolboxes that its manifest names.
    fn toolboxes(&self) -> &[MemberKey] {
        self.manifest.component.as_ref().map_or(&[], |spec| &spec.toolboxes)
    }

    /// The limits that hold for it.
    pub fn limits(&self) -> &guild_contract::Limits {
        &self.context.limits
    }

    /// The member's jobs.
    pub fn store(&self) -> &Arc<JobStore> {
        &self.data.store
    }

    /// Gives the jobs that have not begun here to the other hosts of the cluster. It blocks.
    pub(crate) fn give_idle_back(&self) {
        self.data.interrupted.give_back();
    }

    /// Reads the jobs that are there, and reconciles those that were interrupted by the end of a host. It blocks.
    pub(crate) fn load_jobs(&self) {
        let report = self.data.store.load();
        let (recovered, unreadable) = (report.recovered.len(), report.unreadable.len());
        tracing::info!(member = %self.data.key, jobs = report.jobs, recovered, unreadable, "jobs loaded");
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

    /// The bounds of its jobs: the smaller of the manifest's and the operator's. An attempt at a commission replaces
    /// the manifest's (REQ-WKR-19).
    pub(crate) fn ceiling_of(&self, attempt: Option<&Attempt>) -> Bounds {
        let limits = self.context_of(attempt).limits;
        self.spec_of(attempt).map_or_else(|| session_limits(&limits), |spec| ceiling(&spec, &limits))
    }

    /// Whether its sessions may begin to spend; see [`may_spend`].
    pub(crate) fn may_spend(&self, token: Option<&str>) -> Result<(), SpendError> {
        may_spend(&self.context.ingress, self.agent, token).map(drop)
    }

    /// The model of its sessions, where that is known.
    pub(crate) fn usual_model(&self) -> Option<String> {
        let runtime = self.context.resources.runtimes.get(self.agent).ok()?.runtime;
        runtime.usual_model().map(str::to_owned)
    }

    /// The models that its sessions can run now, with their runtime. It blocks.
    pub(crate) fn models(&self) -> Vec<Model> {
        let wanted = Wanted { later: true, ..Wanted::default() };
        let Ok(slot) = self.context.resources.runtimes.ready(self.agent, &wanted) else { return Vec::new() };
        let models = slot.runtime.models().into_iter();
        models.map(|name| Model { name, agent: self.agent.to_string() }).collect()
    }

    /// Checks that its sessions can run a model.
    ///
    /// # Errors
    ///
    /// Returns the reason, and the models that the sessions can run, when they cannot run this model.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), String> {
        let runtime = self.context.resources.runtimes.get(self.agent)?.runtime;
        runtime.check_model(model).map_err(|why| {
            let known = runtime.models();
            let known = if known.is_empty() { String::new() } else { format!(". It can run {}", choices(known)) };
            format!("{model:?} cannot run: {} runs on {}, where it {why}{known}", self.key(), self.agent)
        })
    }

    /// Cuts overrides to what the operator allows its jobs, whatever its manifest asks for. A sentence for each that
    /// was cut.
    pub(crate) fn cut(&self, overrides: &mut Overrides) -> Vec<String> {
        let Some(spec) = self.manifest.component.clone() else { return Vec::new() };
        let config = &self.context.config;
        let spec = ComponentSpec { resources: Bounds::default(), ..spec };
        let MemberLimits { limits, narrowed } = MemberLimits::of(self.key(), &spec, &config.policy, &config.limits);
        let whose = |name: &str| match narrowed.get(name) {
            Some(Narrowed::Operator(members)) => format!("limits.{name} of [member.\"{members}\"] in guild.toml"),
            _ => format!("limits.{name} in guild.toml"),
        };
        let mut cut = Vec::new();
        if let Some(turns) = overrides.max_turns.filter(|turns| *turns > limits.session_turns) {
            overrides.max_turns = Some(limits.session_turns);
            cut.push(format!("maxTurns {turns} is cut to {}, {}", limits.session_turns, whose("session_turns")));
        }
        if let Some(usd) = overrides.max_budget_usd.filter(|usd| *usd > limits.session_budget_usd) {
            overrides.max_budget_usd = Some(limits.session_budget_usd);
            let most = limits.session_budget_usd;
            cut.push(format!("maxBudgetUsd {usd} is cut to {most}, {}", whose("session_budget_usd")));
        }
        cut
    }

    /// US dollars that a job of an attempt with these overrides may spend; 0 on the built-in search, which costs
    /// nothing.
    pub(crate) fn budget_usd(&self, overrides: &Overrides) -> f64 {
        let Some(mut spec) = self.manifest.component.clone().filter(|_| self.agent != Runtime::Extractive) else {
            return 0.0;
        };
        spec.resources.max_budget_usd = overrides.max_budget_usd.or(spec.resources.max_budget_usd);
        let config = &self.context.config;
        MemberLimits::of(self.key(), &spec, &config.policy, &config.limits).limits.session_budget_usd
    }

    /// The context of its jobs.
    pub(crate) fn context_of(&self, attempt: Option<&Attempt>) -> HostContext {
        let context = self.context.clone();
        let Some((attempt, spec)) = attempt.zip(self.spec_of(attempt)) else { return context };
        if attempt.overrides.max_turns.is_none() && attempt.overrides.max_budget_usd.is_none() {
            return context;
        }
        let config = &context.config;
        let own = MemberLimits::of(self.key(), &spec, &config.policy, &config.limits);
        HostContext { limits: Arc::new(own.limits), ..context }
    }

    /// The resources that its jobs reach.
    ///
    /// # Errors
    ///
    /// Returns an error when an attempt's worktree cannot be read.
    pub(crate) fn reach_of(&self, attempt: Option<&Attempt>) -> Result<Reach, String> {
        match attempt {
            Some(attempt) => self.context.reach(self.key(), Some(attempt), None, &self.grants),
            None => Ok(self.reach.clone()),
        }
    }

    /// Its manifest's component, with the bounds of an attempt in place of its own.
    fn spec_of(&self, attempt: Option<&Attempt>) -> Option<ComponentSpec> {
        let mut spec = self.manifest.component.clone()?;
        if let Some(Overrides { max_turns, max_budget_usd, .. }) = attempt.map(|attempt| &attempt.overrides) {
            spec.resources.max_turns = max_turns.or(spec.resources.max_turns);
            spec.resources.max_budget_usd = max_budget_usd.or(spec.resources.max_budget_usd);
        }
        Some(spec)
    }

    /// The present state of its component.
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
        let all = self.context.toolboxes.components(self.toolboxes()).into_iter();
        all.filter(|(_, component)| !component.borrow().has_ended()).map(|(key, _)| key.to_string()).collect()
    }

    /// Waits until its component, and those of the toolboxes that it names, are in service or cannot be: as long as
    /// that takes. `compiling` is called with what is compiled meanwhile.
    pub async fn prepared(&self, compiling: impl Fn(&str)) {
        let own = self.manifest.component.as_ref().map(|spec| (spec.file.clone(), self.component.clone()));
        let toolboxes = self
            .context
            .toolboxes
            .components(self.toolboxes())
            .into_iter()
            .map(|(key, component)| (format!("the toolbox {key}"), component));
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

    /// The names of the tools of its component, once that is compiled, however long that takes.
    ///
    /// # Errors
    ///
    /// Returns an error when the component is broken.
    pub async fn tool_names(&self) -> Result<Vec<String>, RpcError> {
        let Some(toolbox) = self.toolbox() else { return Ok(Vec::new()) };
        let catalogue = loop {
            match toolbox.tools(toolbox.patience()).await {
                // It is still being compiled, for which there is a limit.
                Err(error) if error.code == code::BUSY => {}
                tools => break tools?,
            }
        };
        Ok(catalogue.names())
    }
}
