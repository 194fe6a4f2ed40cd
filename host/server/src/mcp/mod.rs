//! Implements MCP endpoints: their tools, resources, prompts and instructions, independent of protocol version and
//! transport.
//!
//! [`Endpoint`] is the address of a client's request, [`Server`] the service of the host there. Methods of clients
//! without a session arrive through `methods`, all others through `sdk`; both call this module.
//!
//! - [`bridge`]: the six methods of a worker as tools (REQ-WD-36).
//! - [`Toolbox`]: a member's own tools.
//! - [`roster`]: one set of tools for all members of a host.
//! - [`hall`]: the operations of a hall.
//! - [`resources`]: statuses, reports and artifacts of jobs.
//! - [`prompts`]: instructions about workers (REQ-WD-39).

mod bridge;
pub(crate) mod hall;
pub(crate) mod prompts;
pub(crate) mod resources;
mod roster;
mod search;
pub(crate) mod tool;
mod wait;

pub use self::tool::call_tool;
use std::{borrow::Cow, sync::Arc, time::Instant};

use guild_contract::{
    JobId, JobStatus,
    member::guidance::{self, May, Naming},
    rpc::{RpcError, code, method},
    text::nearest::{choices, nearest},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    hall::NO_HALL,
    input::params::{Params, shown, wrong_type},
    operations::worker,
};
use bridge::{Bridged, Dispatched};
use guild_auth::{Access, Audit, Caller, Operation, Refused};
use guild_hall::Hall;
use guild_roster::{
    blocking,
    host::Host,
    members::{
        member::Member,
        roster::{MemberEntry, MemberState, Reading},
    },
    to_json,
    tools::{
        component::Component,
        toolbox::{ToolFailure, Toolbox},
    },
};
use tool::{Called, Tool};

/// The method that calls a tool.
pub(crate) const TOOLS_CALL: Operation<'static> = Operation { name: "tools/call", access: Access::Calls };
/// The method that lists tools.
pub(crate) const TOOLS_LIST: Operation<'static> = Operation { name: "tools/list", access: Access::Open };

/// The error for a missing member, or a member that accepts no work.
const NO_MEMBER: &str = "there is no such member, or it does not accept work";

/// An MCP endpoint of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A member's own endpoint, with its tools.
    Member(String),
    /// A worker's dispatch bridge.
    Dispatch(String),
    /// The endpoint with a member's tools and its dispatch bridge.
    All(String),
    /// The endpoint with all members of the host.
    Roster,
    /// The hall's endpoint.
    Hall,
    /// The endpoint of the host itself, for its operator.
    Host,
}

impl Endpoint {
    /// The endpoint of a path, on a host for one member (whose key is `single`) or for a roster.
    pub(crate) fn at(path: &str, single: Option<&str>) -> Option<Self> {
        if path == "/mcp" {
            return Some(single.map_or(Self::Roster, |key| Self::Member(key.to_owned())));
        }
        if path == "/hall/mcp" {
            return Some(Self::Hall);
        }
        if path == "/host/mcp" {
            return Some(Self::Host);
        }
        let key = |prefix: &str| {
            let key = path.strip_prefix(prefix)?.strip_suffix("/mcp")?;
            (!key.is_empty() && key.split('/').count() <= 2).then(|| key.to_owned())
        };
        let here = |key: &String| single.is_none_or(|single| single == key);
        if let Some(key) = key("/dispatch/") {
            return here(&key).then_some(Self::Dispatch(key));
        }
        if let Some(key) = key("/all/") {
            return here(&key).then_some(Self::All(key));
        }
        if single.is_some() { None } else { key("/members/").map(Self::Member) }
    }

    /// The key of the member that the endpoint belongs to.
    pub(crate) fn member(&self) -> Option<&str> {
        match self {
            Self::Member(key) | Self::Dispatch(key) | Self::All(key) => Some(key),
            Self::Roster | Self::Hall | Self::Host => None,
        }
    }
}

/// The subject that an endpoint serves.
#[derive(Clone)]
pub enum Server {
    /// A member, with `worker/*` and the tools of its component.
    Member(Arc<Member>),
    /// The dispatch bridge of a worker.
    Dispatch(Arc<Member>),
    /// A member's tools and its dispatch bridge, under the names that a roster has for them.
    All(Arc<Member>),
    /// All members of a host: one set of tools for all workers, and the components' tools, each with its member's name
    /// as prefix.
    Roster(Arc<Reading>),
    /// The hall with its operations.
    Hall(Arc<Hall>),
    /// The host itself: its checks, limits and audit log.
    Host(Arc<Host>),
}

/// The reason that an endpoint does not exist or cannot be served.
pub(crate) enum Absent {
    /// HTTP 404: there is no such member, it is not a worker, or there is no hall. The text has the reason.
    NotFound(&'static str),
    /// The member cannot be served.
    Unavailable(Unavailable),
}

/// A member that cannot be served.
pub(crate) struct Unavailable {
    /// Its key.
    pub(crate) member: String,
    /// The reason, for its callers.
    pub(crate) reason: String,
}

/// The reason that a tool call has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller may not call the tool.
    Refused(Refused),
    /// There is no such tool, or its parameters are invalid.
    Rpc(RpcError),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// Options for how a tool call is answered.
#[derive(Default)]
pub(crate) struct CallOptions {
    /// Whether the caller accepts a task if the call would wait for a job.
    pub(crate) tasks: bool,
    /// Reports the worker's progress to the caller, while the call waits for a job or a turn.
    pub(crate) progress: Option<Box<Progress>>,
}

/// Reports the progress of a call to its caller.
pub(crate) type Progress = dyn Fn(String) + Send + Sync;

/// The outcome of a tool call.
pub(crate) enum Answered {
    /// The result.
    Called(Called),
    /// A running job, whose end is the result.
    Task(Arc<Member>, JobId),
}

/// The capabilities of a server besides tools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offers {
    /// Files and reports of jobs.
    pub(crate) resources: bool,
    /// Instructions about workers.
    pub(crate) prompts: bool,
    /// Jobs as tasks.
    pub(crate) tasks: bool,
}

/// The name of a server, in the form of MCP.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Identity<'a> {
    /// The name.
    pub(crate) name: Cow<'a, str>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<Cow<'a, str>>,
    /// The version.
    pub(crate) version: Cow<'a, str>,
}

impl Server {
    /// Finds the server of an endpoint.
    pub(crate) fn at(host: &Arc<Host>, reading: &Arc<Reading>, endpoint: &Endpoint) -> Result<Self, Absent> {
        match endpoint {
            Endpoint::Member(key) => served(reading, key).map(Self::Member),
            // Only workers have a bridge (REQ-WD-45).
            Endpoint::Dispatch(key) => match served(reading, key)? {
                member if member.manifest().is_worker() => Ok(Self::Dispatch(member)),
                _ => Err(Absent::NotFound(NO_MEMBER)),
            },
            Endpoint::All(key) => served(reading, key).map(Self::All),
            Endpoint::Roster => Ok(Self::Roster(reading.clone())),
            Endpoint::Hall => host.hall().cloned().map(Self::Hall).ok_or(Absent::NotFound(NO_HALL)),
            Endpoint::Host => Ok(Self::Host(host.clone())),
        }
    }

    /// The endpoint that the server belongs to.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let key = self.key().to_owned();
        match self {
            Self::Member(_) => Endpoint::Member(key),
            Self::Dispatch(_) => Endpoint::Dispatch(key),
            Self::All(_) => Endpoint::All(key),
            Self::Roster(_) => Endpoint::Roster,
            Self::Hall(_) => Endpoint::Hall,
            Self::Host(_) => Endpoint::Host,
        }
    }

    /// The key of the member that it serves; empty for many members.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Member(member) | Self::Dispatch(member) | Self::All(member) => member.key().as_str(),
            Self::Roster(_) | Self::Hall(_) | Self::Host(_) => "",
        }
    }

    /// The server's name and version.
    pub(crate) fn identity(&self) -> Identity<'_> {
        match self {
            Self::Member(member) | Self::All(member) => {
                let manifest = member.manifest();
                Identity { name: (&manifest.name).into(), title: None, version: (&manifest.version).into() }
            }
            Self::Dispatch(member) => Identity {
                name: member.key().dispatch_server().into(),
                title: Some(format!("Dispatch to {}", member.manifest().display_name).into()),
                version: (&member.manifest().version).into(),
            },
            Self::Roster(_) => Identity {
                name: "guild".into(),
                title: Some("Guild Hall's workers and tools".into()),
                version: env!("CARGO_PKG_VERSION").into(),
            },
            Self::Hall(_) => Identity {
                name: "guild-hall".into(),
                title: Some("Guild Hall's commissions".into()),
                version: env!("CARGO_PKG_VERSION").into(),
            },
            Self::Host(_) => Identity {
                name: "guild-host".into(),
                title: Some("The host of Guild Hall's members".into()),
                version: env!("CARGO_PKG_VERSION").into(),
            },
        }
    }

    /// The server's capabilities besides tools. A roster has all of them, since workers may be added.
    pub(crate) fn offers(&self) -> Offers {
        let (jobs, bridge) = match self {
            Self::Member(member) => (member.manifest().is_worker(), false),
            Self::All(member) => (member.manifest().is_worker(), member.manifest().is_worker()),
            Self::Dispatch(_) | Self::Roster(_) => (true, true),
            Self::Hall(_) | Self::Host(_) => (false, false),
        };
        Offers { resources: jobs, prompts: bridge, tasks: bridge }
    }

    /// Instructions about the workers, within the caller's permissions; none if there is no worker (REQ-WD-39).
    pub(crate) fn instructions(&self, caller: &Caller) -> Option<String> {
        let naming = match self {
            Self::Member(_) | Self::Hall(_) | Self::Host(_) => return None,
            Self::Dispatch(_) => Naming::Servers,
            Self::All(_) => Naming::Prefixes,
            Self::Roster(_) => Naming::Arguments,
        };
        let mut members = self.members(caller);
        // A component that failed to load accepts no work.
        members.retain(|member| !matches!(member.component(), Component::Failed(_)));
        let may = May { dispatch: caller.permits(Access::Dispatches), end: caller.permits(Access::Ends) };
        guidance::for_whom(members.iter().map(|member| (member.key(), member.manifest())), naming, may)
    }

    /// The server's members that the caller's token permits, by key.
    pub(crate) fn members(&self, caller: &Caller) -> Vec<Arc<Member>> {
        match self {
            Self::Member(member) | Self::Dispatch(member) | Self::All(member) => vec![member.clone()],
            Self::Roster(reading) => {
                let members = reading.members();
                let served = members.values().filter_map(MemberEntry::member);
                served.filter(|member| caller.is_for(member.key().as_str())).cloned().collect()
            }
            Self::Hall(_) | Self::Host(_) => Vec::new(),
        }
    }

    /// The [`Self::members`] that have jobs.
    pub(crate) fn workers(&self, caller: &Caller) -> Vec<Arc<Member>> {
        let mut members = self.members(caller);
        members.retain(|member| member.manifest().is_worker());
        members
    }

    /// The [`Self::workers`] that accept tasks: their components are in service or still loading.
    pub(crate) fn accepting(&self, caller: &Caller) -> Vec<Arc<Member>> {
        let mut workers = self.workers(caller);
        workers.retain(|worker| !matches!(worker.component(), Component::Failed(_)));
        workers
    }

    /// The tools that the caller's token permits, always in the same order.
    ///
    /// # Errors
    ///
    /// Returns an error when the component of a member's own endpoint is not in service. A roster leaves such a
    /// member's tools out.
    pub(crate) async fn tools(&self, caller: &Caller) -> Result<Vec<Tool>, RpcError> {
        match self {
            Self::Member(member) => match member.toolbox().filter(|_| caller.permits(Access::Calls)) {
                Some(toolbox) => own_tools(toolbox, toolbox.patience(), str::to_owned).await,
                None => Ok(Vec::new()),
            },
            Self::Dispatch(member) => Ok(bridge::tools(member, caller, str::to_owned).collect()),
            Self::All(member) => {
                let (key, mut tools) = (member.key(), Vec::new());
                if member.manifest().is_worker() {
                    tools.extend(bridge::tools(member, caller, |tool| key.dispatch_tool(tool)));
                }
                if let Some(toolbox) = member.toolbox().filter(|_| caller.permits(Access::Calls)) {
                    match own_tools(toolbox, toolbox.patience(), |tool| key.tool(tool)).await {
                        Ok(own) => tools.extend(own),
                        // The reason has been in the log since the component was loaded.
                        Err(e) => tracing::debug!(member = %key, "the tools of the member are left out: {}", e.message),
                    }
                }
                Ok(tools)
            }
            Self::Roster(_) => Ok(roster::tools(self, caller).await),
            Self::Hall(_) => Ok(hall::tools(caller).collect()),
            Self::Host(_) => Ok(Vec::new()),
        }
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// Returns an error when the caller may not call the tool, there is no such tool, or its component is not in
    /// service. An error that the tool itself reports is a result.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
    ) -> Result<Answered, Failure> {
        match self {
            Self::Member(member) => {
                let Some(toolbox) = member.toolbox() else {
                    caller.authorize(member.key().as_str(), TOOLS_CALL)?;
                    return Err(unknown(name, []).into());
                };
                call_own(caller, toolbox, name, name, arguments).await
            }
            Self::Dispatch(member) => {
                let bridged =
                    bridge::find(name).ok_or_else(|| unknown(name, bridge::BRIDGED.iter().map(|one| one.tool)))?;
                call_bridged(self, caller, member, bridged, arguments, options).await
            }
            Self::All(member) => {
                let key = member.key();
                if let (Some(toolbox), Some(tool)) = (member.toolbox(), name.strip_prefix(&key.tool(""))) {
                    return call_own(caller, toolbox, tool, name, arguments).await;
                }
                let dispatches = member.manifest().is_worker();
                match name.strip_prefix(&key.dispatch_tool("")).filter(|_| dispatches).and_then(bridge::find) {
                    Some(bridged) => call_bridged(self, caller, member, bridged, arguments, options).await,
                    None => Err(unknown(name, []).into()),
                }
            }
            Self::Roster(_) => roster::call(self, caller, name, arguments, options).await,
            Self::Hall(hall) => hall::call(hall, caller, name, arguments, options).await,
            Self::Host(_) => Err(unknown(name, []).into()),
        }
    }

    /// The worker with this job; none if the caller's token does not permit it.
    pub(crate) async fn job(&self, caller: &Caller, id: &str) -> Option<(Arc<Member>, JobId)> {
        let (workers, id) = (self.workers(caller), id.to_owned());
        let found = blocking(move || {
            Ok(workers.into_iter().find_map(|member| {
                let id = member.store().look_up(&id)?.id;
                Some((member, id))
            }))
        });
        found.await.ok().flatten()
    }
}

/// The member with this key, if it can be served.
fn served(reading: &Reading, key: &str) -> Result<Arc<Member>, Absent> {
    let unavailable = |reason| Err(Absent::Unavailable(Unavailable { member: key.to_owned(), reason }));
    match reading.state(key) {
        Some(MemberState::Ready(member)) => Ok(member),
        Some(MemberState::Error(reason)) => unavailable(format!("member {key} is in state error: {reason}")),
        Some(MemberState::Foreign) => {
            unavailable(format!("member {key} has no component: it is served by its own process, not by this host"))
        }
        None => Err(Absent::NotFound(NO_MEMBER)),
    }
}

/// The error for an unknown tool, which suggests the most similar of the `known` names.
fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> RpcError {
    let near = nearest(shown(name), known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    RpcError::invalid_params(format!("Unknown tool: {}{near}", shown(name)))
}

async fn own_tools(toolbox: &Toolbox, until: Instant, named: impl Fn(&str) -> String) -> Result<Vec<Tool>, RpcError> {
    let catalogue = toolbox.tools(until).await?;
    Ok(catalogue.tools.iter().map(|tool| Tool::of(tool, named(&tool.name))).collect())
}

async fn call_own(
    caller: &Caller,
    toolbox: &Toolbox,
    tool: &str,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Answered, Failure> {
    let key = toolbox.key().as_str();
    let authorized = caller.authorize(key, TOOLS_CALL)?;
    let work = async |audit: Audit| {
        let listed = || {
            if toolbox.lists(tool) == Some(true) {
                audit.of_tool(tool);
            }
        };
        // Before the call, in case the caller goes away; after it, for a component that was still loading.
        listed();
        let called = toolbox.call(tool, Value::Object(arguments)).await;
        listed();
        match called {
            Ok(value) => Ok(Called::of(value)),
            Err(ToolFailure::Failed(why)) => Ok(Called::failed(why)),
            Err(ToolFailure::Unknown(_)) => {
                let known = toolbox.names();
                let own = known.iter().map(|known| format!("{}{known}", name.strip_suffix(tool).unwrap_or_default()));
                let own: Vec<String> = own.collect();
                Err(unknown(name, own.iter().map(String::as_str)))
            }
            Err(ToolFailure::Unavailable(error)) => Err(error),
        }
    };
    Ok(Answered::Called(authorized.run(work).await?))
}

/// Advice about an unknown job id. It depends on whether the caller may see others' jobs at `server`.
fn about_unknown_job(server: &Server, caller: &Caller, job: &str) -> String {
    let mut owners = server.workers(caller);
    owners.retain(|worker| worker.store().brief(job).is_some());
    if owners.is_empty() {
        let list = match server {
            Server::All(member) => member.key().dispatch_tool("list"),
            _ => "list".to_owned(),
        };
        return format!("`{list}` lists the ids of the jobs");
    }
    let owners = choices(owners.iter().map(|worker| worker.key()));
    format!("it is a job of {owners}: name the worker in `{}`, or leave the argument out", bridge::WORKER)
}

/// Calls a tool of the dispatch bridge. `server` is the endpoint of the call.
async fn call_bridged(
    server: &Server,
    caller: &Caller,
    member: &Arc<Member>,
    bridged: &Bridged,
    mut arguments: Map<String, Value>,
    options: CallOptions,
) -> Result<Answered, Failure> {
    let key = member.key().as_str();
    let authorized = caller.authorize(key, bridged.method.operation())?;
    let has_agents = || !member.agents().is_empty();
    if let Err(why) = bridge::check_names(bridged.tool, &bridged.input, has_agents, &arguments) {
        return Ok(Answered::Called(Called::failed(why)));
    }
    let job = arguments.get(bridge::JOB).and_then(Value::as_str).map(str::to_owned);
    let refused = |mut error: RpcError| {
        if let Some(job) = job.filter(|job| member.store().brief(job).is_none())
            && error.code == code::INVALID_PARAMS
        {
            error.message = format!("{}; {}", error.message, about_unknown_job(server, caller, &job));
        }
        Called::from(error)
    };
    if bridged.method.row.name == method::RESULT {
        let work = async |audit: Audit| {
            let job = Params::of(arguments).job()?;
            audit.about(&job);
            worker::result(member, caller, &job).await
        };
        let done = authorized.run(work).await;
        return Ok(Answered::Called(done.map_or_else(refused, |done| Called::report(member.key(), done))));
    }
    if bridged.method.row.name != method::DISPATCH {
        let work = async |audit: Audit| match bridged.method.row.name {
            method::LIST => {
                let jobs = bridge::described(member, caller, Params::of(arguments).list()?).await?;
                Ok(to_json(&json!({"jobs": jobs})))
            }
            _ => bridged.method.call(member, caller, Ok(Params::of(arguments)), &audit).await,
        };
        let done = authorized.run(work).await;
        return Ok(Answered::Called(done.map_or_else(refused, |json| Called::of_json(&json))));
    }
    let work = async |audit: Audit| {
        let wait = match arguments.remove(bridge::WAIT) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(wait)) => wait,
            Some(other) => return Err(wrong_type(bridge::WAIT, "true or false", &other)),
        };
        Ok((worker::dispatch(member, caller, Params::of(arguments), &audit).await?.job_id, wait))
    };
    let (job_id, wait) = match authorized.run(work).await {
        Ok(made) => made,
        Err(error) => return Ok(Answered::Called(error.into())),
    };
    if !wait {
        let made = Dispatched { job_id, status: JobStatus::Running };
        return Ok(Answered::Called(Called::of_json(&to_json(&made))));
    }
    if options.tasks {
        return Ok(Answered::Task(member.clone(), job_id));
    }
    wait::until_ended(member, &job_id, options.progress.as_deref()).await;
    Ok(Answered::Called(ended(member, caller, &job_id).await))
}

/// The outcome of a job, for a call that waited for its end.
pub(crate) async fn ended(member: &Member, caller: &Caller, job: &JobId) -> Called {
    match worker::result(member, caller, job.as_str()).await {
        Ok(report) => Called::report(member.key(), report),
        Err(error) if error.code == code::INVALID_PARAMS => Called::failed(format!("{} (job {job})", error.message)),
        Err(error) => error.into(),
    }
}
