//! Offers the six methods of a worker as tools (REQ-WD-36), the dispatch bridge, for one worker or for all of them.
//!
//! A tool does the same as its method, with the same parameters and results, and requires the same token class.
//! `dispatch` has one more argument, `wait`; and a report is returned as Markdown.

use std::sync::LazyLock;

use guild_auth::{Access, Caller};
use guild_contract::{
    JobId, JobStatus,
    rpc::{ListParams, Listed, RpcError, method},
    text::{nearest::either, one_line},
};
use guild_roster::members::member::Member;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::tool::{Annotations, Tool};
use crate::{
    input::params::shown,
    operations::worker::{self, WorkerMethod},
};

/// A worker's method that is also a tool.
pub(crate) struct Bridged {
    pub(crate) tool: &'static str,
    pub(crate) method: &'static WorkerMethod,
    /// The JSON Schema of the arguments at an endpoint of one worker.
    pub(crate) input: Value,
    /// The JSON Schema of the arguments at an endpoint of many workers, including the worker's name.
    pub(crate) input_of_many: Value,
}

impl Bridged {
    fn of(method: &'static WorkerMethod) -> Self {
        let (input, input_of_many) = (input(method, false), input(method, true));
        Self { tool: method.row.tool_name(), method, input, input_of_many }
    }

    fn title(&self) -> Option<String> {
        self.method.row.tool.map(|tool| tool.title.to_owned())
    }

    /// The description for a model.
    fn description(&self) -> String {
        let text = self.method.row.text;
        match self.method.row.name {
            method::DISPATCH => format!("{text} With `{WAIT}`, answers with the report when the job has ended."),
            method::LIST => format!("{text} Each job is listed with the beginning of its description."),
            _ => text.to_owned(),
        }
    }

    fn is_dispatch(&self) -> bool {
        is_dispatch(self.method)
    }

    fn as_tool(&self, name: String, description: String, input_schema: Value) -> Tool {
        let annotations = match self.method.row.access {
            Access::Dispatches => Annotations::ADDS,
            Access::Ends => Annotations::ENDS,
            _ => Annotations::READS,
        };
        Tool { name, title: self.title(), description, input_schema, output_schema: None, annotations }
    }
}

fn is_dispatch(method: &WorkerMethod) -> bool {
    method.row.name == method::DISPATCH
}

/// The JSON Schema of a tool's arguments.
fn input(method: &WorkerMethod, of_many: bool) -> Value {
    let mut input = (method.input)();
    let Some(fields) = input.as_object_mut() else { return input };
    fields.remove("description");
    fields.insert("additionalProperties".to_owned(), false.into());
    let mut properties = Map::new();
    if of_many {
        let worker = match is_dispatch(method) {
            true => json!({"type": "string", "description": "The worker's name"}),
            false => json!({"type": "string"}),
        };
        properties.insert(WORKER.to_owned(), worker);
        if is_dispatch(method)
            && let Some(Value::Array(required)) = fields.get_mut("required")
        {
            required.insert(0, WORKER.into());
        }
    }
    if let Some(Value::Object(own)) = fields.get_mut("properties") {
        properties.append(own);
        if is_dispatch(method) {
            let about = "Answer with the report, when the job has ended. The job continues if the call is abandoned";
            properties.insert(WAIT.to_owned(), json!({"type": "boolean", "description": about}));
        }
        *own = properties;
    }
    input
}

/// An argument of a tool.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    kind: Kind,
    is_required: bool,
    description: &'static str,
}

/// The type of an argument.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Object,
}

impl Argument {
    /// A required text.
    pub(crate) const fn required(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: Kind::Text, is_required: true, description }
    }

    /// An optional text.
    pub(crate) const fn optional(name: &'static str, description: &'static str) -> Self {
        Self { is_required: false, ..Self::required(name, description) }
    }

    /// Changes the type of the argument.
    const fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// An optional object.
    pub(crate) const fn object(name: &'static str, description: &'static str) -> Self {
        Self::optional(name, description).of(Kind::Object)
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Object => json!({"type": "object"}),
        };
        if let Some(schema) = schema.as_object_mut().filter(|_| !self.description.is_empty()) {
            schema.insert("description".to_owned(), self.description.into());
        }
        schema
    }
}

/// The JSON Schema of an object with these arguments.
pub(crate) fn schema<'a>(arguments: impl IntoIterator<Item = &'a Argument>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for argument in arguments {
        properties.insert(argument.name.to_owned(), argument.schema());
        if argument.is_required {
            required.push(argument.name);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let Some(schema) = schema.as_object_mut().filter(|_| !required.is_empty()) {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

/// Rejects arguments that a tool does not have. Values are checked by the code that reads them. An `agent` is listed
/// only if there are several to choose from; otherwise the worker's own is still accepted.
///
/// # Errors
///
/// Returns a text that names the first unknown argument, the most similar known one, and all known ones.
pub(crate) fn check_names(
    tool: &str,
    input: &Value,
    has_agents: impl FnOnce() -> bool,
    given: &Map<String, Value>,
) -> Result<(), String> {
    let properties = input.get("properties").and_then(Value::as_object);
    let mut known: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    match given.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            if known.contains(&AGENT) && !has_agents() {
                known.retain(|known| *known != AGENT);
            }
            Err(format!("`{tool}` has no argument `{}`; {}", shown(name), either(name, known.iter().copied())))
        }
    }
}

/// The argument that `dispatch` has in addition to its method's parameters.
pub(crate) const WAIT: &str = "wait";
/// The argument that names a worker, at endpoints of many workers.
pub(crate) const WORKER: &str = "worker";
/// The argument that names a job.
pub(crate) const JOB: &str = "jobId";

/// The immediate result of `dispatch`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dispatched {
    pub(crate) job_id: JobId,
    /// The status of the new job, which runs.
    pub(crate) status: JobStatus,
}

const AGENT: &str = "agent";
const CONFIG: &str = "config";

/// The tools of the bridge, in the order in which they are listed.
pub(crate) static BRIDGED: LazyLock<[Bridged; 6]> = LazyLock::new(|| {
    [&worker::DISPATCH, &worker::LIST, &worker::STATUS, &worker::RESULT, &worker::CANCEL, &worker::DELETE]
        .map(Bridged::of)
});

/// The bridge's tool with this name.
pub(crate) fn find(name: &str) -> Option<&'static Bridged> {
    BRIDGED.iter().find(|bridged| bridged.tool == name)
}

/// The bridge's tools that the caller's token permits.
pub(crate) fn permitted(caller: &Caller) -> impl Iterator<Item = &'static Bridged> {
    BRIDGED.iter().filter(|bridged| caller.permits(bridged.method.row.access))
}

/// The bridge's tools for a member that the caller's token permits. `named` makes the listed name from the tool's name.
pub(crate) fn tools(member: &Member, caller: &Caller, named: impl Fn(&str) -> String) -> impl Iterator<Item = Tool> {
    permitted(caller).map(move |bridged| {
        let mut input_schema = bridged.input.clone();
        let mut description = bridged.description();
        if bridged.is_dispatch() {
            description = format!("{description}\n\n{}", about(member));
            // A reference in the schema would not resolve here. The component itself then reports invalid values.
            if let Some(own) = config_schema(member).filter(|own| !refers(own)) {
                set(&mut input_schema, CONFIG, Some(own.clone()));
            }
            set_agents(&mut input_schema, member.agents());
        }
        bridged.as_tool(named(bridged.tool), description, input_schema)
    })
}

/// The bridge's tools for many workers that the caller's token permits.
pub(crate) fn tools_of_many(workers: &[impl AsRef<Member>], caller: &Caller) -> impl Iterator<Item = Tool> {
    let mut agents: Vec<String> = workers.iter().flat_map(|worker| worker.as_ref().agents()).collect();
    agents.sort_unstable();
    agents.dedup();
    permitted(caller).map(move |bridged| {
        let mut input_schema = bridged.input_of_many.clone();
        if bridged.is_dispatch() {
            set_agents(&mut input_schema, agents.clone());
        }
        bridged.as_tool(bridged.tool.to_owned(), bridged.description(), input_schema)
    })
}

/// Characters of a job's description in a list that is not detailed.
const LABEL_CHARS: usize = 120;

/// A job in a list. The method includes descriptions only in a detailed list; the tool always includes their
/// beginnings, since an id alone tells a model nothing.
#[derive(Serialize)]
pub(crate) struct Described {
    #[serde(flatten)]
    pub(crate) listed: Listed,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl Described {
    /// A job in a worker's list.
    pub(crate) fn of(worker: &Member, listed: Listed) -> Self {
        let brief = || worker.store().brief(listed.job_id.as_str());
        let brief = if listed.details.is_none() { brief() } else { None };
        Self { description: brief.map(|brief| one_line(&brief.description, LABEL_CHARS)), listed }
    }
}

/// Lists the jobs of a worker.
pub(crate) async fn described(
    worker: &Member,
    caller: &Caller,
    params: ListParams,
) -> Result<Vec<Described>, RpcError> {
    let jobs = worker::jobs(worker, caller, params).await?;
    caller.reserve((jobs.len() * 4 * LABEL_CHARS) as u64).await?;
    Ok(jobs.into_iter().map(|listed| Described::of(worker, listed)).collect())
}

/// The schema of a worker's `config`, if its manifest has one.
pub(crate) fn config_schema(member: &Member) -> Option<&Value> {
    let component = member.manifest().component.as_ref()?;
    component.config_schema.as_ref().filter(|schema| schema.is_object())
}

/// The description of a worker, from its manifest.
fn about(member: &Member) -> String {
    let manifest = member.manifest();
    let line = |text: &str| one_line(text, 300);
    format!("The worker describes itself: {}: {}", line(&manifest.display_name), line(&manifest.description))
}

/// Lists the runtimes that a caller can choose from. Without a choice the argument is removed.
fn set_agents(input: &mut Value, agents: Vec<String>) {
    let mut agent = input.pointer("/properties/agent").cloned().unwrap_or_default();
    if let Some(agent) = agent.as_object_mut() {
        agent.insert("enum".to_owned(), agents.clone().into());
    }
    set(input, AGENT, (!agents.is_empty()).then_some(agent));
}

/// Sets the schema of an argument, or removes the argument if there is none.
fn set(input: &mut Value, argument: &str, schema: Option<Value>) {
    let Some(properties) = input.get_mut("properties").and_then(Value::as_object_mut) else { return };
    match schema {
        Some(schema) => drop(properties.insert(argument.to_owned(), schema)),
        None => drop(properties.remove(argument)),
    }
}

fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| key.starts_with('$') || refers(value)),
        Value::Array(all) => all.iter().any(refers),
        _ => false,
    }
}
