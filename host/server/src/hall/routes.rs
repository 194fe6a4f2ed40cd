//! The routes of the hall: each is an operation of [`OPERATIONS`], asked by path and fields.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use guild_auth::{Access, Operation};
use guild_contract::{
    OperationError,
    hall::TurnEvent,
    operation::{AnswerKind, Quirks},
};
use guild_hall::{
    Hall,
    operations::{HallOperation, OPERATIONS, Reply},
};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::{events, files};

/// A request, as far as the routes need it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

/// The stream of the hall's events, which is no operation: it has no end. The original's command line asks by POST.
pub(super) const EVENTS: &str = "/system/events/stream/subscribe";

/// Whether a request is for the stream of the hall's events.
fn is_events(method: &Method, path: &str) -> bool {
    path == EVENTS && matches!(*method, Method::GET | Method::POST)
}

/// A request's operation; there is none for the stream of events, nor for a path that is no route.
pub(super) struct Found<'a> {
    found: Option<(&'static HallOperation, PathFields<'a>)>,
    is_events: bool,
}

impl<'a> Found<'a> {
    /// Looks a route up.
    pub(super) fn at(method: &Method, path: &'a str) -> Self {
        Self { found: find(method, path), is_events: is_events(method, path) }
    }

    /// Whether the answer is a stream of events, which lasts.
    pub(super) fn is_stream(&self) -> bool {
        let turns = |(operation, _): &(&HallOperation, _)| operation.row.answer == AnswerKind::Turn;
        self.is_events || self.found.as_ref().is_some_and(turns)
    }

    /// How many bytes the answer takes at most while it is made.
    pub(super) fn answer_bytes(&self) -> u64 {
        self.found.as_ref().map_or(0, |(operation, _)| operation.row.answer_bytes)
    }

    /// What the gate is asked.
    pub(super) fn operation(&self) -> Operation<'static> {
        match &self.found {
            Some((found, _)) => Operation { name: found.row.name, access: found.row.access },
            None if self.is_events => Operation { name: "system/events", access: Access::Reads },
            // The answer says that it is not found.
            None => Operation { name: "/hall", access: Access::Reads },
        }
    }
}

/// Whether a response is a stream of events, and no error in place of it.
pub(super) fn is_of_events(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|of| of == "text/event-stream")
}

/// The operation of a route, and the fields that the path has.
fn find<'a>(method: &Method, path: &'a str) -> Option<(&'static HallOperation, PathFields<'a>)> {
    OPERATIONS.iter().find_map(|operation| {
        let route = operation.row.route.filter(|route| route.verbs.include(method.as_str()))?;
        Some((operation, path_fields(route.path, path)?))
    })
}

/// Fields that a path has, by their names, as the path spells them.
type PathFields<'a> = Vec<(&'static str, &'a str)>;

/// The fields that a path of a route has; `None` where the path is another route's.
fn path_fields<'a>(route: &'static str, path: &'a str) -> Option<PathFields<'a>> {
    let mut fields = Vec::new();
    let mut parts = path.split('/');
    for part in route.split('/') {
        let own = parts.next()?;
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => fields.push((name, own)),
            None if part == own => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(fields)
}

/// Answers a request.
pub(super) async fn answer(hall: &Arc<Hall>, found: Found<'_>, asked: Asked<'_>) -> Response {
    if found.is_events {
        return events::listen(hall);
    }
    let mut about = None;
    let answered = carry_out(hall, found, &asked, &mut about).await;
    let (mut response, refused) = match answered {
        Ok((status, Reply::Output(value))) => {
            about = about.or_else(|| id_of(&value));
            (with(status, &value), None)
        }
        Ok((_, Reply::Turn(Ok(turn)))) => {
            about = Some(turn.meeting());
            (events::stream(events::of_turn(*turn)), None)
        }
        // The original's web UI does not look at the status.
        Ok((_, Reply::Turn(Err(refused)))) => {
            let event = TurnEvent::Error { reason: refused.to_string() };
            (events::stream(Body::from(events::frame(0, &event))), Some(status(&refused)))
        }
        Ok((_, Reply::File(file))) => (files::shown(*file), None),
        Err(refused) => (error(status(&refused), &refused.to_string()), Some(status(&refused))),
    };
    // Only the id of a record that exists gets into the log, and no other text of a caller's.
    let about = about.filter(|id| hall.has(id));
    response.extensions_mut().insert(Answered { about, refused });
    response
}

/// The subject of an answer, and whether the answer is a refusal, whatever its status says.
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

/// The commission or the meeting that an output names.
pub(crate) fn id_of(value: &Value) -> Option<String> {
    let id = value.get("commissionId").or_else(|| value.get("meetingId"))?;
    id.as_str().map(str::to_owned)
}

/// The commission or the meeting that an operation is about: a field of its own, and no other that a caller adds.
pub(crate) fn subject(operation: &HallOperation, input: &Map<String, Value>) -> Option<String> {
    let own = operation.input.get("properties")?;
    let name = ["commissionId", "meetingId"].into_iter().find(|name| own.get(*name).is_some())?;
    input.get(name)?.as_str().map(str::to_owned)
}

/// Carries an operation out, and notes the record that its input names.
async fn carry_out(
    hall: &Arc<Hall>,
    found: Found<'_>,
    asked: &Asked<'_>,
    about: &mut Option<String>,
) -> Result<(StatusCode, Reply<Value>), OperationError> {
    // Before the body is looked at: a route that does not exist is not found, whatever the body says.
    let not_found = || OperationError::NotFound(format!("{} {} not found", asked.method, asked.path));
    let (operation, of_path) = found.found.ok_or_else(not_found)?;
    let mut fields = of_query(asked.query);
    let is_query = *asked.method != Method::POST;
    if !is_query && !asked.body.is_empty() {
        let Ok(Value::Object(body)) = serde_json::from_slice(asked.body) else {
            return Err(OperationError::Invalid("Invalid JSON body".to_owned()));
        };
        fields.extend(body);
    }
    for (name, value) in of_path {
        fields.insert(name.to_owned(), percent_decode_str(value).decode_utf8_lossy().into());
    }
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

/// The input of an operation, of fields as the original's clients spell them.
///
/// # Errors
/// A field that is missing, or that is no number where a number is wanted.
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
    // The original takes nothing but a text for one.
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

/// Makes a value of the type that its schema wants, where it is a text: a query has nothing but texts.
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
        // The original's command line can send a single one only.
        Some("array") => json!([text]),
        _ => return Ok(()),
    };
    Ok(())
}

/// An error as an answer.
pub(super) fn error(status: StatusCode, why: &str) -> Response {
    with(status, &json!({"error": why}))
}

fn with(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
