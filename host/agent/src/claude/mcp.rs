//! Serves a session's tools as an MCP server over the CLI's own pipe.

use std::sync::Arc;

use guild_session::tools::{ToolDefinition, ToolError};
use serde_json::{Value, json};

/// The server's name. The model sees its tools as `mcp__worker-internal__update_summary`.
pub(super) const SERVER: &str = "worker-internal";
/// The version of the protocol, unless the CLI asks for an older one.
const VERSION: &str = "2025-11-25";
/// The longest result that the CLI shows to the model unchanged, and the highest bound that it accepts. The CLI puts a
/// longer result into a file and shows its beginning; only a greater `limits.tool_result_bytes` lets one through.
const MAX_RESULT_CHARS: u32 = 500_000;

/// The code of JSON-RPC for an unknown method.
const METHOD_NOT_FOUND: i32 = -32601;
/// The code of JSON-RPC for invalid parameters.
const INVALID_PARAMS: i32 = -32602;

/// A message of the CLI, by its handling.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// The message needs only this answer.
    Answer(Value),
    /// The message calls a tool.
    Call(Call),
    /// The message gives up the call with this JSON-RPC id, and needs this answer.
    GiveUp(Value, Value),
}

/// A call of a tool.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// The JSON-RPC id.
    pub id: Value,
    pub name: String,
    pub arguments: Value,
    /// The model's id of the call.
    pub tool_use_id: Option<String>,
}

/// Reads a message of the CLI, and answers all but calls.
pub(super) fn read(message: &Value, definitions: &[Arc<ToolDefinition>]) -> Incoming {
    // A notification is answered too, since the pipe wraps it in a request.
    let id = message.get("id").cloned().unwrap_or(json!(0));
    let params = message.get("params");
    let answer = |value: Value| Incoming::Answer(result(&id, &value));
    match message.get("method").and_then(Value::as_str).unwrap_or_default() {
        "initialize" => answer(initialize(params)),
        "tools/list" => answer(json!({"tools": definitions.iter().map(|tool| definition(tool)).collect::<Vec<_>>()})),
        "tools/call" => call(id, params),
        "notifications/cancelled" => {
            let given_up = params.and_then(|params| params.get("requestId")).cloned().unwrap_or_default();
            Incoming::GiveUp(given_up, result(&id, &json!({})))
        }
        method if method == "ping" || method.starts_with("notifications/") => answer(json!({})),
        method => Incoming::Answer(error(&id, METHOD_NOT_FOUND, &format!("there is no method {method:?}"))),
    }
}

fn initialize(params: Option<&Value>) -> Value {
    let asked = params.and_then(|params| params.get("protocolVersion")).and_then(Value::as_str).unwrap_or(VERSION);
    json!({
        "protocolVersion": asked.min(VERSION),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": env!("CARGO_PKG_VERSION")},
    })
}

fn call(id: Value, params: Option<&Value>) -> Incoming {
    let field = |name: &str| params.and_then(|params| params.get(name));
    let Some(name) = field("name").and_then(Value::as_str) else {
        return Incoming::Answer(error(&id, INVALID_PARAMS, "the call names no tool"));
    };
    let tool_use_id = field("_meta").and_then(|meta| meta.get("claudecode/toolUseId")).and_then(Value::as_str);
    Incoming::Call(Call {
        id,
        name: name.to_owned(),
        arguments: field("arguments").cloned().unwrap_or_else(|| json!({})),
        tool_use_id: tool_use_id.map(str::to_owned),
    })
}

fn definition(tool: &ToolDefinition) -> Value {
    let mut definition = json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": {"readOnlyHint": tool.read_only},
        "_meta": {"anthropic/maxResultSizeChars": MAX_RESULT_CHARS},
    });
    if let (Some(title), Some(fields)) = (&tool.title, definition.as_object_mut()) {
        fields.insert("title".to_owned(), json!(title));
    }
    definition
}

/// The result of a tool in the form that the model sees. A failure is a result too.
pub(super) fn called(id: &Value, answer: &Result<Value, ToolError>) -> Value {
    let (text, is_error) = match answer {
        Ok(Value::String(text)) => (text.clone(), false),
        Ok(value) => (value.to_string(), false),
        Err(error) => (error.to_string(), true),
    };
    result(id, &json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
}

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}
