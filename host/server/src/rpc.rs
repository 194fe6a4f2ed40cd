//! Implements JSON-RPC 2.0: parses a request's body, runs its requests, and writes the response.
//!
//! Ids are returned byte for byte (including `1.0` and numbers beyond 64 bits): they are never parsed as numbers. For
//! the same reason results are not parsed again: their JSON is copied into the response once.

use std::borrow::Cow;

use bytes::Bytes;
use guild_auth::{Caller, Refused};
use guild_contract::{
    Limits,
    rpc::{RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::to_json;
use guild_telemetry::trace;
use serde::{Deserialize, Deserializer};
use serde_json::{error::Category, value::RawValue};
use tracing::Span;

use crate::{
    input::json,
    mcp::{Failure, Server},
    methods,
};

/// The receiver of a request.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The server of an endpoint.
    Server(&'a Server),
    /// A member that the host cannot serve, and the reason. Every request receives it as an error.
    Unavailable(&'a str),
}

/// The context of a request at an endpoint.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The member's key; empty at an endpoint of many members.
    pub member: &'a str,
    /// The receiver.
    pub target: Target<'a>,
}

/// The response to a body.
#[derive(Debug)]
pub enum Answer {
    /// JSON.
    Json(Bytes),
    /// No response: the body held only notifications.
    Nothing,
    /// The single request was refused by the gate.
    Refused(Refused),
}

/// The span of a message for traces. A client that says in `_meta` which span of its own asks has it as the parent
/// (SEP-414); the HTTP request is the parent of others.
pub(crate) fn span(body: &[u8]) -> Span {
    #[derive(Default, Deserialize)]
    struct Traced<'a> {
        #[serde(borrow, default)]
        method: Cow<'a, str>,
        #[serde(borrow, default)]
        params: Params<'a>,
    }
    #[derive(Default, Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        _meta: Meta<'a>,
    }
    #[derive(Default, Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        traceparent: Option<Cow<'a, str>>,
    }
    if !trace::is_on() {
        return Span::none();
    }
    let Traced { method, params: Params { name, _meta: meta } } = serde_json::from_slice(body).unwrap_or_default();
    let (method, name) = (one_line(&method, LOGGED_CHARS), one_line(name.as_deref().unwrap_or_default(), LOGGED_CHARS));
    let span = tracing::debug_span!(
        "message",
        otel.kind = "server",
        otel.name = format!("{method} {name}").trim_end(),
        rpc.system = "jsonrpc",
        mcp.method.name = &*method,
    );
    trace::continue_trace(&span, meta.traceparent.as_deref());
    span
}

/// Responds to a request's body.
///
/// The requests of a batch run one after the other, in their order, so that a caller can cancel a job and delete it in
/// one batch. Their results together are bounded by four times `limits.result_bytes`. A request that the caller may not
/// make receives an error, and the others are carried out.
pub async fn answer(context: RequestContext<'_>, limits: &Limits, body: &[u8]) -> Answer {
    let Ok(text) = std::str::from_utf8(body) else {
        return failure(NULL, not_utf8());
    };
    let bytes = match json::check(body, limits) {
        Ok(bytes) => bytes,
        Err(why) => return failure(id(text).unwrap_or(NULL), refused_json(&why)),
    };
    if let Err(refused) = context.caller.reserve(bytes).await {
        return Answer::Refused(refused);
    }
    if text.trim_start().starts_with('[') {
        return Box::pin(answer_batch(context, limits, text)).await;
    }
    let mut out = Vec::new();
    match answer_one(context, &Request::read(text), &mut out).await {
        Err(refused) => Answer::Refused(refused),
        Ok(()) if out.is_empty() => Answer::Nothing,
        Ok(()) => Answer::Json(out.into()),
    }
}

async fn answer_batch(context: RequestContext<'_>, limits: &Limits, text: &str) -> Answer {
    let requests: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(requests) => requests,
        Err(error) => return failure(NULL, unreadable(&error)),
    };
    if requests.is_empty() {
        return failure(NULL, RpcError::invalid_request("Invalid request: an empty batch"));
    }
    if requests.len() > limits.batch as usize {
        let message = format!("Invalid request: a batch of more than {} requests", limits.batch);
        return failure(NULL, RpcError::invalid_request(message));
    }
    let most = usize::try_from(limits.result_bytes.saturating_mul(4)).unwrap_or(usize::MAX);
    let (mut out, held) = (Vec::new(), context.caller.reserved());
    for (index, request) in requests.into_iter().enumerate() {
        let begin = out.len();
        out.push(if begin == 0 { b'[' } else { b',' });
        let request = Request::read(request.get());
        let (id, method) = match &request {
            Ok(request) => (request.id, &*request.method),
            Err(rejected) => (Some(rejected.id), ""),
        };
        // The first request was counted when the batch arrived.
        let counted =
            if index == 0 { Ok(()) } else { context.caller.another(context.member, methods::operation(method)) };
        let answered = match (counted, id) {
            (Err(refused), _) => Err(refused),
            (Ok(()), Some(id)) if begin > most && request.is_ok() => {
                write(&mut out, id, Err(over(most)));
                Ok(())
            }
            (Ok(()), _) => answer_one(context, &request, &mut out).await,
        };
        let (own, all) = ((out.len() - begin) as u64, held.saturating_add(out.capacity() as u64));
        let answered = answered.and_then(|()| context.caller.resize(all, own));
        if let (Err(refused), Some(id)) = (answered, id) {
            out.truncate(begin + 1);
            write(&mut out, id, Err(refused.into()));
        }
        if out.len() == begin + 1 {
            out.truncate(begin);
        }
    }
    if out.is_empty() {
        return Answer::Nothing;
    }
    out.push(b']');
    out.shrink_to_fit();
    Answer::Json(out.into())
}

/// Responds to one request, or element of a batch. Writes nothing for a notification, nor for a request that the caller
/// may not make.
async fn answer_one(
    context: RequestContext<'_>,
    request: &Result<Request<'_>, Rejected<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    let RequestContext { caller, member: key, target } = context;
    let (id, outcome) = match request {
        Err(rejected) => (Some(rejected.id), Err(rejected.error.clone())),
        Ok(Request { id, method, params }) => {
            let answered = match target {
                Target::Server(server) => methods::call(server, caller, method, *params).await,
                Target::Unavailable(reason) => {
                    let authorized = caller.authorize(key, methods::operation(method))?;
                    authorized.run(async |_| Err(RpcError::internal(reason))).await.map_err(Failure::Rpc)
                }
            };
            let outcome = match answered {
                Ok(result) => Ok(result),
                Err(Failure::Rpc(error)) => Err(error),
                Err(Failure::Refused(refused)) => return Err(refused),
            };
            (*id, outcome)
        }
    };
    if let Some(id) = id {
        write(out, id, outcome);
    }
    Ok(())
}

/// The error for a request of a batch that was not run, since there is no room for its result.
fn over(most: usize) -> RpcError {
    let message = format!("the answers of this batch exceed {most} bytes; send this request by itself");
    RpcError::new(code::BUSY, message)
}

/// A request object. A notification has no id.
struct Request<'a> {
    id: Option<&'a str>,
    method: Cow<'a, str>,
    params: Option<&'a str>,
}

/// A JSON-RPC message whose parts are raw JSON. It has a method, or it is a response.
#[derive(Default)]
pub(crate) struct Message<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) params: Option<&'a str>,
    pub(crate) is_answer: bool,
}

/// The error for an invalid message, with the id for the response.
pub(crate) struct Rejected<'a> {
    pub(crate) id: &'a str,
    pub(crate) error: RpcError,
}

/// Whether a body is a single request for this method.
pub(crate) fn is_of(body: &[u8], method: &str) -> bool {
    let text = std::str::from_utf8(body).unwrap_or_default();
    Message::read(text).is_ok_and(|message| message.method.as_deref() == Some(method))
}

/// The id of the single request in a text, as it is written; none if it has none, or is no request.
pub(crate) fn id(text: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let is_object = text.trim_start().starts_with('{');
    let Identified { id } = serde_json::from_str(text).ok().filter(|_| is_object)?;
    Some(id.get()).filter(|id| is_id(id))
}

/// Whether this is a string or a number short enough to repeat: a small request must not cause a large response.
fn is_id(written: &str) -> bool {
    written.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) && written.len() <= MAX_ID_BYTES
}

/// The id of a response to a request with an unknown id.
pub(crate) const NULL: &str = "null";
/// The maximum length of an id as it is written, in bytes.
const MAX_ID_BYTES: usize = 1024;

impl<'a> Message<'a> {
    /// Parses a message. All messages pass this parser: plain JSON-RPC, and all versions of MCP.
    pub(crate) fn read(text: &'a str) -> Result<Self, Rejected<'a>> {
        let reject = |id, message: &str| {
            Err(Rejected { id, error: RpcError::invalid_request(format!("Invalid request: {message}")) })
        };
        if !text.trim_start().starts_with('{') {
            return match serde_json::from_str::<&RawValue>(text) {
                Ok(_) => reject(NULL, "a request is an object"),
                Err(error) => Err(Rejected { id: NULL, error: unreadable(&error) }),
            };
        }
        let Envelope { jsonrpc, id, method, params, result, error } = serde_json::from_str(text)
            .map_err(|error| Rejected { id: self::id(text).unwrap_or(NULL), error: unreadable(&error) })?;
        let id = id.map(RawValue::get);
        if id.is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return reject(NULL, "`id` is longer than 1024 bytes");
        }
        if id.is_some_and(|id| id != NULL && !is_id(id)) {
            return reject(NULL, "`id` must be a string, a number or null");
        }
        let answer_to = id.unwrap_or(NULL);
        if jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return reject(answer_to, "`jsonrpc` must be \"2.0\"");
        }
        let is_answer = result.is_some() || error.is_some();
        match method.map(string) {
            Some(Some(method)) => Ok(Self { id, method: Some(method), params: params.map(RawValue::get), is_answer }),
            None if is_answer => Ok(Self { id, is_answer, ..Self::default() }),
            _ => reject(answer_to, "`method` must be a string"),
        }
    }
}

impl<'a> Request<'a> {
    fn read(text: &'a str) -> Result<Self, Rejected<'a>> {
        let Message { id, method, params, .. } = Message::read(text)?;
        match method {
            Some(method) => Ok(Self { id, method, params }),
            None => {
                let error = RpcError::invalid_request("Invalid request: `method` must be a string");
                Err(Rejected { id: id.unwrap_or(NULL), error })
            }
        }
    }
}

/// The error for a body that [`json::check`] refuses.
pub(crate) fn refused_json(why: &str) -> RpcError {
    RpcError::invalid_request(format!("Invalid request: {why}"))
}

/// The error for a body that is not UTF-8.
pub(crate) fn not_utf8() -> RpcError {
    RpcError::new(code::PARSE_ERROR, "Parse error: the body is not UTF-8")
}

/// The members of a message as raw JSON. Unknown members are ignored; a duplicate is an error.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "written")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    error: Option<&'a RawValue>,
}

/// Distinguishes `null` from a missing member.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let plain = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if plain.contains('\\') { serde_json::from_str(raw.get()).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(plain)) }
}

fn unreadable(error: &serde_json::Error) -> RpcError {
    match error.classify() {
        Category::Data => RpcError::invalid_request(format!("Invalid request: {error}")),
        Category::Syntax | Category::Eof | Category::Io => {
            RpcError::new(code::PARSE_ERROR, format!("Parse error: {error}"))
        }
    }
}

/// The response to an unparsable body.
fn failure(id: &str, error: RpcError) -> Answer {
    let mut out = Vec::new();
    write(&mut out, id, Err(error));
    Answer::Json(out.into())
}

/// Writes a response object.
fn write(out: &mut Vec<u8>, id: &str, outcome: Result<Bytes, RpcError>) {
    let (member, value) = match outcome {
        Ok(result) => (",\"result\":", result),
        Err(error) => (",\"error\":", to_json(&error)),
    };
    let parts = [b"{\"jsonrpc\":\"2.0\",\"id\":", id.as_bytes(), member.as_bytes(), &value, b"}"];
    out.reserve(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part);
    }
}
