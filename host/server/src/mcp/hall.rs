//! Offers the operations of the hall that have a tool, and runs them for MCP clients.

use std::sync::Arc;

use guild_auth::{Access, Audit, Caller, Operation};
use guild_contract::{
    OperationError,
    hall::{SpokenTurn, TurnEvent},
    json::parsed_bytes,
    operation::AnswerKind,
    rpc::RpcError,
    text::one_line,
};
use guild_hall::{
    Hall,
    meetings::Turn,
    operations::{HallOperation, OPERATIONS, Reply},
};
use guild_roster::to_json;
use guild_session::tools::ToolDefinition;
use serde_json::{Map, Value, json};
use tracing::Instrument as _;

use super::{
    Answered, CallOptions, Failure, Progress,
    tool::{Annotations, Called, Tool},
    unknown,
};
use crate::{
    declined::HANDLER_FAILED,
    hall::routes::{id_of, subject},
};

/// The number of items in a list when the model states no limit.
const MOST: usize = 100;
/// Long texts, which lists leave out. A model reads them item by item.
const LONG: [&str; 5] = ["prompt", "result_summary", "notes", "content", "extras"];
/// Texts that lists shorten.
const PROSE: [&str; 2] = ["current_progress", "agenda"];
/// Characters of a shortened text.
const PROSE_CHARS: usize = 200;
/// Fields of a record that repeat its other fields.
const REPEATED: [&str; 2] = ["rawContent", "parsedMessages"];

/// The tools that the caller's token permits.
pub(super) fn tools(caller: &Caller) -> impl Iterator<Item = Tool> {
    let permitted = OPERATIONS.iter().filter(|of| caller.permits(of.row.access));
    permitted.filter_map(|operation| Some(tool(operation, operation.tool.as_ref()?)))
}

fn tool(operation: &HallOperation, definition: &ToolDefinition) -> Tool {
    let replaces = operation.row.tool.is_some_and(|tool| tool.replaces);
    let annotations = match operation.row.access {
        Access::Ends => Annotations::ENDS,
        access if access.changes() && replaces => Annotations::ENDS,
        access if access.changes() => Annotations::ADDS,
        _ => Annotations::READS,
    };
    Tool { annotations, ..Tool::of(definition, definition.name.clone()) }
}

/// Calls a tool.
///
/// # Errors
///
/// Returns an error when there is no tool with this name, or the caller may not call it.
pub(super) async fn call(
    hall: &Arc<Hall>,
    caller: &Caller,
    name: &str,
    mut arguments: Map<String, Value>,
    options: CallOptions,
) -> Result<Answered, Failure> {
    let known = || OPERATIONS.iter().filter_map(|operation| Some(operation.row.tool?.name));
    let (operation, definition) = HallOperation::of_tool(name).ok_or_else(|| unknown(name, known()))?;
    let authorized = caller.authorize("", Operation { name: operation.row.name, access: operation.row.access })?;
    let work = async |audit: Audit| {
        definition.check(&arguments).map_err(|e| RpcError::invalid_params(e.to_string()))?;
        limit(operation, &mut arguments);
        let answer = run(operation, hall, caller, arguments, audit, options.progress.as_deref()).await?;
        let failed = answer.get("error").is_some() && operation.row.answer == AnswerKind::Turn;
        let json = to_json(&for_model(operation, answer));
        // The SDK parses the JSON again for its clients.
        caller.reserve(parsed_bytes(&json)).await?;
        Ok(Called { is_error: failed, ..Called::of_json(&json) })
    };
    Ok(Answered::Called(authorized.run(work).await.unwrap_or_else(Called::from)))
}

/// Carries out an operation. A caller that waits for a turn receives each tool that the worker calls as progress.
///
/// # Errors
///
/// Returns the refusal of the operation.
pub(crate) async fn run(
    operation: &'static HallOperation,
    hall: &Arc<Hall>,
    caller: &Caller,
    input: Map<String, Value>,
    audit: Audit,
    progress: Option<&Progress>,
) -> Result<Value, RpcError> {
    match carry_out(operation, hall, caller, input, audit).await? {
        Reply::Output(output) => Ok(output),
        Reply::Turn(turn) => Ok(json!(spoken(*turn.map_err(refused)?, progress).await)),
        Reply::File(_) => Err(RpcError::internal("a file can only be read through its route")),
    }
}

/// Carries out an operation that answers with a turn, for a caller that receives the events of the turn. The turn goes
/// on if the caller drops it.
///
/// # Errors
///
/// Returns the refusal of the gate or of the operation.
pub(crate) async fn turn(
    name: &str,
    hall: &Arc<Hall>,
    caller: &Caller,
    input: Map<String, Value>,
) -> Result<Turn, Failure> {
    let operation = OPERATIONS.iter().find(|operation| operation.row.name == name);
    let operation = operation.ok_or_else(|| RpcError::internal("the hall has no such operation"))?;
    let authorized = caller.authorize("", Operation { name: operation.row.name, access: operation.row.access })?;
    let work = async |audit: Audit| match carry_out(operation, hall, caller, input, audit).await? {
        Reply::Turn(turn) => turn.map_err(refused),
        Reply::Output(_) | Reply::File(_) => Err(RpcError::internal("the operation has no turn")),
    };
    Ok(*authorized.run(work).await?)
}

/// Carries out an operation, even if its caller goes away, so that no change is left half done.
async fn carry_out(
    operation: &'static HallOperation,
    hall: &Arc<Hall>,
    caller: &Caller,
    input: Map<String, Value>,
    audit: Audit,
) -> Result<Reply<Value>, RpcError> {
    caller.reserve(operation.row.answer_bytes).await?;
    let (hall, token) = (hall.clone(), caller.token().map(str::to_owned));
    let about = subject(operation, &input);
    let work = guild_hall::with_token(token, async move {
        let done = match operation.run(hall.clone(), input).await {
            Ok(Reply::Turn(Err(error))) => Err(error),
            done => done,
        };
        let named = match &done {
            Ok(Reply::Output(output)) => id_of(output),
            Ok(Reply::Turn(Ok(turn))) => Some(turn.meeting()),
            _ => None,
        };
        if let Some(about) = about.or(named).filter(|id| hall.has(id)) {
            audit.of(&about);
        }
        let done = done.map_err(refused);
        audit.end(done.as_ref().err());
        done
    });
    let done = tokio::spawn(work.in_current_span()).await;
    done.unwrap_or_else(|_| Err(RpcError::internal(HANDLER_FAILED)))
}

fn refused(error: OperationError) -> RpcError {
    match error {
        OperationError::NotFound(why) => {
            let lists = OPERATIONS.iter().filter_map(|operation| Some(operation.row.tool?.name));
            let lists: Vec<String> =
                lists.filter(|name| name.starts_with("list_")).map(|name| format!("`{name}`")).collect();
            RpcError::invalid_params(format!("{why}; {} list the objects", lists.join(", ")))
        }
        error => error.into(),
    }
}

/// Waits for a whole turn.
async fn spoken(mut turn: Turn, progress: Option<&Progress>) -> SpokenTurn {
    let mut spoken = SpokenTurn { meeting_id: turn.meeting(), ..SpokenTurn::default() };
    while let Some((_, event)) = turn.next().await {
        match event {
            TurnEvent::TextDelta { text } => spoken.text.push_str(&text),
            TurnEvent::ToolUse { name, .. } => {
                if let Some(progress) = progress {
                    progress(format!("calls {name}"));
                }
                spoken.tools.push(name);
            }
            TurnEvent::TurnEnd { cost } => spoken.cost = cost,
            TurnEvent::Error { reason } => spoken.error = Some(reason),
            TurnEvent::Session { .. }
            | TurnEvent::ToolResult { .. }
            | TurnEvent::ContextCompacted { .. }
            | TurnEvent::Unknown => {}
        }
    }
    spoken
}

/// Bounds a list for which the model states no limit. The recent documents have a default of their own.
fn limit(operation: &HallOperation, arguments: &mut Map<String, Value>) {
    let is_recent = arguments.get("recent").and_then(Value::as_bool).unwrap_or_default();
    let has_limit = arguments.get("limit").is_some_and(|limit| !limit.is_null());
    if operation.input.pointer("/properties/limit").is_some() && !is_recent && !has_limit {
        arguments.insert("limit".to_owned(), MOST.into());
    }
}

/// The output for a model: lists have shortened texts, and records have no repeated fields.
fn for_model(operation: &HallOperation, mut output: Value) -> Value {
    let Some(fields) = output.as_object_mut() else { return output };
    match operation.row.name.rsplit_once('/') {
        Some((_, "list")) => fields.values_mut().filter_map(Value::as_array_mut).flatten().for_each(shorten),
        Some((_, "read")) => fields.retain(|name, _| !REPEATED.contains(&name.as_str())),
        _ => {}
    }
    output
}

/// Removes the long texts and the empty fields of an item, and shortens its other prose.
fn shorten(item: &mut Value) {
    let Value::Object(fields) = item else { return };
    fields.retain(|name, value| match value {
        _ if LONG.contains(&name.as_str()) => false,
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
    for (name, value) in fields {
        match value {
            Value::String(text) if PROSE.contains(&name.as_str()) => *text = one_line(text, PROSE_CHARS),
            Value::Object(_) => shorten(value),
            _ => {}
        }
    }
}
