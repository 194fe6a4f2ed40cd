//! The methods of a member's endpoint: the six of `worker/*`, and what MCP asks of a server without tools.

use std::sync::Arc;

use bytes::Bytes;
use guild_contract::{
    JobId,
    rpc::{Detail, DispatchParams, ListParams, code, method},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    discover::{self, DISCOVER},
    door::Audit,
    json,
    member::Member,
    rpc::{RpcError, to_json},
};

/// Versions of MCP that begin with `initialize`, newest first.
const MCP_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Carries a request out, and answers with the JSON of its result. The audit log is told which job it is about.
pub(crate) async fn call(
    member: &Arc<Member>,
    name: &str,
    params: Option<&str>,
    audit: &Audit,
) -> Result<Bytes, RpcError> {
    if name.starts_with("worker/") && !member.manifest().is_worker() {
        return Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            format!("Method not found: {}; the member has no capability `worker`", shown(name)),
        ));
    }
    let job = |params: Params| {
        let id = params.job()?;
        audit.about(&id);
        Ok::<_, RpcError>(id)
    };
    match name {
        method::STATUS => member.status(&job(Params::read(params)?)?).await,
        method::LIST => member.list(Params::read(params)?.list()?).await,
        method::RESULT => Ok(to_json(&member.result(&job(Params::read(params)?)?).await?)),
        method::CANCEL => Ok(to_json(&member.cancel(&job(Params::read(params)?)?).await?)),
        method::DELETE => Ok(to_json(&member.delete(&job(Params::read(params)?)?).await?)),
        method::DISPATCH => {
            let params = Params::read(params)?.dispatch()?;
            let audit = audit.clone();
            // The job is written down with its beginning, also where its caller has gone away by then.
            let created = move |job: &JobId| {
                audit.about(job.as_str());
                audit.end(None);
            };
            Ok(to_json(&member.dispatch_and(params, created).await?))
        }
        "initialize" => Ok(to_json(&initialize(member, Params::read(params)?)?)),
        "ping" => Params::read(params).map(|_| Bytes::from_static(b"{}")),
        "tools/list" => Params::read(params).map(|_| Bytes::from_static(b"{\"tools\":[]}")),
        "tools/call" => {
            let tool = Params::read(params)?.text("name")?;
            Err(RpcError::invalid_params(format!("Unknown tool: {}", shown(&tool))))
        }
        // Its clients send what parameters they like.
        DISCOVER => Ok(discover::document(member.manifest())),
        _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {}", shown(name)))),
    }
}

/// A caller's text, short enough to be repeated to it.
fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(100)).unwrap_or_default()
}

/// Result of `initialize`, as MCP has it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: ServerInfo<'a>,
}

#[derive(Serialize, JsonSchema)]
struct Capabilities {
    /// There for worker-only members too: a client that finds no `tools` does not come on to `tools/list`.
    tools: Map<String, Value>,
}

#[derive(Serialize, JsonSchema)]
struct ServerInfo<'a> {
    name: &'a str,
    version: &'a str,
}

fn initialize(member: &Member, mut params: Params) -> Result<Initialized<'_>, RpcError> {
    let asked = params.optional_text("protocolVersion")?;
    let known = MCP_VERSIONS.into_iter().find(|version| asked.as_deref() == Some(version));
    let [newest, ..] = MCP_VERSIONS;
    Ok(Initialized {
        protocol_version: known.unwrap_or(newest),
        capabilities: Capabilities { tools: Map::new() },
        server_info: ServerInfo { name: &member.manifest().name, version: &member.manifest().version },
    })
}

/// A request's parameters, by name. Those that a method does not know are ignored; each one that it takes is
/// checked where it is taken.
struct Params(Map<String, Value>);

impl Params {
    fn read(text: Option<&str>) -> Result<Self, RpcError> {
        let Some(text) = text.filter(|text| *text != "null") else { return Ok(Self(Map::new())) };
        if !text.starts_with('{') {
            return Err(RpcError::invalid_params("Invalid params: `params` must be an object"));
        }
        let object = json::strict_object(text);
        object.map(Self).map_err(|error| RpcError::invalid_params(format!("Invalid params: in `params`, {error}")))
    }

    fn optional_text(&mut self, name: &str) -> Result<Option<String>, RpcError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(name, "a string", &other)),
        }
    }

    fn text(&mut self, name: &str) -> Result<String, RpcError> {
        self.optional_text(name)?
            .ok_or_else(|| RpcError::invalid_params(format!("Invalid params: `{name}` is missing")))
    }

    fn job(mut self) -> Result<String, RpcError> {
        self.text("jobId")
    }

    fn dispatch(mut self) -> Result<DispatchParams, RpcError> {
        let config = match self.0.remove("config") {
            None | Some(Value::Null) => None,
            Some(Value::Object(config)) => Some(config),
            Some(other) => return Err(wrong_type("config", "an object", &other)),
        };
        let (description, task, agent) = (self.text("description")?, self.text("task")?, self.optional_text("agent")?);
        Ok(DispatchParams { description, task, config, agent })
    }

    fn list(mut self) -> Result<ListParams, RpcError> {
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

fn wrong_type(name: &str, wanted: &str, found: &Value) -> RpcError {
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
