//! The operations of the hall as tools: those whose row has one.

use std::sync::Arc;

use guild_auth::{Access, Audit, Caller, Operation};
use guild_contract::{OperationError, hall::TurnEvent, json::parsed_bytes, rpc::RpcError, text::one_line};
use guild_hall::{
    Hall,
    hall::Turn,
    operations::{HallOperation, OPERATIONS, Reply},
};
use guild_roster::to_json;
use serde_json::{Map, Value, json};

use super::{
    Answered, Failure,
    tool::{Annotations, Called, Tool},
    unknown,
};
use crate::hall::routes::{held_by, id_of, subject};

/// Commissions, meetings or documents that one answer lists for a model.
const MOST: usize = 100;
/// Characters of a text in a list for a model.
const LINE_CHARS: usize = 200;

/// Long texts of items, which are read one by one.
const LONG: [&str; 4] = ["prompt", "result_summary", "notes", "content"];

/// The tools that the caller's token is for.
pub(super) fn tools(caller: &Caller) -> impl Iterator<Item = Tool> {
    OPERATIONS.iter().filter(|of| of.row.tool.is_some() && caller.permits(of.row.access)).map(tool)
}

fn tool(operation: &HallOperation) -> Tool {
    let replaces = operation.row.tool.is_some_and(|tool| tool.replaces);
    let annotations = match operation.row.access {
        Access::Ends => Annotations::ENDS,
        access if access.changes() => {
            if replaces {
                Annotations::ENDS
            } else {
                Annotations::ADDS
            }
        }
        _ => Annotations::READS,
    };
    Tool { annotations, ..Tool::of(&operation.tool, operation.tool.name.clone()) }
}

/// Calls a tool.
///
/// # Errors
/// Where there is none of that name, or the caller may not call it.
pub(super) async fn call(
    hall: &Arc<Hall>,
    caller: &Caller,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Answered, Failure> {
    let known = || OPERATIONS.iter().filter_map(|operation| Some(operation.row.tool?.name));
    let operation = HallOperation::of_tool(name).ok_or_else(|| unknown(name, known()))?;
    let authorized = caller.authorize("", Operation { name: operation.row.name, access: operation.row.access })?;
    let work = async |audit: Audit| {
        operation.tool.check(&arguments).map_err(|e| RpcError::invalid_params(e.to_string()))?;
        let done = run(operation, hall, caller, arguments, audit).await?;
        let json = to_json(&for_model(operation, done));
        // A client of the SDK is sent it as values once more.
        caller.takes(parsed_bytes(&json)).await?;
        Ok(Called::of_json(&json))
    };
    Ok(Answered::Called(authorized.run(work).await.unwrap_or_else(Called::from)))
}

/// Carries an operation out, also where its caller goes away meanwhile: nothing is left half done.
///
/// # Errors
/// Why it was refused.
pub(crate) async fn run(
    operation: &'static HallOperation,
    hall: &Arc<Hall>,
    caller: &Caller,
    input: Map<String, Value>,
    audit: Audit,
) -> Result<Value, RpcError> {
    caller.takes(held_by(operation)).await?;
    let (hall, token) = (hall.clone(), caller.token().map(str::to_owned));
    let about = subject(operation, &input);
    let work = guild_hall::asked_by(token, async move {
        let done = match operation.run(hall.clone(), input).await {
            Ok(Reply::Output(output)) => Ok(output),
            Ok(Reply::Turn(turn)) => match turn {
                Ok(turn) => Ok(spoken(*turn).await),
                Err(refused) => Err(refused),
            },
            Ok(Reply::File(_)) => Err(OperationError::NotImplemented("a file is read by its route".to_owned())),
            Err(refused) => Err(refused),
        };
        let about = about.or_else(|| done.as_ref().ok().and_then(id_of));
        if let Some(about) = about.filter(|id| hall.has(id)) {
            audit.of(&about);
        }
        let done = done.map_err(refused);
        audit.end(done.as_ref().err());
        done
    });
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(RpcError::internal("the host could not do it; its log says why")))
}

fn refused(error: OperationError) -> RpcError {
    match error {
        OperationError::NotFound(why) => RpcError::invalid_params(format!(
            "{why}; `list_commissions`, `list_meetings`, `list_projects` and `list_workers` say what there is"
        )),
        error => error.into(),
    }
}

/// A whole turn, for a caller that is not sent its events.
async fn spoken(mut turn: Turn) -> Value {
    let (mut text, mut tools, mut cost, mut error) = (String::new(), Vec::new(), None, None);
    while let Some((_, event)) = turn.next().await {
        match event {
            TurnEvent::TextDelta { text: piece } => text.push_str(&piece),
            TurnEvent::ToolResult { name, is_error, .. } => tools.push(json!({"name": name, "isError": is_error})),
            TurnEvent::TurnEnd { cost: spent } => cost = spent,
            TurnEvent::Error { reason } => error = Some(reason),
            TurnEvent::Session { .. }
            | TurnEvent::ToolUse { .. }
            | TurnEvent::ContextCompacted { .. }
            | TurnEvent::Unknown => {}
        }
    }
    json!({"meetingId": turn.meeting(), "text": text, "toolUses": tools, "cost": cost, "error": error})
}

/// An output as a model is shown it: a list has the beginnings of texts, and the text of a record does not say again what its
/// fields say.
fn for_model(operation: &HallOperation, mut output: Value) -> Value {
    let Some(fields) = output.as_object_mut() else { return output };
    match operation.row.name.rsplit_once('/') {
        Some((_, "list")) => {
            let mut left = 0;
            for value in fields.values_mut() {
                if let Value::Array(items) = value {
                    left += items.len().saturating_sub(MOST);
                    items.truncate(MOST);
                    items.iter_mut().for_each(shorten);
                }
            }
            if left > 0 {
                let more = fields.get("more").and_then(Value::as_u64).unwrap_or_default();
                fields.insert("more".to_owned(), (left as u64 + more).into());
            }
        }
        Some((_, "read")) => drop(fields.remove("rawContent")),
        _ => {}
    }
    output
}

/// Cuts the texts of an item, and leaves out the long ones and empty fields.
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
    for value in fields.values_mut() {
        if let Value::String(text) = value {
            *text = one_line(text, LINE_CHARS);
        }
    }
}
