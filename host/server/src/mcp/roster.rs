//! Offers one set of tools for all members of a host, so that a hundred members cost a model hardly more than four.
//!
//! - The six tools of the [`bridge`] take the worker's name; `workers` lists the workers and the schema of their
//!   `config`.
//! - The components' tools are listed under the names that sessions use, up to `limits.listed_tools_bytes`. The tools
//!   beyond it are found with `find_tools`, and called with `call_tool` by clients that call only listed tools.

use std::{cmp::Reverse, collections::HashMap, sync::Arc, vec::IntoIter};

use guild_auth::{Access, Audit, Caller};
use guild_contract::{
    rpc::{RpcError, code, method},
    text::{
        harmless,
        nearest::{choices, either},
        one_line,
    },
};
use guild_roster::{blocking, members::member::Member, to_json, tools::toolbox::Toolbox};
use guild_session::tools::ToolDefinition;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    Absent, Answered, CallOptions, Failure, Server, TOOLS_LIST, Unavailable, about_unknown_job,
    bridge::{self, Argument, Bridged, Described, JOB, WORKER},
    call_bridged, call_own,
    search::Query,
    served,
    tool::{Annotations, Called, Tool},
};
use crate::{
    input::params::{Params, shown},
    operations::worker,
};

const WORKERS: &str = "workers";
const FIND_TOOLS: &str = "find_tools";
const CALL_TOOL: &str = "call_tool";
const QUERY: &str = "query";
const NAME: &str = "name";
const ARGUMENTS: &str = "arguments";

const OF_WORKERS: [Argument; 2] = [
    Argument::optional(WORKER, "A worker's name: answers with all of its details"),
    Argument::optional(QUERY, "Words: lists only the workers that match"),
];
const OF_FIND_TOOLS: [Argument; 1] = [Argument::required(QUERY, "Words from the tool's description or its name")];
const OF_CALL_TOOL: [Argument; 2] = [
    Argument::required(NAME, "The name from `find_tools`"),
    Argument::object(ARGUMENTS, "The arguments, by the tool's inputSchema"),
];

/// The maximum number of workers in one result.
const MOST_WORKERS: usize = 100;
/// Characters of a worker's description when many are listed.
const DESCRIPTION_CHARS: usize = 200;
/// The maximum number of jobs in one result, of all workers together.
const MOST_JOBS: usize = 100;
/// The maximum number of tools with schemas in one result, and their bytes. Further tools are only named.
const MOST_FOUND: usize = 10;
const FOUND_BYTES: usize = 16 * 1024;
/// The maximum number of tools that are only named.
const MOST_NAMED: usize = 50;

/// A component's tool, with its name at this endpoint.
struct Offered {
    name: String,
    definition: Arc<ToolDefinition>,
}

/// The tools that the caller's token permits, always in the same order.
pub(super) async fn tools(server: &Server, caller: &Caller) -> Vec<Tool> {
    let workers = server.workers(caller);
    let mut tools = Vec::new();
    if !workers.is_empty() {
        tools.push(own(
            WORKERS,
            "List workers",
            "Lists the workers with their own descriptions. With a name, returns that worker's whole description, and \
             the schema of its `config`.",
            Annotations::READS,
            &OF_WORKERS,
        ));
        tools.extend(bridge::tools_of_many(&workers, caller));
    }
    // A search for tools that the caller may not call is of no use.
    if !caller.permits(Access::Calls) {
        return tools;
    }
    let (listed, left) = within(offered(server, caller).await, caller.limits().listed_tools_bytes);
    if left > 0 {
        tools.push(own(
            FIND_TOOLS,
            "Find tools",
            &format!("Finds the tools that are not listed: {left}. Each has its schema."),
            Annotations::READS,
            &OF_FIND_TOOLS,
        ));
        tools.push(own(
            CALL_TOOL,
            "Call a tool",
            "Calls a tool that `find_tools` found.",
            Annotations { read_only_hint: false, destructive_hint: None, idempotent_hint: None },
            &OF_CALL_TOOL,
        ));
    }
    tools.extend(listed);
    tools
}

fn own(name: &str, title: &str, description: &str, annotations: Annotations, arguments: &[Argument]) -> Tool {
    Tool {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        input_schema: bridge::schema(arguments),
        output_schema: None,
        annotations,
    }
}

/// The tools of all components in service, by member. A name that several members share is left out.
async fn offered(server: &Server, caller: &Caller) -> Vec<Vec<Offered>> {
    let (mut all, mut until): (Vec<Vec<Offered>>, _) = (Vec::new(), None);
    for member in server.members(caller) {
        let Some(toolbox) = member.toolbox() else { continue };
        // Components that are still loading after this time are left out; clients are notified of them later.
        let until = *until.get_or_insert_with(|| toolbox.patience());
        match toolbox.tools(until).await {
            Ok(catalogue) => all.push(
                catalogue
                    .offered()
                    .map(|(_, tool)| Offered { name: tool.name.clone(), definition: tool.clone() })
                    .collect(),
            ),
            // The reason has been in the log since the component was loaded.
            Err(e) => tracing::debug!(member = %member.key(), "the tools of the member are left out: {}", e.message),
        }
    }
    let mut names: HashMap<String, u32> = HashMap::new();
    all.iter().flatten().for_each(|tool| *names.entry(tool.name.clone()).or_default() += 1);
    for (name, _) in names.iter().filter(|(_, count)| **count > 1) {
        tracing::warn!(
            "{name} would be a tool of several members, and is left out: rename the directory of one of them"
        );
    }
    all.iter_mut().for_each(|tools| tools.retain(|tool| names.get(&tool.name) == Some(&1)));
    all
}

/// The state of one member while tools are chosen for the list.
struct Turns {
    rest: IntoIter<Offered>,
    listed: Vec<Tool>,
    left: usize,
}

/// Chooses tools for a list of at most `most` bytes, and returns the number of those left out. The members take turns,
/// each with its next tool. The turns of a member end with its first tool that does not fit.
fn within(offered: Vec<Vec<Offered>>, most: u64) -> (Vec<Tool>, usize) {
    let mut all: Vec<Turns> = offered
        .into_iter()
        .map(|tools| Turns { left: tools.len(), rest: tools.into_iter(), listed: Vec::new() })
        .collect();
    let mut room = most;
    loop {
        let mut goes_on = false;
        for turns in &mut all {
            let Some(Offered { name, definition }) = turns.rest.next() else { continue };
            let tool = Tool::brief(&definition, name);
            let bytes = to_json(&tool).len() as u64;
            if bytes > room {
                turns.rest = Vec::new().into_iter();
                continue;
            }
            room -= bytes;
            turns.left -= 1;
            turns.listed.push(tool);
            goes_on = true;
        }
        if !goes_on {
            break;
        }
    }
    let left = all.iter().map(|turns| turns.left).sum();
    (all.into_iter().flat_map(|turns| turns.listed).collect(), left)
}

/// Calls a tool.
///
/// # Errors
///
/// See [`Server::call`].
pub(super) async fn call(
    server: &Server,
    caller: &Caller,
    name: &str,
    arguments: Map<String, Value>,
    options: CallOptions,
) -> Result<Answered, Failure> {
    let own = match name {
        WORKERS => Some(&OF_WORKERS[..]),
        FIND_TOOLS => Some(&OF_FIND_TOOLS[..]),
        CALL_TOOL => Some(&OF_CALL_TOOL[..]),
        _ => None,
    };
    if let Some(own) = own {
        // For a tool that is called by `call_tool`, the token is checked against the called tool.
        if name != CALL_TOOL {
            caller.authorize(server.key(), TOOLS_LIST)?;
        }
        if let Err(why) = bridge::check_names(name, &bridge::schema(own), || true, &arguments) {
            return Ok(Answered::Called(Called::failed(why)));
        }
        let params = Params::of(arguments);
        return match name {
            WORKERS => Ok(answered(about_workers(server, caller, params))),
            FIND_TOOLS => Ok(answered(find(server, caller, params).await)),
            _ => call_found(server, caller, params).await,
        };
    }
    if let Some(bridged) = bridge::find(name) {
        return Box::pin(call_worker(server, caller, bridged, arguments, options)).await;
    }
    match named(server, caller, name) {
        Some((toolbox, tool)) => call_own(caller, &toolbox, tool, name, arguments).await,
        None => Err(no_such(server, caller, name).into()),
    }
}

/// An error in a caller's arguments is returned as the tool's result.
fn answered(answer: Result<Called, RpcError>) -> Answered {
    Answered::Called(answer.unwrap_or_else(Called::from))
}

/// Resolves a tool name, if exactly one member has it: a member that is added later must not receive calls that were
/// meant for another. Members that the caller's token does not permit are invisible.
fn named<'a>(server: &Server, caller: &Caller, name: &'a str) -> Option<(Arc<Toolbox>, &'a str)> {
    // Components that are still loading may have the tool.
    let (mut found, mut perhaps) = (Vec::new(), Vec::new());
    for member in server.members(caller) {
        if let Some(toolbox) = member.toolbox()
            && let Some(tool) = name.strip_prefix(&member.key().tool(""))
        {
            match toolbox.lists(tool) {
                Some(true) => found.push((toolbox.clone(), tool)),
                Some(false) => {}
                None => perhaps.push((toolbox.clone(), tool)),
            }
        }
    }
    let mut named = if found.is_empty() { perhaps } else { found };
    named.pop().filter(|_| named.is_empty())
}

/// The error for an unknown tool, with a suggestion if one is similar.
fn no_such(server: &Server, caller: &Caller, name: &str) -> RpcError {
    let mut own = Vec::new();
    for member in server.members(caller) {
        let key = member.key();
        let of_bridge = name.strip_prefix(&key.dispatch_tool("")).and_then(bridge::find);
        if let Some(bridged) = of_bridge.filter(|_| member.manifest().is_worker()) {
            return RpcError::invalid_params(format!(
                "Unknown tool: {}; at this endpoint it is `{}` with {WORKER:?}: {:?}",
                shown(name),
                bridged.tool,
                key.as_str()
            ));
        }
        if let Some(toolbox) = member.toolbox().filter(|_| caller.permits(Access::Calls)) {
            own.extend(toolbox.names().iter().map(|tool| key.tool(tool)));
        }
    }
    // A name without its member's prefix, if it is most similar to a tool of the same member.
    let is_of = |own: &&String| own.split_once("__").is_some_and(|(_, tool)| tool == name);
    let meant = own.iter().find(is_of).map_or(name, String::as_str);
    let known = bridge::permitted(caller).map(|bridged| bridged.tool).chain([WORKERS]);
    let known: Vec<&str> = known.chain(own.iter().map(String::as_str)).collect();
    RpcError::invalid_params(format!("Unknown tool: {}; {}", shown(name), either(meant, known)))
}

/// A worker in a list of several.
#[derive(Serialize)]
struct Brief<'a> {
    worker: &'a str,
    description: String,
}

#[derive(Serialize)]
struct Briefs<'a> {
    workers: Vec<Brief<'a>>,
    /// The number of workers left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<usize>,
}

/// Full details of one worker.
#[derive(Serialize)]
struct About<'a> {
    worker: &'a str,
    name: String,
    description: String,
    /// The JSON Schema of its `config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Value>,
    /// The agents that a caller can choose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<String>,
}

fn about_workers(server: &Server, caller: &Caller, mut params: Params) -> Result<Called, RpcError> {
    let (worker, query) = (params.optional_text(WORKER)?, params.optional_text(QUERY)?);
    if let Some(worker) = worker {
        let worker = find_worker(server, caller, &worker)?;
        let manifest = worker.manifest();
        let about = About {
            worker: worker.key().as_str(),
            name: one_line(&manifest.display_name, DESCRIPTION_CHARS),
            description: harmless(&manifest.description).into_owned(),
            config: bridge::config_schema(&worker),
            agents: worker.agents(),
        };
        return Ok(Called::of_json(&to_json(&about)));
    }
    let workers = server.accepting(caller);
    let mut fitting: Vec<&Arc<Member>> = workers.iter().collect();
    if let Some(query) = query.as_deref().and_then(Query::of) {
        let score = |member: &Member| {
            let manifest = member.manifest();
            query.score(&[(member.key().as_str(), 3), (&manifest.display_name, 2), (&manifest.description, 1)])
        };
        let mut scored: Vec<_> = fitting.into_iter().map(|member| (score(member), member)).collect();
        scored.retain(|(score, _)| *score > 0);
        scored.sort_by_key(|(score, _)| Reverse(*score));
        fitting = scored.into_iter().map(|(_, member)| member).collect();
    }
    if fitting.is_empty() {
        let known = choices(workers.iter().map(|worker| worker.key()));
        return Ok(Called::text(if known.is_empty() {
            "There are no workers.".to_owned()
        } else {
            format!("No worker matches; the workers are {known}")
        }));
    }
    let more = fitting.len().checked_sub(MOST_WORKERS).filter(|more| *more > 0);
    let workers = fitting.into_iter().take(MOST_WORKERS).map(|member| Brief {
        worker: member.key().as_str(),
        description: one_line(&member.manifest().description, DESCRIPTION_CHARS),
    });
    Ok(Called::of_json(&to_json(&Briefs { workers: workers.collect(), more })))
}

/// Finds the worker with this name.
///
/// # Errors
///
/// Returns a text that lists the workers, or has the reason that the worker is not in service.
fn find_worker(server: &Server, caller: &Caller, name: &str) -> Result<Arc<Member>, RpcError> {
    let workers = server.workers(caller);
    if let Some(worker) = workers.iter().find(|worker| worker.key().as_str() == name) {
        return Ok(worker.clone());
    }
    if let Server::Roster(reading) = server
        && caller.is_for(name)
        && let Err(Absent::Unavailable(Unavailable { reason, .. })) = served(reading, name)
    {
        return Err(RpcError::internal(reason));
    }
    let accepting = server.accepting(caller);
    let known: Vec<&str> = accepting.iter().map(|worker| worker.key().as_str()).collect();
    Err(RpcError::invalid_params(match known.as_slice() {
        [] => "There are no workers".to_owned(),
        known => format!("Unknown worker: {}; {}", shown(name), either(name, known.iter().copied())),
    }))
}

/// Calls one of the six tools of the bridge.
async fn call_worker(
    server: &Server,
    caller: &Caller,
    bridged: &'static Bridged,
    mut arguments: Map<String, Value>,
    options: CallOptions,
) -> Result<Answered, Failure> {
    let refused = |error: RpcError| -> Result<Answered, Failure> {
        caller.authorize(server.key(), bridged.method.operation())?;
        Ok(Answered::Called(error.into()))
    };
    let has_agents = || server.workers(caller).iter().any(|worker| !worker.agents().is_empty());
    if let Err(why) = bridge::check_names(bridged.tool, &bridged.input_of_many, has_agents, &arguments) {
        return refused(RpcError::invalid_params(why));
    }
    let worker = arguments.remove(WORKER).map(|worker| Params::of(Map::from_iter([(WORKER.to_owned(), worker)])));
    let worker = worker.map_or(Ok(None), |mut params| params.optional_text(WORKER));
    let named = worker.and_then(|name| name.map(|name| find_worker(server, caller, &name)).transpose());
    let found = match (bridged.method.row.name, named) {
        (_, Err(error)) => Err(error),
        (method::LIST, Ok(named)) => {
            let workers = named.map_or_else(|| server.workers(caller), |worker| vec![worker]);
            return list(server, caller, &workers, Params::of(arguments)).await;
        }
        (_, Ok(Some(named))) => Ok(named),
        (method::DISPATCH, Ok(None)) => {
            let known = choices(server.accepting(caller).iter().map(|worker| worker.key()));
            Err(RpcError::invalid_params(format!("Invalid params: `{WORKER}` is missing; the workers are {known}")))
        }
        (_, Ok(None)) => match arguments.get(JOB).and_then(Value::as_str) {
            Some(job) => whose(server, caller, job),
            None => Err(Params::of(arguments.clone()).job().err().unwrap_or_else(|| RpcError::invalid_params(JOB))),
        },
    };
    match found {
        Ok(member) => call_bridged(server, caller, &member, bridged, arguments, options).await,
        Err(error) => refused(error),
    }
}

/// Finds the worker with this job.
///
/// # Errors
///
/// Returns an error when no worker or several workers have the job.
fn whose(server: &Server, caller: &Caller, job: &str) -> Result<Arc<Member>, RpcError> {
    let mut owners = server.workers(caller);
    owners.retain(|worker| worker.store().brief(job).is_some());
    match owners.as_slice() {
        [] => {
            let remedy = about_unknown_job(server, caller, job);
            Err(RpcError::invalid_params(format!("Unknown job ID: {}; {remedy}", shown(job))))
        }
        [one] => Ok(one.clone()),
        many => {
            let many = choices(many.iter().map(|worker| worker.key()));
            Err(RpcError::invalid_params(format!(
                "Several workers have a job {}: {many}; name the intended worker in `{WORKER}`",
                shown(job)
            )))
        }
    }
}

/// A job with its worker.
#[derive(Serialize)]
struct Job {
    worker: String,
    #[serde(flatten)]
    described: Described,
}

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<Job>,
    /// The number of jobs left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<usize>,
}

/// Lists the newest jobs of these workers.
async fn list(server: &Server, caller: &Caller, workers: &[Arc<Member>], params: Params) -> Result<Answered, Failure> {
    let key = match workers {
        [one] => one.key().as_str(),
        _ => server.key(),
    };
    let authorized = caller.authorize(key, worker::LIST.operation())?;
    let work = async |_: Audit| {
        let params = params.list()?;
        let (mut all, mut count) = (Vec::new(), 0);
        for worker in workers {
            let before = caller.reserved();
            let jobs = worker::jobs(worker, caller, params.clone()).await?;
            count += jobs.len();
            all.extend(jobs.into_iter().take(MOST_JOBS).map(|listed| {
                let made = worker.store().brief(listed.job_id.as_str());
                let made: Option<Timestamp> = made.and_then(|brief| brief.started_at.parse().ok());
                (made, Job { worker: worker.key().to_string(), described: Described::of(worker, listed) })
            }));
            // The list keeps no more jobs than the result has, for any number of workers.
            all.sort_by_key(|(made, _)| Reverse(*made));
            all.truncate(MOST_JOBS);
            caller.resize(before, 0)?;
        }
        let more = count.checked_sub(all.len()).filter(|more| *more > 0);
        Ok(Called::of_json(&to_json(&Jobs { jobs: all.into_iter().map(|(_, job)| job).collect(), more })))
    };
    Ok(answered(authorized.run(work).await))
}

/// A tool found by `find_tools`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Serialize)]
struct Findings<'a> {
    tools: Vec<Found<'a>>,
    /// The names of further tools that match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<&'a str>,
}

async fn find(server: &Server, caller: &Caller, mut params: Params) -> Result<Called, RpcError> {
    let text = params.text(QUERY)?;
    let query = Query::of(&text);
    let query = query.ok_or_else(|| RpcError::invalid_params(format!("Invalid params: `{QUERY}` has no words")))?;
    let offered: Vec<Offered> = offered(server, caller).await.into_iter().flatten().collect();
    // The search blocks, since there can be thousands of tools.
    blocking(move || Ok(findings(&offered, &text, &query))).await
}

fn findings(offered: &[Offered], text: &str, query: &Query) -> Called {
    let score = |tool: &Offered| {
        let definition = &tool.definition;
        let fields = definition.input_schema.get("properties").and_then(Value::as_object);
        let fields = fields.map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>().join(" "));
        let title = definition.title.as_deref().unwrap_or_default();
        let texts = [
            (tool.name.as_str(), 4),
            (title, 3),
            (definition.description.as_str(), 2),
            (&fields.unwrap_or_default(), 1),
        ];
        if tool.name == text.trim() { u32::MAX } else { query.score(&texts) }
    };
    let mut fitting: Vec<_> = offered.iter().map(|tool| (score(tool), tool)).filter(|(score, _)| *score > 0).collect();
    fitting.sort_by_key(|(score, _)| Reverse(*score));
    if fitting.is_empty() {
        return Called::text(match offered {
            [] => "There are no tools of components.".to_owned(),
            offered => format!("No tool matches; the tools are {}", choices(offered.iter().map(|tool| &tool.name))),
        });
    }
    let (mut tools, mut others, mut room) = (Vec::new(), Vec::new(), FOUND_BYTES);
    for (_, tool) in fitting {
        let definition = &tool.definition;
        let found =
            Found { name: &tool.name, description: &definition.description, input_schema: &definition.input_schema };
        let bytes = to_json(&found).len();
        if tools.len() < MOST_FOUND && (bytes <= room || tools.is_empty()) {
            room = room.saturating_sub(bytes);
            tools.push(found);
        } else if others.len() < MOST_NAMED {
            others.push(tool.name.as_str());
        } else {
            break;
        }
    }
    Called::of_json(&to_json(&Findings { tools, others }))
}

async fn call_found(server: &Server, caller: &Caller, mut params: Params) -> Result<Answered, Failure> {
    let mut read = || Ok::<_, RpcError>((params.text(NAME)?, params.object(ARGUMENTS)?.unwrap_or_default()));
    let called = match read() {
        Err(error) => Err(Failure::Rpc(error)),
        Ok((name, arguments)) => match named(server, caller, &name) {
            Some((toolbox, tool)) => call_own(caller, &toolbox, tool, &name, arguments).await,
            None if bridge::find(&name).is_some() || [WORKERS, FIND_TOOLS, CALL_TOOL].contains(&&*name) => {
                Err(RpcError::invalid_params(format!("{name} is a listed tool: call it directly, without {CALL_TOOL}"))
                    .into())
            }
            None => Err(no_such(server, caller, &name).into()),
        },
    };
    match called {
        // At this endpoint the invalid parameters are the tool's arguments.
        Err(Failure::Rpc(error)) if error.code == code::INVALID_PARAMS => Ok(Answered::Called(error.into())),
        other => other,
    }
}
