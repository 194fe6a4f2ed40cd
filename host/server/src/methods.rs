//! The methods of an endpoint, as JSON-RPC brings them: the six of `worker/*`, and those of MCP for clients without a
//! session.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use guild_contract::{
    JobId,
    rpc::{
        Detail, DispatchParams, Dispatched, ListParams, ResultView, RpcError, code,
        method::{self, DISCOVER},
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    discover, json,
    mcp::{Answered, Failure, Identity, Manner, Server},
};
use guild_auth::{Audit, Caller, LARGE, Refused, is_known};
use guild_roster::{blocking, member::Member, to_json};

/// Versions of MCP that begin with `initialize`, newest first.
const MCP_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Carries a request out, and answers with the JSON of its result. The audit log is told which job it is about.
pub(crate) async fn call(
    server: &Server,
    caller: &Caller,
    name: &str,
    params: Option<&str>,
    audit: &Audit,
) -> Result<Bytes, RpcError> {
    if !is_known(name) {
        return Err(unknown(name));
    }
    if name.starts_with("worker/")
        && let Server::Member(member) = server
    {
        return worker(member, caller, name, Params::read(params), audit).await;
    }
    Box::pin(of_mcp(server, caller, name, params)).await
}

/// What MCP asks, and what there is to ask.
async fn of_mcp(server: &Server, caller: &Caller, name: &str, params: Option<&str>) -> Result<Bytes, RpcError> {
    match name {
        "initialize" => Ok(to_json(&initialize(server, caller, Params::read(params)?)?)),
        "ping" => Params::read(params).map(|_| Bytes::from_static(b"{}")),
        "tools/list" => {
            Params::read(params)?;
            match server {
                // Guild Hall asks each worker as it starts.
                Server::Member(member) if member.toolbox().is_none() => Ok(Bytes::from_static(b"{\"tools\":[]}")),
                server => Ok(to_json(&json!({"tools": server.tools(caller).await?}))),
            }
        }
        "prompts/list" => {
            Params::read(params)?;
            Ok(to_json(&json!({"prompts": server.prompts(caller)})))
        }
        "prompts/get" => {
            let prompt = server.prompt(caller, &Params::read(params)?.text("name")?)?;
            let message = json!({"role": "user", "content": {"type": "text", "text": prompt.text}});
            Ok(to_json(&json!({"description": prompt.description, "messages": [message]})))
        }
        "resources/list" => {
            let cursor = Params::read(params)?.optional_text("cursor")?;
            Ok(to_json(&server.resources(caller, cursor.as_deref()).await?))
        }
        "resources/templates/list" => {
            Params::read(params)?;
            Ok(to_json(&json!({"resourceTemplates": server.templates(caller)})))
        }
        "resources/read" => {
            let uri = Params::read(params)?.text("uri")?;
            Ok(to_json(&json!({"contents": [server.read(caller, &uri).await?]})))
        }
        // Its clients send what parameters they like.
        DISCOVER => Ok(discover::document(server)),
        name if name.starts_with("worker/") => Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            format!(
                "Method not found: {}; it is answered at a member's own endpoint, in a roster /members/KEY/mcp (--member KEY)",
                shown(name)
            ),
        )),
        _ => Err(unknown(name)),
    }
}

/// `tools/call`, for a client without a session. Whether the caller may, depends on the tool: it is looked at here.
///
/// # Errors
/// The outer one: the caller may not.
pub(crate) async fn call_tool(
    server: &Server,
    caller: &Caller,
    params: Option<&str>,
) -> Result<Result<Bytes, RpcError>, Refused> {
    let read = || {
        let mut params = Params::read(params)?;
        Ok::<_, RpcError>((params.text("name")?, params.object("arguments")?.unwrap_or_default()))
    };
    let (name, arguments) = match read() {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    match server.call(caller, &name, arguments, Manner::default()).await {
        Ok(Answered::Called(called)) => Ok(Ok(to_json(&called))),
        // Nobody gets a task who has not asked for one.
        Ok(Answered::Task(..)) => Ok(Err(RpcError::internal("a call without tasks was answered with one"))),
        Err(Failure::Rpc(error)) => Ok(Err(error)),
        Err(Failure::Refused(refused)) => Err(refused),
    }
}

/// One of the six methods of a worker. The audit log is told which job it is about.
pub(crate) async fn worker(
    member: &Arc<Member>,
    caller: &Caller,
    name: &str,
    params: Result<Params, RpcError>,
    audit: &Audit,
) -> Result<Bytes, RpcError> {
    if !member.manifest().is_worker() {
        return Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            format!("Method not found: {}; the member has no capability `worker`", shown(name)),
        ));
    }
    if name == method::STATUS {
        let id = params?.job()?;
        audit.about(&id);
        return member.status(&id).await;
    }
    // In a box of its own: what a poll waits in stays small.
    Box::pin(unpolled(member, caller, name, params, audit)).await
}

async fn unpolled(
    member: &Arc<Member>,
    caller: &Caller,
    name: &str,
    params: Result<Params, RpcError>,
    audit: &Audit,
) -> Result<Bytes, RpcError> {
    let job = |params: Params| {
        let id = params.job()?;
        audit.about(&id);
        Ok::<_, RpcError>(id)
    };
    match name {
        method::LIST => member.list(params?.list()?).await,
        method::RESULT => Ok(to_json(&result(member, caller, &job(params?)?).await?)),
        method::CANCEL => Ok(to_json(&member.cancel(&job(params?)?).await?)),
        method::DELETE => Ok(to_json(&member.delete(&job(params?)?).await?)),
        method::DISPATCH => Ok(to_json(&dispatch(member, params?, audit).await?)),
        _ => Err(unknown(name)),
    }
}

/// How many copies there are of what is being made an answer, at most: as a text, as JSON, as JSON in JSON, as a value, and
/// in buffers that grow.
const COPIES: u64 = 8;

/// `worker/result`, once there is memory for the answer.
pub(crate) async fn result(member: &Member, caller: &Caller, job: &str) -> Result<ResultView, RpcError> {
    let (store, id) = (member.store().clone(), job.to_owned());
    let read = move |most| match store.result_bytes(&id)? {
        bytes if bytes > most => Ok(Err(bytes)),
        _ => Ok(Ok(store.result(&id)?)),
    };
    told(caller, read, |result| json::string_bytes(&result.output)).await
}

/// Reads something once there is memory for the answer that is made of it. `read`, which may block, does so where it has at
/// most so many bytes, and says else how many it has; `written` says how many it has as JSON.
pub(crate) async fn told<T: Send + 'static>(
    caller: &Caller,
    read: impl Fn(u64) -> Result<Result<T, u64>, RpcError> + Send + Sync + 'static,
    written: impl Fn(&T) -> u64,
) -> Result<T, RpcError> {
    let (read, before) = (Arc::new(read), caller.held());
    let (mut most, mut ahead) = (LARGE / COPIES, 0);
    let found = loop {
        let read = read.clone();
        match blocking(move || read(most)).await? {
            Ok(found) => break found,
            // Some of it is written with more bytes; and it may have grown since.
            Err(bytes) => most = bytes.saturating_add(bytes / 4),
        }
        let needed = most.saturating_mul(COPIES);
        caller.takes(needed.saturating_sub(ahead)).await?;
        ahead = needed;
    };
    let needed = written(&found).saturating_mul(COPIES);
    if needed > ahead {
        caller.takes(needed - ahead).await?;
    } else {
        caller.holds(before.saturating_add(needed))?;
    }
    Ok(found)
}

/// `worker/dispatch`.
pub(crate) async fn dispatch(member: &Arc<Member>, params: Params, audit: &Audit) -> Result<Dispatched, RpcError> {
    let params = params.dispatch()?;
    let audit = audit.clone();
    // The job is written down with its beginning, also where its caller has gone away by then.
    let created = move |job: &JobId| {
        audit.about(job.as_str());
        audit.end(None);
    };
    member.dispatch_and(params, created).await
}

fn unknown(name: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {}", shown(name)))
}

/// A caller's text, short enough to be repeated to it.
pub(crate) fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(100)).unwrap_or_default()
}

/// Result of `initialize`, as MCP has it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: Identity<'a>,
    /// How to work with the workers that are here.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
}

#[derive(Serialize, JsonSchema)]
struct Capabilities {
    /// There for worker-only members too: a client that finds no `tools` does not come on to `tools/list`.
    tools: Map<String, Value>,
    /// Where there are workers to work with, or may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<Map<String, Value>>,
    /// Where jobs can leave something.
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Map<String, Value>>,
}

fn initialize<'a>(server: &'a Server, caller: &Caller, mut params: Params) -> Result<Initialized<'a>, RpcError> {
    let asked = params.optional_text("protocolVersion")?;
    let known = MCP_VERSIONS.into_iter().find(|version| asked.as_deref() == Some(version));
    let [newest, ..] = MCP_VERSIONS;
    let offers = server.offers();
    Ok(Initialized {
        protocol_version: known.unwrap_or(newest),
        capabilities: Capabilities {
            tools: Map::new(),
            prompts: offers.prompts.then(Map::new),
            resources: offers.resources.then(Map::new),
        },
        server_info: server.identity(),
        instructions: server.instructions(caller).map(Cow::Owned),
    })
}

/// A request's parameters, by name. Those that a method does not know are ignored; each one that it takes is
/// checked where it is taken.
pub(crate) struct Params(Vec<(String, Value)>);

impl Params {
    /// Those that a tool was called with.
    pub(crate) fn of(arguments: Map<String, Value>) -> Self {
        Self(arguments.into_iter().collect())
    }

    fn read(text: Option<&str>) -> Result<Self, RpcError> {
        let Some(text) = text.filter(|text| *text != "null") else { return Ok(Self(Vec::new())) };
        if !text.starts_with('{') {
            return Err(RpcError::invalid_params("Invalid params: `params` must be an object"));
        }
        let members = json::strict_members(text);
        members.map(Self).map_err(|error| RpcError::invalid_params(format!("Invalid params: in `params`, {error}")))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, RpcError> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(name, "a string", &other)),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, RpcError> {
        self.optional_text(name)?
            .ok_or_else(|| RpcError::invalid_params(format!("Invalid params: `{name}` is missing")))
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, RpcError> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(wrong_type(name, "an object", &other)),
        }
    }

    pub(crate) fn job(mut self) -> Result<String, RpcError> {
        self.text("jobId")
    }

    fn dispatch(mut self) -> Result<DispatchParams, RpcError> {
        let config = self.object("config")?;
        let (description, task, agent) = (self.text("description")?, self.text("task")?, self.optional_text("agent")?);
        Ok(DispatchParams { description, task, config, agent })
    }

    pub(crate) fn list(mut self) -> Result<ListParams, RpcError> {
        let detail = match self.optional_text("detail")?.as_deref() {
            None => None,
            Some("simple") => Some(Detail::Simple),
            Some("detailed") => Some(Detail::Detailed),
            Some(other) => {
                let message =
                    format!("Invalid params: `detail` must be \"simple\" or \"detailed\", not {:?}", shown(other));
                return Err(RpcError::invalid_params(message));
            }
        };
        Ok(ListParams { detail, filter: self.optional_text("filter")? })
    }
}

pub(crate) fn wrong_type(name: &str, wanted: &str, found: &Value) -> RpcError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    RpcError::invalid_params(format!("Invalid params: `{name}` must be {wanted}, not {found}"))
}
