//! Serves MCP through its SDK: sessions of 2025-06-18 and 2025-11-25, and requests of 2026-07-28 or later, which have
//! none.
//!
//! No other module of this project names a type of the SDK.
//!
//! - here: selection of requests for the SDK, and the checks before it sees them.
//! - [`sessions`]: owners, number and timeouts of sessions.
//! - [`handler`]: the SDK's handler for a [`Server`]; [`convert`] has the conversions.
//! - [`tasks`]: jobs as tasks; [`progress`]: progress notifications for clients that wait for one.
//! - [`changes`]: notifies clients that a list has changed.
//!
//! [`guild_auth`] has admitted all requests that arrive here; the SDK's own checks of Host and Origin are off. The
//! caller accompanies each request to its handler; the token goes no further than this module.

mod changes;
mod convert;
mod handler;
mod progress;
mod sessions;
mod tasks;

use std::{
    borrow::Cow,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
        header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use guild_auth::{Caller, LARGE, Refused, Subscription, budget::Permit};
use guild_contract::{
    Limits,
    rpc::{RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::host::Host;
use memchr::memmem::Finder;
use rmcp::{
    model::{
        ClientCapabilities, ClientJsonRpcMessage, ClientRequest, Implementation, InitializeRequest,
        InitializeRequestParams, RequestId,
    },
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use serde::Deserialize;

use self::{
    changes::View,
    handler::Handler,
    sessions::{Owner, Question, Sessions, Use, Visitor},
};
use crate::{
    declined::Declined,
    input::{json, params::Params},
    mcp::{Server, TOOLS_CALL},
    methods,
    rpc::{self, NULL, Rejected},
};

static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The part before the `/` of the key with a request's version. It is searched first, since some JSON writers escape
/// the `/`.
static META_PREFIX: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("io.modelcontextprotocol"));
/// The first version without sessions.
const STATELESS: &str = "2026-07-28";
/// The maximum number of times that the SDK holds a message as values: while it tries one type after another, as those
/// types, and again to compare them with the headers.
const COPIES: u64 = 6;
/// Seconds after which a client that found no place for its session may retry.
const NO_PLACE_SECONDS: u64 = 30;

/// The protocol rules of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpProtocol {
    /// 2026-07-28 or later: each request states its own version.
    Stateless,
    /// Before: a session begins with `initialize`, and all later requests carry its id.
    Sessions,
}

/// The protocol rules of a request to an MCP endpoint; none for plain JSON-RPC, or for an unsupported HTTP method.
///
/// Cost for plain JSON-RPC: a scan of the headers and one substring search of the body.
pub(crate) fn protocol_of(method: &Method, headers: &HeaderMap, body: &[u8]) -> Option<McpProtocol> {
    let (mut version, mut has_session, mut accepts) = (None, false, Accepts::default());
    for (name, value) in headers {
        if *name == VERSION {
            version.get_or_insert(value.as_bytes());
        } else if *name == ACCEPT {
            accepts.add(value);
        } else {
            has_session |= *name == SESSION;
        }
    }
    if version.is_some_and(is_stateless) {
        return (method == Method::POST).then_some(McpProtocol::Stateless);
    }
    if method != Method::POST {
        let is_known = method == Method::GET || method == Method::DELETE;
        return (is_known && has_session).then_some(McpProtocol::Sessions);
    }
    if META_PREFIX.find(body).is_some() && version_in_meta(body).is_some_and(|of| is_stateless(of.as_bytes())) {
        return Some(McpProtocol::Stateless);
    }
    let is_first = || matches!(method_of(body).as_deref(), Some("initialize" | "server/discover"));
    (accepts.json && accepts.events && (has_session || is_first())).then_some(McpProtocol::Sessions)
}

/// The method of a message, without parsing the rest into values.
fn method_of(body: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    serde_json::from_slice(body).ok().map(|Message { method }| method)
}

/// The version in a request's `_meta`.
fn version_in_meta(body: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        _meta: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Cow<'a, str>,
    }
    serde_json::from_slice(body).ok().map(|Message { params: Params { _meta: Meta { version } } }| version)
}

/// Whether this is a version without sessions. Versions are dates, so the later one is greater.
fn is_stateless(version: &[u8]) -> bool {
    let is_date = version.len() == STATELESS.len()
        && version
            .iter()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { *byte == b'-' } else { byte.is_ascii_digit() });
    is_date && version >= STATELESS.as_bytes()
}

/// The media types that a client accepts explicitly. Clients that know neither of them send `*/*`.
#[derive(Default)]
struct Accepts {
    json: bool,
    events: bool,
}

impl Accepts {
    fn add(&mut self, value: &HeaderValue) {
        for entry in value.to_str().unwrap_or_default().split(',') {
            let found = entry.split(';').next().unwrap_or_default().trim();
            self.json |= found.eq_ignore_ascii_case("application/json");
            self.events |= found.eq_ignore_ascii_case("text/event-stream");
        }
    }
}

/// The method that opens a stream of change notifications.
const LISTEN: &str = "subscriptions/listen";
/// A notification of the client, after which a session receives change notifications.
const INITIALIZED: &str = "notifications/initialized";
/// The maximum length of the client's name, and of its version, in a session.
const NAME_CHARS: usize = 200;

/// An `initialize` request reduced to the client's identity and its support of tasks, since the SDK keeps the whole
/// request for as long as the session lives. None if the SDK cannot parse it: it would treat it as an unknown method.
fn short_initialize(body: &[u8]) -> Option<Bytes> {
    let Ok(ClientJsonRpcMessage::Request(request)) = serde_json::from_slice(body) else { return None };
    let ClientRequest::InitializeRequest(InitializeRequest { params, .. }) = request.request else { return None };
    let name = |text: &str| one_line(text, NAME_CHARS);
    let client = Implementation::new(name(&params.client_info.name), name(&params.client_info.version));
    let capabilities = match params.capabilities.supports_tasks() {
        true => ClientCapabilities::builder().enable_tasks().build(),
        false => ClientCapabilities::default(),
    };
    let params = InitializeRequestParams::new(capabilities, client).with_protocol_version(params.protocol_version);
    let short = ClientJsonRpcMessage::request(InitializeRequest::new(params).into(), request.id);
    serde_json::to_vec(&short).ok().map(Bytes::from)
}

/// The MCP service of a host.
pub(crate) struct Services {
    host: Arc<Host>,
    sessions: Arc<Sessions>,
}

/// A message before the SDK parses it; empty unless the HTTP method is POST.
#[derive(Default)]
struct Message<'a> {
    text: &'a str,
    parts: rpc::Message<'a>,
    /// The id as a type of the SDK.
    id: Option<RequestId>,
    /// The size of the message as values, in bytes.
    bytes: u64,
}

/// A request's relation to its session.
#[derive(Default)]
struct Entered {
    /// The request's session.
    in_use: Option<Arc<Use>>,
    /// The request's id among the open ones of the session.
    question: Option<Question>,
    /// The shortened `initialize` for the SDK, if the request opens a session.
    short: Option<Bytes>,
}

impl Services {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let sessions = Sessions::new(&host.limits());
        Self { host, sessions }
    }

    /// Handles a request of one of these protocols.
    pub(crate) async fn handle(
        &self,
        era: McpProtocol,
        server: Server,
        caller: Caller,
        parts: Parts,
        body: Bytes,
    ) -> Response {
        let text = body.clone();
        let message = if parts.method == Method::POST {
            match Message::read(&text, caller.limits()) {
                Ok(message) => message,
                Err(Rejected { id, error }) => return unreadable(Some(id), error),
            }
        } else {
            Message::default()
        };
        let answered = self.answered(era, server, caller, parts, body, &message).await;
        answered.unwrap_or_else(|refused| Declined::from(refused).message(message.id()))
    }

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// Returns an error when the caller may not send it, or not now.
    async fn answered(
        &self,
        era: McpProtocol,
        server: Server,
        caller: Caller,
        mut parts: Parts,
        body: Bytes,
        message: &Message<'_>,
    ) -> Result<Response, Refused> {
        let is_post = parts.method == Method::POST;
        // The SDK keeps the message for as long as the stream is open.
        if message.method() == Some(LISTEN) && message.bytes > LARGE {
            let bytes = message.bytes;
            let why = format!("Invalid request: {LISTEN} that takes some {bytes} bytes as values, more than {LARGE}");
            return Ok(unreadable(message.id(), RpcError::new(code::INVALID_REQUEST, why)));
        }
        caller.reserve(message.bytes.saturating_mul(COPIES)).await?;
        if let Err(error) = message.check() {
            return Ok(match message.is_notification() {
                // A response from the client receives none itself.
                true => StatusCode::ACCEPTED.into_response(),
                false => unreadable(message.id(), error),
            });
        }
        // Access to a tool depends on the tool, and is checked after its lookup.
        let of_method = message.method().filter(|method| *method != TOOLS_CALL.name);
        let authorize = |method| caller.authorize(server.key(), methods::operation(method));
        let authorized = of_method.map(authorize).transpose()?;
        let owner = Owner { who: caller.identity(), endpoint: server.endpoint() };
        let mut visitor = Visitor::new(self.sessions.clone(), owner);
        let found = match era {
            McpProtocol::Sessions => self.session(&mut visitor, &parts.headers, message, &body),
            McpProtocol::Stateless => Ok(Entered::default()),
        };
        let Entered { in_use, question, short } = match found {
            Ok(found) => found,
            Err(response) => return Ok(*response),
        };
        parts.headers.remove(AUTHORIZATION);
        // A stream of change notifications stays open for as long as its client likes, and must not occupy a request's
        // place.
        let listens = !is_post || message.method() == Some(LISTEN);
        let mut held =
            RequestGuard { _session: in_use.clone(), _question: question, caller: None, listener: None, _place: None };
        if listens && parts.method != Method::DELETE {
            let Some(place) = self.host.events().place(caller.identity()) else {
                let error = too_many("limits.listeners", self.host.limits().listeners, "streams");
                return Ok(later(message.id(), error));
            };
            held.listener = Some(caller.clone().into_subscription());
            held._place = Some(place);
        } else {
            held.caller = Some(caller.clone());
        }
        if message.method().is_some_and(|method| method == LISTEN || method == INITIALIZED) {
            let view = View::new(self.host.clone(), server.endpoint(), caller.clone().into_subscription());
            parts.extensions.insert(Arc::new(view));
        }
        let handler = match era {
            McpProtocol::Stateless if !listens => Handler::of_request(server.clone(), caller.clone()),
            McpProtocol::Sessions if !message.opens_session() => Handler::of_open_session(),
            // The stream outlives the request, and must not keep its caller's place.
            McpProtocol::Stateless | McpProtocol::Sessions => Handler::of_stay(&server, &caller),
        };
        if !listens {
            if let Some(authorized) = authorized {
                parts.extensions.insert(authorized);
            }
            parts.extensions.insert(caller);
            parts.extensions.insert(server);
        }
        if let Some(in_use) = in_use {
            parts.extensions.insert(in_use);
        }
        let body = short.unwrap_or(body);
        let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(visitor), config(era));
        let ends = parts.method == Method::DELETE;
        let response = service.handle(Request::from_parts(parts, Body::from(body))).await;
        let mut response = as_message(response.map(Body::new), message.id()).await;
        // In a session the message may still wait to be handled after this response.
        if let (Some(caller), Some(bytes), McpProtocol::Stateless) =
            (&held.caller, response.body().size_hint().exact(), era)
        {
            caller.resize(bytes, bytes)?;
        }
        if ends && response.status() == StatusCode::ACCEPTED {
            // The session is over, and the SDK for Python treats 202 as a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response.map(|body| Body::new(Kept { body: Body::new(body), held })))
    }

    /// Enters the session of a request, or reserves a place for the session that it opens.
    ///
    /// # Errors
    ///
    /// Returns the error response.
    fn session(
        &self,
        visitor: &mut Visitor,
        headers: &HeaderMap,
        message: &Message<'_>,
        body: &[u8],
    ) -> Result<Entered, Box<Response>> {
        let id = message.id();
        if let Some(session) = headers.get(&SESSION) {
            // The existence of another caller's session is not disclosed.
            let Some(session) = session.to_str().ok().and_then(|id| visitor.enter(id)) else {
                let why = "there is no such session; begin one with initialize";
                return Err(Declined::invalid(StatusCode::NOT_FOUND, why).message(id).into());
            };
            let question = match (&message.id, message.method()) {
                (Some(asked), Some(_)) => Some(session.asks(asked).ok_or_else(|| {
                    let why = format!("Invalid request: an earlier request with the id {asked} has no answer yet");
                    Box::new(unreadable(id, RpcError::new(code::INVALID_REQUEST, why)))
                })?),
                _ => None,
            };
            return Ok(Entered { in_use: Some(Arc::new(session)), question, short: None });
        }
        if message.opens_session() {
            let Some(short) = short_initialize(body) else {
                let why = "Invalid params: `initialize` has `protocolVersion`, `capabilities` and `clientInfo`";
                return Err(unreadable(id, RpcError::invalid_params(why)).into());
            };
            if !visitor.take_place() {
                let error = too_many("limits.mcp_sessions", self.host.limits().mcp_sessions, "sessions");
                return Err(later(id, error).into());
            }
            return Ok(Entered { short: Some(short), ..Entered::default() });
        }
        Ok(Entered::default())
    }
}

/// The SDK's settings. Its own checks of hosts and origins are off, since `guild_auth` has made them.
fn config(era: McpProtocol) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(usize::MAX)
        .with_legacy_session_mode(era == McpProtocol::Sessions)
        .with_json_response(era == McpProtocol::Stateless)
}

impl<'a> Message<'a> {
    /// Parses the part of a body that is the same in all versions of MCP.
    ///
    /// # Errors
    ///
    /// Returns the error, and the id for its response.
    fn read(body: &'a [u8], limits: &Limits) -> Result<Self, Rejected<'a>> {
        let Ok(text) = str::from_utf8(body) else { return Err(Rejected { id: NULL, error: rpc::not_utf8() }) };
        let refused = |why: String| Rejected { id: rpc::id(text).unwrap_or(NULL), error: rpc::refused_json(&why) };
        let bytes = json::check(body, limits).map_err(refused)?;
        let reject =
            |id, why: &str| Err(Rejected { id, error: RpcError::invalid_request(format!("Invalid request: {why}")) });
        if text.trim_start().starts_with('[') {
            return reject(NULL, "this version of MCP has no batches; send each message by itself");
        }
        let parts = rpc::Message::read(text)?;
        let Ok(id) = parts.id.map(serde_json::from_str).transpose() else {
            return reject(parts.id.unwrap_or(NULL), "`id` must be a string or an integer");
        };
        match (&parts.method, parts.is_answer) {
            (Some(_), true) => {
                reject(parts.id.unwrap_or(NULL), "a message has exactly one of `method`, `result` and `error`")
            }
            _ => Ok(Self { text, parts, id, bytes }),
        }
    }

    /// Checks that the SDK can parse the message: otherwise it would respond without JSON-RPC.
    fn check(&self) -> Result<(), RpcError> {
        if self.text.is_empty() {
            return Ok(());
        }
        // This error names the parameter.
        let mut params = Params::read(self.parts.params)?;
        params.object("_meta")?;
        // The SDK ignores a cursor that is not a string.
        if self.method().is_some_and(|method| method.ends_with("/list")) {
            params.optional_text("cursor")?;
        }
        let read = serde_json::from_str::<ClientJsonRpcMessage>(self.text);
        read.map(drop).map_err(|error| RpcError::invalid_request(format!("Invalid request: {error}")))
    }

    /// The id for the response, as it is written. The id of a client's response belongs to another request.
    fn id(&self) -> Option<&'a str> {
        self.parts.id.filter(|_| self.parts.method.is_some())
    }

    fn method(&self) -> Option<&str> {
        self.parts.method.as_deref()
    }

    fn is_notification(&self) -> bool {
        self.parts.id.is_none() && self.parts.method.is_some()
    }

    fn opens_session(&self) -> bool {
        self.method() == Some("initialize")
    }
}

/// A response of the SDK. A bare text with an error becomes a JSON-RPC error with the id.
async fn as_message(response: Response, id: Option<&str>) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || response.headers().get(CONTENT_TYPE).is_some_and(|of| of == "application/json") {
        return response;
    }
    let (head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let why = one_line(&String::from_utf8_lossy(&text), LOGGED_CHARS);
    let error = if status.is_server_error() { RpcError::internal(why) } else { RpcError::invalid_request(why) };
    let declined = Declined::new(status, error);
    match head.headers.get(ALLOW) {
        Some(allowed) => declined.with(ALLOW, allowed.clone()),
        None => declined,
    }
    .message(id)
}

/// The response to a message that is not passed to the SDK.
fn unreadable(id: Option<&str>, error: RpcError) -> Response {
    Declined::new(StatusCode::BAD_REQUEST, error).message(id)
}

fn too_many(limit: &str, most: u32, what: &str) -> RpcError {
    let message = format!(
        "the open {what} of all callers or of this one have reached {limit} = {most}; close one, or retry later"
    );
    RpcError::new(code::BUSY, message)
}

/// The response to a client that may retry.
fn later(id: Option<&str>, error: RpcError) -> Response {
    let declined = Declined::new(StatusCode::SERVICE_UNAVAILABLE, error);
    declined.with(RETRY_AFTER, NO_PLACE_SECONDS.into()).message(id)
}

/// Resources that are held while a response is being sent.
struct RequestGuard {
    _session: Option<Arc<Use>>,
    _question: Option<Question>,
    /// The caller, with the place and the memory of its request.
    caller: Option<Caller>,
    /// The subscription of a listener. Its permission is checked with each piece, and an idle stream sends one every
    /// few seconds.
    listener: Option<Subscription>,
    /// The place among the listeners of the host.
    _place: Option<Permit>,
}

/// A body that holds a guard until it has been sent or dropped.
struct Kept {
    body: Body,
    held: RequestGuard,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let piece = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let (Some(caller), Some(Ok(piece))) = (&self.held.caller, &piece) {
            let _ = caller.resize(piece.data_ref().map_or(0, |data| data.len() as u64), 0);
        }
        let may_hear = self.held.listener.as_ref().is_none_or(Subscription::is_good);
        Poll::Ready(piece.filter(|_| may_hear))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn era(headers: &[(&'static str, &'static str)], body: &str) -> Option<McpProtocol> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        protocol_of(&Method::POST, &map, body.as_bytes())
    }

    const BOTH: (&str, &str) = ("accept", "text/event-stream; q=0.5 , Application/JSON");

    #[test]
    fn a_request_says_by_itself_by_which_rules_it_is_answered() {
        let plain = r#"{"jsonrpc":"2.0","id":1,"method":"worker/list"}"#;
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        assert_eq!(era(&[("accept", "*/*"), (VERSION.as_str(), "2025-06-18")], initialize), None);
        assert_eq!(era(&[BOTH], plain), None);
        assert_eq!(era(&[BOTH], initialize), Some(McpProtocol::Sessions));
        assert_eq!(era(&[BOTH, (SESSION.as_str(), "x")], plain), Some(McpProtocol::Sessions));
        assert_eq!(era(&[(SESSION.as_str(), "x")], plain), None);
        for version in ["2026-07-28", "2027-01-01"] {
            assert_eq!(era(&[(VERSION.as_str(), version)], plain), Some(McpProtocol::Stateless));
        }
        for no_version in ["2025-11-25", "later", "2026-07-2", "9"] {
            assert_eq!(era(&[(VERSION.as_str(), no_version)], plain), None);
        }
    }

    #[test]
    fn of_an_initialize_a_session_keeps_who_its_client_is_and_no_more() {
        let many = |text: &str| text.repeat(10_000);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"initialize","params":{{"protocolVersion":"2025-11-25","_meta":{{"a":"{}"}},
               "capabilities":{{"experimental":{{"a":{{"b":"{}"}}}},"roots":{{}}}},"clientInfo":{{"name":"{}","version":"1"}}}}}}"#,
            many("m"),
            many("c"),
            many("n")
        );
        let short = short_initialize(body.as_bytes()).unwrap();
        assert!(short.len() < 500, "{short:?}");
        let short: serde_json::Value = serde_json::from_slice(&short).unwrap();
        assert_eq!((&short["id"], &short["method"]), (&"x".into(), &"initialize".into()));
        let params = &short["params"];
        assert_eq!(params["protocolVersion"], "2025-11-25");
        assert_eq!(params["capabilities"], serde_json::json!({}));
        assert!(params["clientInfo"]["name"].as_str().unwrap().starts_with("nnn"));
        assert!(short_initialize(br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#).is_none());
    }

    #[test]
    fn a_version_in_meta_counts_also_without_a_header() {
        let of = |version: &str| {
            format!(
                r#"{{"method":"x","params":{{"_meta":{{"io.modelcontextprotocol\/protocolVersion":"{version}"}}}}}}"#
            )
        };
        assert_eq!(era(&[], &of("2026-07-28")), Some(McpProtocol::Stateless));
        assert_eq!(era(&[], &of("2025-11-25")), None);
        // The version counts only at its proper place.
        let task = r#"{"method":"x","params":{"task":"io.modelcontextprotocol/protocolVersion 2026-07-28"}}"#;
        assert_eq!(era(&[], task), None);
    }
}
