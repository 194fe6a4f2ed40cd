//! HTTP: who may ask, where, and what counts as a request. What a request says is for [`rpc`].
//!
//! The [`door`](crate::door) is passed before any path is looked at: a page in a browser whose name was bound to this
//! host's address is told 403, whatever it asks for. An answer is always one JSON text, never a stream, whatever the client
//! accepts.

use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, EXPECT, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    future::{BoxFuture, Either},
};
use hyper::body::Incoming;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};

use crate::{
    door::{Caller, Connected, Door, Refused},
    host::{Host, MemberState},
    rpc::{self, Answer, Target, Visit},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How much of a body that is too large is read and dropped after the answer, and for how long: a client that is
/// still sending would otherwise see a reset connection in place of the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Says that the host is up, and nothing else: to whoever asks, with or without a token.
const HEALTH: &str = "/healthz";

/// The host's HTTP service.
#[derive(Clone)]
pub struct Service {
    host: Arc<Host>,
    door: Arc<Door>,
    router: TowerToHyperService<Router>,
}

/// The service for the requests of one connection.
pub(crate) struct OfConnection {
    service: Service,
    from: Connected,
}

impl Service {
    /// The service of a host behind its door: `/mcp` for one member, `/members/<key>/mcp` for many, and `/healthz`.
    pub fn new(host: Arc<Host>, door: Arc<Door>) -> Self {
        // Requests to the endpoints come by `call`; what comes by the router has the wrong method.
        let wrong_method = || post(|| async { StatusCode::NOT_FOUND });
        let endpoints = if host.single().is_some() {
            Router::new().route("/mcp", wrong_method())
        } else {
            Router::new().route("/members/{x}/mcp", wrong_method()).route("/members/{x}/{y}/mcp", wrong_method())
        };
        let router = endpoints.route(HEALTH, get(|| async { "ok\n" }));
        Self { host, door, router: TowerToHyperService::new(router) }
    }

    pub(crate) fn door(&self) -> &Door {
        &self.door
    }

    pub(crate) fn of_connection(&self, from: Connected) -> OfConnection {
        OfConnection { service: self.clone(), from }
    }

    /// The key of the member whose endpoint a path is.
    fn endpoint_at<'a>(&'a self, path: &'a str) -> Option<&'a str> {
        if let Some(member) = self.host.single() {
            return (path == "/mcp").then(|| member.key().as_str());
        }
        let key = path.strip_prefix("/members/")?.strip_suffix("/mcp")?;
        (!key.is_empty() && key.split('/').count() <= 2).then_some(key)
    }
}

type Answered = Result<Response, Infallible>;

impl hyper::service::Service<Request<Incoming>> for OfConnection {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Answered>, TowerToHyperServiceFuture<Router, Request<Incoming>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { service: Service { host, door, router }, from } = self;
        let now = |response: Response| Either::Left(Box::pin(ready(Ok(response))) as BoxFuture<'static, Answered>);
        let called_by = match door.called_by(request.uri().authority(), request.headers(), *from) {
            Ok(called_by) => called_by,
            Err(why) => return now((StatusCode::FORBIDDEN, why).into_response()),
        };
        let path = request.uri().path();
        if path == HEALTH {
            return Either::Right(router.call(request));
        }
        let key = self.service.endpoint_at(path);
        let caller = match door.admit(*from, called_by, request.headers(), key) {
            Ok(caller) => caller,
            Err(refused) => return now(refusal(&refused)),
        };
        // Nearly all requests are for an endpoint, and need no router.
        match key {
            Some(key) if request.method() == Method::POST => {
                let (host, key) = (host.clone(), key.to_owned());
                let request = request.map(Body::new);
                Either::Left(Box::pin(async move { Ok(of_member(&host, &caller, &key, request).await) }))
            }
            _ => Either::Right(router.call(request)),
        }
    }
}

async fn of_member(host: &Host, caller: &Caller, key: &str, request: Request) -> Response {
    let visit = |target| Visit { caller, member: key, target };
    match host.state(key) {
        Some(MemberState::Ready(member)) => endpoint(host, visit(Target::Member(member)), request).await,
        Some(MemberState::Error(reason)) => {
            let reason = format!("member {key} is in state error: {reason}");
            endpoint(host, visit(Target::Unavailable(&reason)), request).await
        }
        Some(MemberState::Foreign) => {
            let reason = format!("member {key} has no component: it is served by its own process, not by this host");
            endpoint(host, visit(Target::Unavailable(&reason)), request).await
        }
        None => (StatusCode::NOT_FOUND, "no such member\n").into_response(),
    }
}

/// A member's endpoint: JSON-RPC in, JSON-RPC out.
async fn endpoint(host: &Host, visit: Visit<'_>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json\n").into_response();
    }
    let limits = host.limits();
    let limit = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    let body = match tokio::time::timeout(patience, read_body(body, limit)).await {
        Ok(Ok(body)) => body,
        Ok(Err(BodyError::TooLarge(rest))) => return too_large(limit, parts.headers.contains_key(EXPECT), rest),
        Ok(Err(BodyError::Broken)) => return (StatusCode::BAD_REQUEST, "the body is broken off\n").into_response(),
        Err(_) => return closing(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n".to_owned()),
    };
    match rpc::answer(visit, limits, &body).await {
        Answer::Json(answer) => {
            let mut response = Response::new(Body::from(visit.caller.awaits(answer)));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response
        }
        Answer::Nothing => StatusCode::ACCEPTED.into_response(),
        Answer::Refused(refused) => refusal(&refused),
    }
}

/// What a request is answered with that did not pass the door.
fn refusal(refused: &Refused) -> Response {
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
