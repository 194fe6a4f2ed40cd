//! Reads requests to the hall's routes, runs their operations, and writes the responses.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    http::{StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use guild_contract::{OperationError, hall::TurnEvent, operation::Quirks};
use guild_hall::{
    Hall,
    operations::{HallOperation, Reply},
};
use serde_json::{Map, Value, json};

use super::{events, files};
use crate::{declined::json_response, events::event_stream};

/// A request for an operation.
pub(super) struct Asked {
    pub(super) operation: &'static HallOperation,
    /// The fields in the path.
    pub(super) path: Vec<(String, String)>,
    pub(super) query: String,
    pub(super) body: Bytes,
    /// Whether the input is in the query, since the method has no body.
    pub(super) is_query: bool,
}

/// Whether a response is a stream of events and not an error.
pub(super) fn is_of_events(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|of| of == "text/event-stream")
}

/// Responds to a request.
pub(super) async fn answer(hall: &Arc<Hall>, asked: Asked) -> Response {
    let mut about = None;
    let answered = carry_out(hall, asked, &mut about).await;
    let (mut response, refused) = match answered {
        Ok((status, Reply::Output(value))) => {
            about = about.or_else(|| id_of(&value));
            (with(status, &value), None)
        }
        Ok((_, Reply::Turn(Ok(turn)))) => {
            about = Some(turn.meeting());
            (event_stream(events::of_turn(*turn)), None)
        }
        // The original's web UI ignores the status.
        Ok((_, Reply::Turn(Err(refused)))) => {
            let event = TurnEvent::Error { reason: refused.to_string() };
            (event_stream(Body::from(events::frame(0, &event))), Some(status(&refused)))
        }
        Ok((_, Reply::File(file))) => (files::shown(*file), None),
        Err(refused) => (error(status(&refused), &refused.to_string()), Some(status(&refused))),
    };
    // The log gets only ids of existing records, and no other text from a caller.
    let about = about.filter(|id| hall.has(id));
    response.extensions_mut().insert(Answered { about, refused });
    response
}

/// The subject of a response, and whether it is a refusal, regardless of its status.
#[derive(Clone)]
pub(super) struct Answered {
    /// The commission or the meeting.
    pub(super) about: Option<String>,
    /// The status of the refusal.
    pub(super) refused: Option<StatusCode>,
}

fn status(refused: &OperationError) -> StatusCode {
    StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The commission or the meeting in an output.
pub(crate) fn id_of(value: &Value) -> Option<String> {
    let id = value.get("commissionId").or_else(|| value.get("meetingId"))?;
    id.as_str().map(str::to_owned)
}

/// The commission or the meeting of an operation's input. Fields that the operation does not have are ignored.
pub(crate) fn subject(operation: &HallOperation, input: &Map<String, Value>) -> Option<String> {
    let own = operation.input.get("properties")?;
    let name = ["commissionId", "meetingId"].into_iter().find(|name| own.get(*name).is_some())?;
    input.get(name)?.as_str().map(str::to_owned)
}

/// Carries out an operation, and stores the id of the record in its input.
async fn carry_out(
    hall: &Arc<Hall>,
    asked: Asked,
    about: &mut Option<String>,
) -> Result<(StatusCode, Reply<Value>), OperationError> {
    let Asked { operation, path, query, body, is_query } = asked;
    let mut fields = of_query(&query);
    if !is_query && !body.is_empty() {
        let Ok(Value::Object(body)) = serde_json::from_slice(&body) else {
            return Err(OperationError::Invalid("Invalid JSON body".to_owned()));
        };
        fields.extend(body);
    }
    fields.extend(path.into_iter().map(|(name, value)| (name, value.into())));
    let input = input(operation, fields, is_query)?;
    *about = subject(operation, &input);
    let status = operation.row.route.map_or(200, |route| route.status);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    Ok((status, operation.run(hall.clone(), input).await?))
}

fn of_query(query: &str) -> Map<String, Value> {
    let pairs: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    pairs.into_iter().map(|(key, value)| (key, value.into())).collect()
}

/// The input of an operation, from fields as the original's clients spell them.
///
/// # Errors
///
/// Returns an error when a field is missing, or is not a number where a number is expected.
fn input(
    operation: &HallOperation,
    mut fields: Map<String, Value>,
    is_query: bool,
) -> Result<Map<String, Value>, OperationError> {
    let Quirks { missing, aliases, may_be_empty, sentences } = operation.row.quirks;
    let sentence =
        |of: &str| sentences.iter().find(|(name, _)| *name == of).map(|(_, sentence)| (*sentence).to_owned());
    let is_empty =
        |name: &str, value: &Value| value.is_null() || (value.as_str() == Some("") && !may_be_empty.contains(&name));
    for (alias, name) in aliases {
        let there = fields.get(*name).is_some_and(|value| !is_empty(name, value));
        if let Some(value) = fields.remove(*alias).filter(|_| !there) {
            fields.insert((*name).to_owned(), value);
        }
    }
    let properties = operation.input.get("properties").and_then(Value::as_object);
    let is_text = |name: &str| properties.and_then(|all| all.get(name)?.get("type")).is_some_and(|of| of == "string");
    // The original accepts only texts for text fields.
    fields.retain(|name, value| !is_empty(name, value) && (value.is_string() || !is_text(name)));
    for (name, schema) in properties.into_iter().flatten() {
        if let Some(value) = fields.get_mut(name) {
            typed(name, value, schema).map_err(|why| OperationError::Invalid(sentence(name).unwrap_or(why)))?;
        }
    }
    let required = operation.input.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.filter_map(Value::as_str).find(|name| !fields.contains_key(*name)) {
        None => Ok(fields),
        Some(name) => Err(OperationError::Invalid(sentence(name).unwrap_or_else(|| match missing {
            Some(all) if all.split(", ").any(|one| one == name) => format!("Missing required fields: {all}"),
            _ if is_query => format!("Missing required query parameter: {name}"),
            _ => format!("Missing required field: {name}"),
        }))),
    }
}

/// Converts a text to the type in the schema. Queries contain only texts.
fn typed(name: &str, value: &mut Value, schema: &Value) -> Result<(), String> {
    let is_list = schema.get("type").is_some_and(|of| of == "array");
    let is_text = value.is_string();
    if is_list && !is_text && !value.as_array().is_some_and(|all| all.iter().all(Value::is_string)) {
        return Err(format!("{name} must be a list of texts"));
    }
    let Value::String(text) = &*value else { return Ok(()) };
    *value = match schema.get("type").and_then(Value::as_str) {
        Some("integer") => text.parse::<u64>().map_err(|_| format!("{name} must be a number from 0"))?.into(),
        Some("boolean") => (text == "true").into(),
        // The original's command line can send only a single item.
        Some("array") => json!([text]),
        _ => return Ok(()),
    };
    Ok(())
}

/// A response with an error.
pub(super) fn error(status: StatusCode, why: &str) -> Response {
    with(status, &json!({"error": why}))
}

fn with(status: StatusCode, value: &Value) -> Response {
    json_response(status, value.to_string())
}
