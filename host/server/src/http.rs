//! HTTP: who may ask, where, and what counts as a request. What a request says is for [`rpc`].
//!
//! `Host` and `Origin` are checked before any path is looked at: a page in a browser whose name was bound to a
//! loopback address is told 403, whatever it asks for. An answer is always one JSON text, never a stream, whatever
//! the client accepts.

use std::{
    convert::Infallible,
    future::{poll_fn, ready},
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, ORIGIN},
        uri::Authority,
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
    host::{Host, MemberState},
    rpc::{self, Target},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How much of a body that is too large is read and dropped after the answer, and for how long: a client that is
/// still sending would otherwise see a reset connection in place of the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The host's HTTP service, for one connection after the other.
#[derive(Clone)]
pub struct Service {
    host: Arc<Host>,
    router: TowerToHyperService<Router>,
}

impl Service {
    /// The service of a host: `/mcp` for one member, `/members/<key>/mcp` for many, and `/healthz`.
    pub fn new(host: Arc<Host>) -> Self {
        // Requests to the endpoints come by `call`; what comes by the router has the wrong method.
        let wrong_method = || post(|| async { StatusCode::NOT_FOUND });
        let endpoints = if host.single().is_some() {
            Router::new().route("/mcp", wrong_method())
        } else {
            Router::new().route("/members/{x}/mcp", wrong_method()).route("/members/{x}/{y}/mcp", wrong_method())
        };
        let router = endpoints.route("/healthz", get(|| async { "ok\n" }));
        Self { host, router: TowerToHyperService::new(router) }
    }

    /// The key of the member whose endpoint a path is; empty for the one member of its host.
    fn endpoint_at<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.host.single().is_some() {
            return (path == "/mcp").then_some("");
        }
        let key = path.strip_prefix("/members/")?.strip_suffix("/mcp")?;
        (!key.is_empty() && key.split('/').count() <= 2).then_some(key)
    }
}

type Answer = Result<Response, Infallible>;

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Answer>, TowerToHyperServiceFuture<Router, Request<Incoming>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let Err(why) = check_origin(request.uri().authority(), request.headers()) {
            return Either::Left(Box::pin(ready(Ok((StatusCode::FORBIDDEN, why).into_response()))));
        }
        // Nearly all requests are for an endpoint, and need no router.
        match self.endpoint_at(request.uri().path()) {
            Some(key) if request.method() == Method::POST => {
                let (host, key) = (self.host.clone(), key.to_owned());
                let request = request.map(Body::new);
                Either::Left(Box::pin(async move {
                    Ok(match host.single() {
                        Some(member) => endpoint(&host, Target::Member(&member), request).await,
                        None => of_member(&host, &key, request).await,
                    })
                }))
            }
            _ => Either::Right(self.router.call(request)),
        }
    }
}

async fn of_member(host: &Host, key: &str, request: Request) -> Response {
    match host.state(key) {
        Some(MemberState::Ready(member)) => endpoint(host, Target::Member(member), request).await,
        Some(MemberState::Error(reason)) => {
            let reason = format!("member {key} is in state error: {reason}");
            endpoint(host, Target::Unavailable(&reason), request).await
        }
        Some(MemberState::Foreign) => {
            let reason = format!("member {key} has no component: it is served by its own process, not by this host");
            endpoint(host, Target::Unavailable(&reason), request).await
        }
        None => (StatusCode::NOT_FOUND, "no such member\n").into_response(),
    }
}

/// A member's endpoint: JSON-RPC in, JSON-RPC out.
async fn endpoint(host: &Host, target: Target<'_>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json\n").into_response();
    }
    let limits = host.limits();
    let limit = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    let mut reading = pin!(read_body(body, limit));
    let read = match soon(reading.as_mut()).await {
        Some(read) => Ok(read),
        None => tokio::time::timeout(patience, reading).await,
    };
    let body = match read {
        Ok(Ok(body)) => body,
        Ok(Err(BodyError::TooLarge(rest))) => return too_large(limit, parts.headers.contains_key(EXPECT), rest),
        Ok(Err(BodyError::Broken)) => return (StatusCode::BAD_REQUEST, "the body is broken off\n").into_response(),
        Err(_) => return closing(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n".to_owned()),
    };
    match rpc::answer(target, limits, &body).await {
        Some(answer) => {
            let mut response = Response::new(Body::from(answer));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response
        }
        None => StatusCode::ACCEPTED.into_response(),
    }
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

/// What a future gives when it is asked twice: a body that came with its head is there by then, and needs no timer.
async fn soon<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut asked = false;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if asked => Poll::Ready(None),
        Poll::Pending => {
            asked = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
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

/// Whether the request means this host by a name of this machine, and comes from no other place.
fn check_origin(target: Option<&Authority>, headers: &HeaderMap) -> Result<(), &'static str> {
    let values = |name: HeaderName| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    if target.is_some_and(|authority| !is_loopback(authority.as_str())) || !values(HOST).all(is_loopback) {
        return Err("this host answers to localhost, 127.0.0.1 and [::1] only\n");
    }
    if target.is_none() && !headers.contains_key(HOST) {
        return Err("a request names its host\n");
    }
    let is_local_origin = |origin: &str| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(is_loopback)
    };
    if !values(ORIGIN).all(is_local_origin) {
        return Err("requests from other origins are not answered\n");
    }
    Ok(())
}

/// Whether `host` or `host:port` is a loopback address or `localhost`. An address cannot be bound to another name.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => match port.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if !port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        return false;
    }
    let bracketed = authority.starts_with('[');
    match host {
        "localhost" | "127.0.0.1" => !bracketed,
        _ => match host.parse::<IpAddr>() {
            Ok(address) => address.is_ipv6() == bracketed && address.is_loopback(),
            Err(_) => !bracketed && host.eq_ignore_ascii_case("localhost"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_by_its_own_names_is_loopback() {
        for own in ["localhost", "LocalHost:80", "127.0.0.1:5", "127.0.0.2", "[::1]", "[::1]:9"] {
            assert!(is_loopback(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "::1",
            "[localhost]",
            "[127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
            "localhost:80@evil",
            "localhost:x",
            "0.0.0.0",
            "localhost/",
        ] {
            assert!(!is_loopback(foreign), "{foreign}");
        }
    }
}
