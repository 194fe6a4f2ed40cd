//! HTTP: who may ask, where, and what counts as a request. What a request says is for [`rpc`], or for [`sdk`] where its
//! client has a session, or says that it is of a version of MCP without any.
//!
//! [`guild_auth`] is asked before any path is looked at: a page in a browser whose name was bound to this
//! host's address is answered 403, whatever it asks for. An answer of [`rpc`] is always one JSON text, never a stream, whatever
//! the client accepts.

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderValue, Method, Request, StatusCode,
        header::{ALLOW, CONNECTION, CONTENT_TYPE, EXPECT},
    },
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt, future::BoxFuture, poll};
use guild_auth::{Caller, Connection, Ingress, LARGE, Refused};
use guild_contract::{
    json::{has_lone_surrogate, repair_surrogates},
    rpc::{RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::{host::Host, roster::Reading};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
    time::timeout,
};
use tracing::Level;

use crate::{
    declined::Declined,
    events,
    hall::port,
    mcp::{Absent, Endpoint, Server, Unavailable},
    rpc::{self, Answer, RequestContext, Target},
    sdk::{self, Services},
};

/// A request whose body may have been read.
type Asked = Request<Option<Incoming>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How much of a body that is too large is read and dropped after the answer, and for how long: a client that is
/// still sending would otherwise see a reset connection in place of the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Says that the host is up, and nothing else, with or without a token.
const HEALTH: &str = "/healthz";
/// Tells who is served, and why somebody is not.
const MEMBERS: &str = "/members";

/// The host's HTTP service.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    host: Arc<Host>,
    sdk: Services,
    since: Instant,
}

impl Service {
    /// The service of a host: `/mcp`, `/members/<key>/mcp` in a roster, `/dispatch/<key>/mcp` for workers,
    /// `/all/<key>/mcp` for all that a member offers, `/hall/mcp` and the API of the hall below `/hall`, and `/healthz`.
    pub fn new(host: Arc<Host>) -> Self {
        let sdk = Services::new(host.clone());
        Self(Arc::new(Inner { host, sdk, since: Instant::now() }))
    }

    /// Where it is asked, and by which rules.
    pub(crate) fn ingress(&self) -> &Arc<Ingress> {
        self.0.host.ingress()
    }

    /// Answers a request of a connection.
    pub(crate) fn respond(
        self,
        from: Arc<Connection>,
        request: Request<Incoming>,
    ) -> BoxFuture<'static, Result<Response, Infallible>> {
        Box::pin(async move {
            let mut request = request.map(Some);
            let logged = tracing::enabled!(Level::DEBUG)
                .then(|| (Instant::now(), request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS)));
            let response = self.0.answer(&from, &mut request).await;
            if let Some((began, method, path)) = logged {
                let (peer, status, ms) = (from.peer(), response.status().as_u16(), began.elapsed().as_millis());
                tracing::debug!(%peer, %method, path, status, ms, "answered over HTTP");
            }
            Ok(response)
        })
    }
}

impl Inner {
    async fn answer(&self, from: &Arc<Connection>, request: &mut Asked) -> Response {
        // One reading of guild.toml, for all that becomes of the request.
        let reading = self.host.roster().now();
        let path = request.uri().path();
        let at = Endpoint::at(path, self.host.single_key());
        let is_of_hall = port::path(path).is_some();
        let decline = |declined: Declined| match at {
            Some(_) => declined.message(None),
            None if is_of_hall => declined.json(),
            None => declined.text(),
        };
        let called_by = match from.called_by(&reading.rules, request.uri().authority(), request.headers()) {
            Ok(called_by) => called_by,
            Err(why) => return decline(Declined::new(StatusCode::FORBIDDEN, RpcError::new(code::FORBIDDEN, why))),
        };
        if path == HEALTH {
            return match *request.method() {
                Method::GET | Method::HEAD => "ok\n".into_response(),
                _ => not_but("GET, HEAD"),
            };
        }
        let member = at.and_then(Endpoint::member);
        let admitted = from.admit(&reading.rules, called_by, request.headers(), member);
        let caller = match admitted.and_then(|caller| if is_of_hall { caller.of_all() } else { Ok(caller) }) {
            Ok(caller) => caller,
            Err(refused) => return decline(refused.into()),
        };
        if path == events::PATH || path == MEMBERS {
            return match *request.method() {
                Method::GET if path == MEMBERS => members(&reading, &caller),
                Method::GET => events::listen(self.host.events(), caller, request.uri(), request.headers()),
                _ => not_but("GET"),
            };
        }
        let Some(endpoint) = at else {
            return match is_of_hall {
                true => self.at_hall(caller, request).await.unwrap_or_else(Declined::json),
                false => StatusCode::NOT_FOUND.into_response(),
            };
        };
        let server = match Server::at(&self.host, &reading, endpoint) {
            Ok(server) => Ok(server),
            Err(Absent::Unavailable(unavailable)) => Err(unavailable),
            Err(Absent::NotFound(why)) => return decline(Declined::invalid(StatusCode::NOT_FOUND, why)),
        };
        self.at_endpoint(&server, &caller, request).await
    }

    /// The API of the hall.
    async fn at_hall(&self, caller: Caller, request: &mut Asked) -> Result<Response, Declined> {
        let (parts, body) = mem::take(request).into_parts();
        let body = match body.filter(|body| !body.is_end_stream()) {
            Some(_) if !is_json(&parts.headers) => return Err(not_json()),
            Some(body) => whole(body, &parts.headers, &caller).await?,
            None => Bytes::new(),
        };
        // A client that goes away leaves nothing half done.
        match tokio::spawn(port::answer(self.host.clone(), caller, parts, body, self.since)).await {
            Ok(answered) => answered,
            Err(_) => Err(RpcError::internal("the host could not answer; its log says why").into()),
        }
    }

    /// An endpoint: a message of MCP, or JSON-RPC in and JSON-RPC out.
    async fn at_endpoint(
        &self,
        server: &Result<Server, Unavailable>,
        caller: &Caller,
        request: &mut Asked,
    ) -> Response {
        let is_post = *request.method() == Method::POST;
        let body = match request.body_mut().take().filter(|_| is_post) {
            Some(_) if !is_json(request.headers()) => return not_json().message(None),
            Some(body) => match whole(body, request.headers(), caller).await {
                Ok(body) => body,
                Err(declined) => return declined.message(None),
            },
            None => Bytes::new(),
        };
        let is_large = body.len() as u64 > LARGE;
        let (member, target) = match (server, sdk::wanted(request.method(), request.headers(), &body)) {
            (Ok(server), Some(era)) => {
                let (parts, _) = mem::take(request).into_parts();
                // Boxed, so that the future of a request stays small.
                let handled = Box::pin(self.sdk.handle(era, Server::clone(server), caller.clone(), parts, body));
                return if is_large { beside_others(handled).await } else { handled.await };
            }
            _ if !is_post => return not_but("POST"),
            (Ok(server), None) => (server.key(), Target::Server(server)),
            (Err(Unavailable { member, reason }), _) => (member.as_str(), Target::Unavailable(reason)),
        };
        let context = RequestContext { caller, member, target };
        let answered = if is_large {
            Box::pin(beside_others(Box::pin(rpc::answer(context, caller.limits(), &body)))).await
        } else {
            rpc::answer(context, caller.limits(), &body).await
        };
        match answered {
            Answer::Json(answer) => match caller.awaits(answer) {
                Ok(answer) => {
                    let mut response = Response::new(Body::from(answer));
                    response.headers_mut().insert(CONTENT_TYPE, JSON);
                    response
                }
                Err(refused) => Declined::from(refused).message(id_of(&body)),
            },
            Answer::Nothing => StatusCode::ACCEPTED.into_response(),
            Answer::Refused(refused) => Declined::from(refused).message(id_of(&body)),
        }
    }
}

/// The id of the one request that a body is.
fn id_of(body: &[u8]) -> Option<&str> {
    str::from_utf8(body).ok().and_then(rpc::id)
}

/// Carries out what looks through a large text, which may take long, without holding up what else its thread has to do.
async fn beside_others<T>(mut work: impl Future<Output = T> + Unpin) -> T {
    let has_others = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    poll_fn(|context| match has_others {
        true => block_in_place(|| work.poll_unpin(context)),
        false => work.poll_unpin(context),
    })
    .await
}

/// The answer to a request whose method is not for its path, as these are.
fn not_but(allowed: &'static str) -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, HeaderValue::from_static(allowed))]).into_response()
}

/// A request's body; else why it is not read.
async fn whole(body: Incoming, headers: &HeaderMap, caller: &Caller) -> Result<Bytes, Declined> {
    let limits = caller.limits();
    let limit = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    let mut reading = pin!(read_body(body, limit, caller));
    // The usual case: it came with the head, and there is nothing to time.
    let read = match poll!(&mut reading) {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => timeout(patience, reading).await,
    };
    match read {
        Ok(Ok(body)) => Ok(repaired(body, caller).await?),
        Ok(Err(BodyError::TooLarge(rest))) => {
            discard_unless_expected(headers, rest);
            let why = format!("a request's body is at most {limit} bytes");
            Err(closing(Declined::invalid(StatusCode::PAYLOAD_TOO_LARGE, why)))
        }
        Ok(Err(BodyError::NoMemory(refused, rest))) => {
            discard_unless_expected(headers, rest);
            Err(closing(refused.into()))
        }
        Ok(Err(BodyError::Broken)) => Err(Declined::invalid(StatusCode::BAD_REQUEST, "the body is broken off")),
        Err(_) => Err(closing(Declined::invalid(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))),
    }
}

/// A JSON body without halves of surrogate pairs.
async fn repaired(body: Bytes, caller: &Caller) -> Result<Bytes, Refused> {
    if !has_lone_surrogate(&body) {
        return Ok(body);
    }
    let mut own = match body.try_into_mut() {
        Ok(own) => own,
        Err(shared) => {
            caller.takes(shared.len() as u64).await?;
            BytesMut::from(&*shared)
        }
    };
    repair_surrogates(&mut own);
    Ok(own.freeze())
}

/// The members that a caller may know of, as JSON.
fn members(reading: &Reading, caller: &Caller) -> Response {
    let mut report = reading.report();
    report.retain(|report| caller.is_for(&report.member));
    let mut response = Response::new(Body::from(guild_roster::to_json(&report)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

enum BodyError {
    /// What has not been read of it.
    TooLarge(BodyDataStream<Incoming>),
    /// The same, where there is no memory for it.
    NoMemory(Refused, BodyDataStream<Incoming>),
    /// The client went away, or what it sent is no body.
    Broken,
}

/// Reads a body of at most `limit` bytes. One that announces more is not read at all, nor one for which there is no memory.
async fn read_body(body: Incoming, limit: usize, caller: &Caller) -> Result<Bytes, BodyError> {
    let announced = body.size_hint();
    let mut body = BodyDataStream::new(body);
    if announced.lower() > limit as u64 {
        return Err(BodyError::TooLarge(body));
    }
    if let Err(refused) = caller.takes(announced.lower()).await {
        return Err(BodyError::NoMemory(refused, body));
    }
    let Some(first) = body.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| BodyError::Broken)?;
    // The usual case: the body is there in one piece.
    if announced.exact() == Some(first.len() as u64) {
        return Ok(first);
    }
    let (mut whole, mut counted) = (BytesMut::from(first), announced.lower());
    // What is announced is counted already.
    whole.reserve(usize::try_from(counted).unwrap_or(usize::MAX).saturating_sub(whole.len()));
    loop {
        if whole.len() > limit {
            return Err(BodyError::TooLarge(body));
        }
        // Of unannounced length it grows by doubling.
        if whole.capacity() as u64 > counted.saturating_add(LARGE) {
            if let Err(refused) = caller.takes(whole.capacity() as u64 - counted).await {
                return Err(BodyError::NoMemory(refused, body));
            }
            counted = whole.capacity() as u64;
        }
        match body.next().await {
            Some(Ok(piece)) => whole.extend_from_slice(&piece),
            Some(Err(_)) => return Err(BodyError::Broken),
            None => return Ok(whole.freeze()),
        }
    }
}

/// Lets a client that is sending see its answer.
fn discard_unless_expected(headers: &HeaderMap, rest: BodyDataStream<Incoming>) {
    // One that waits for "100 Continue" has sent nothing yet, and sends nothing now.
    if !headers.contains_key(EXPECT) {
        tokio::spawn(timeout(DISCARD_TIME, discard(rest)));
    }
}

async fn discard(mut body: BodyDataStream<Incoming>) {
    let mut discarded = 0_usize;
    while let Some(Ok(piece)) = body.next().await {
        discarded = discarded.saturating_add(piece.len());
        if discarded > DISCARD_BYTES {
            return;
        }
    }
}

/// An answer after which the connection cannot be used again.
fn closing(declined: Declined) -> Declined {
    declined.with(CONNECTION, HeaderValue::from_static("close"))
}

/// The answer to a body of another type.
fn not_json() -> Declined {
    Declined::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    if value == JSON {
        return true;
    }
    let media_type = value.to_str().ok().and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}
