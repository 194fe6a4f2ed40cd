//! HTTP: who may ask, where, and what counts as a request. What a request says is for [`rpc`], or for [`sdk`] where its
//! client has a session, or says that it is of a version of MCP without any.
//!
//! The [`door`](crate::door) is passed before any path is looked at: a page in a browser whose name was bound to this
//! host's address is told 403, whatever it asks for. An answer of [`rpc`] is always one JSON text, never a stream, whatever
//! the client accepts.

use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{ALLOW, CONNECTION, CONTENT_TYPE, EXPECT, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::BoxFuture};
use guild_contract::Limits;
use hyper::body::Incoming;

use crate::{
    door::{Caller, Connected, Door, Refused},
    events,
    host::Host,
    mcp::{
        Absent, Endpoint, Server, Unavailable,
        sdk::{self, Services},
    },
    rpc::{self, Answer, Target, Visit},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How much of a body that is too large is read and dropped after the answer, and for how long: a client that is
/// still sending would otherwise see a reset connection in place of the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Says that the host is up, and nothing else: to whoever asks, with or without a token.
const HEALTH: &str = "/healthz";
/// Tells who is served, and why somebody is not.
const MEMBERS: &str = "/members";

/// The host's HTTP service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    host: Arc<Host>,
    door: Arc<Door>,
    sdk: Services,
}

/// The service for the requests of one connection.
pub(crate) struct OfConnection {
    service: Service,
    from: Connected,
}

impl Service {
    /// The service of a host behind its door: `/mcp`, `/members/<key>/mcp` in a roster, `/dispatch/<key>/mcp` for workers,
    /// `/whole/<key>/mcp` for all that a member offers, and `/healthz`.
    pub fn new(host: Arc<Host>, door: Arc<Door>) -> Self {
        let sdk = Services::new(host.clone());
        Self(Arc::new(Inner { host, door, sdk }))
    }

    pub(crate) fn door(&self) -> &Door {
        &self.0.door
    }

    pub(crate) fn of_connection(&self, from: Connected) -> OfConnection {
        OfConnection { service: self.clone(), from }
    }
}

type Answered = Result<Response, Infallible>;

impl hyper::service::Service<Request<Incoming>> for OfConnection {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Answered>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { service, from } = self;
        let Inner { host, door, .. } = &*service.0;
        let now = |response: Response| -> Self::Future { Box::pin(ready(Ok(response))) };
        let called_by = match door.called_by(request.uri().authority(), request.headers(), *from) {
            Ok(called_by) => called_by,
            Err(why) => return now((StatusCode::FORBIDDEN, why).into_response()),
        };
        let (path, method) = (request.uri().path(), request.method());
        if path == HEALTH {
            return now(match *method {
                Method::GET | Method::HEAD => "ok\n".into_response(),
                _ => not_but("GET, HEAD"),
            });
        }
        let endpoint = Endpoint::at(path, host.single_key());
        let member = endpoint.and_then(Endpoint::member);
        let caller = match door.admit(*from, called_by, request.headers(), member) {
            Ok(caller) => caller,
            Err(refused) => return now(refusal(&refused)),
        };
        if path == events::PATH || path == MEMBERS {
            return now(match *method {
                Method::GET if path == MEMBERS => members(host, &caller),
                Method::GET => events::listen(host.events(), caller, request.uri(), request.headers()),
                _ => not_but("GET"),
            });
        }
        let Some(endpoint) = endpoint else { return now(StatusCode::NOT_FOUND.into_response()) };
        let server = match Server::at(host, endpoint) {
            Ok(server) => Ok(server),
            Err(Absent::Unavailable(unavailable)) => Err(unavailable),
            Err(Absent::NotFound) => {
                return now((StatusCode::NOT_FOUND, "no such member, or none that accepts work\n").into_response());
            }
        };
        let service = service.clone();
        let request = request.map(Body::new);
        Box::pin(async move { Ok(service.0.at_endpoint(server, &caller, request).await) })
    }
}

impl Inner {
    /// An endpoint: a message of MCP, or JSON-RPC in and JSON-RPC out.
    async fn at_endpoint(&self, server: Result<Server, Unavailable>, caller: &Caller, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = if parts.method == Method::POST {
            if !is_json(&parts.headers) {
                let why = "the content type must be application/json\n";
                return (StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response();
            }
            match whole(body, &parts.headers, self.host.limits()).await {
                Ok(body) => body,
                Err(response) => return response,
            }
        } else {
            Bytes::new()
        };
        let (member, target) = match (&server, sdk::wanted(&parts.method, &parts.headers, &body)) {
            (Ok(server), Some(era)) => {
                // In a box of its own: what a poll waits in stays small.
                let handled = self.sdk.handle(era, server.clone(), caller.clone(), parts, body);
                return match Box::pin(handled).await {
                    Ok(response) => response,
                    Err(refused) => refusal(&refused),
                };
            }
            _ if parts.method != Method::POST => return not_but("POST"),
            (Ok(server), None) => (server.key(), Target::Server(server)),
            (Err(Unavailable { member, reason }), _) => (member.as_str(), Target::Unavailable(reason)),
        };
        let visit = Visit { caller, member, target };
        match rpc::answer(visit, self.host.limits(), &body).await {
            Answer::Json(answer) => {
                let mut response = Response::new(Body::from(caller.awaits(answer)));
                response.headers_mut().insert(CONTENT_TYPE, JSON);
                response
            }
            Answer::Nothing => StatusCode::ACCEPTED.into_response(),
            Answer::Refused(refused) => refusal(&refused),
        }
    }
}

/// The answer to a request whose method is not for its path, as these are.
fn not_but(allowed: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, HeaderValue::from_static(allowed))]).into_response()
}

/// A request's body; else the answer to the one who sent it.
async fn whole(body: Body, headers: &HeaderMap, limits: &Limits) -> Result<Bytes, Response> {
    let limit = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    match tokio::time::timeout(patience, read_body(body, limit)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(BodyError::TooLarge(rest))) => Err(too_large(limit, headers.contains_key(EXPECT), rest)),
        Ok(Err(BodyError::Broken)) => Err((StatusCode::BAD_REQUEST, "the body is broken off\n").into_response()),
        Err(_) => Err(closing(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n".to_owned())),
    }
}

/// The members that a caller may know of, as JSON.
fn members(host: &Host, caller: &Caller) -> Response {
    let mut report = host.report();
    report.retain(|report| caller.is_for(&report.member));
    let mut response = Response::new(Body::from(rpc::to_json(&report)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// What a request is answered with that did not pass the door.
pub(crate) fn refusal(refused: &Refused) -> Response {
    let mut response = (refused.status(), format!("{refused}\n")).into_response();
    if refused.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = refused.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

enum BodyError {
    /// What has not been read of it.
    TooLarge(Body),
    /// The client went away, or what it sent is no body.
    Broken,
}

/// Reads a body of at most `limit` bytes. One that announces more is not read at all.
async fn read_body(body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let announced = body.size_hint();
    if announced.lower() > limit as u64 {
        return Err(BodyError::TooLarge(body));
    }
    let mut body = body.into_data_stream();
    let Some(first) = body.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| BodyError::Broken)?;
    // The usual case: the body is there in one piece.
    if announced.exact() == Some(first.len() as u64) {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    loop {
        if whole.len() > limit {
            return Err(BodyError::TooLarge(Body::from_stream(body)));
        }
        match body.next().await {
            Some(Ok(piece)) => whole.extend_from_slice(&piece),
            Some(Err(_)) => return Err(BodyError::Broken),
            None => return Ok(whole.freeze()),
        }
    }
}

fn too_large(limit: usize, expects_continue: bool, rest: Body) -> Response {
    // A client that waits for "100 Continue" has sent nothing yet, and sends nothing now.
    if !expects_continue {
        tokio::spawn(tokio::time::timeout(DISCARD_TIME, discard(rest)));
    }
    closing(StatusCode::PAYLOAD_TOO_LARGE, format!("a request's body is at most {limit} bytes\n"))
}

async fn discard(body: Body) {
    let mut body = body.into_data_stream();
    let mut discarded = 0_usize;
    while let Some(Ok(piece)) = body.next().await {
        discarded = discarded.saturating_add(piece.len());
        if discarded > DISCARD_BYTES {
            return;
        }
    }
}

/// An answer after which the connection cannot be used again.
fn closing(status: StatusCode, text: String) -> Response {
    (status, [(CONNECTION, HeaderValue::from_static("close"))], text).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    if value == JSON {
        return true;
    }
    let media_type = value.to_str().ok().and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}
