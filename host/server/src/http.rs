//! HTTP: who may ask, where, and what counts as a request. What a request says is for [`rpc`], or for [`sdk`] where its
//! client has a session, or says that it is of a version of MCP without any.
//!
//! [`guild_auth`] is asked before any path is looked at: a page in a browser whose name was bound to this
//! host's address is answered 403, whatever it asks for. An answer of [`rpc`] is always one JSON text, never a stream, whatever
//! the client accepts.

use std::{convert::Infallible, future::poll_fn, mem, sync::Arc, time::Instant};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderValue, Method, Request, StatusCode,
        header::{ALLOW, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use guild_auth::{Caller, Connection, Ingress, LARGE};
use guild_contract::{
    rpc::{RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::{host::Host, roster::Reading};
use hyper::body::Incoming;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tracing::Level;

use crate::{
    body::whole,
    connections::Activity,
    declined::Declined,
    events,
    hall::{self, Api, NO_HALL},
    mcp::{Absent, Endpoint, Server, Unavailable},
    rpc::{self, Answer, RequestContext, Target},
    sdk::{self, Services},
};

/// A request whose body may have been read.
type Asked = Request<Option<Incoming>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

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
    hall: Option<Api>,
}

impl Service {
    /// The service of a host: `/mcp`, `/members/<key>/mcp` in a roster, `/dispatch/<key>/mcp` for workers,
    /// `/all/<key>/mcp` for all that a member offers, `/hall/mcp` and the API of the hall below `/hall`, and `/healthz`.
    pub fn new(host: Arc<Host>) -> Self {
        let (sdk, hall) = (Services::new(host.clone()), Api::of(&host));
        Self(Arc::new(Inner { host, sdk, hall }))
    }

    /// Where it is asked, and by which rules.
    pub(crate) fn ingress(&self) -> &Arc<Ingress> {
        self.0.host.ingress()
    }

    /// Answers a request of a connection.
    pub(crate) fn respond(
        self,
        from: Arc<Connection>,
        activity: Arc<Activity>,
        request: Request<Incoming>,
    ) -> BoxFuture<'static, Result<Response, Infallible>> {
        Box::pin(async move {
            let mut request = request.map(Some);
            let working = activity.works().await;
            request.extensions_mut().insert(activity);
            let logged = tracing::enabled!(Level::DEBUG)
                .then(|| (Instant::now(), request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS)));
            let response = self.0.answer(&from, &mut request).await;
            if let Some((began, method, path)) = logged {
                let (peer, status, ms) = (from.peer(), response.status().as_u16(), began.elapsed().as_millis());
                tracing::debug!(%peer, %method, path, status, ms, "answered over HTTP");
            }
            Ok(working.until_sent(response))
        })
    }
}

impl Inner {
    async fn answer(&self, from: &Arc<Connection>, request: &mut Asked) -> Response {
        // One reading of guild.toml, for all that becomes of the request.
        let reading = self.host.roster().now();
        let path = request.uri().path();
        let at = Endpoint::at(path, self.host.single_key());
        let is_of_hall = hall::path(path).is_some();
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
            Some(body) => whole(body, &parts, &caller).await?,
            None => Bytes::new(),
        };
        let api = self.hall.as_ref().ok_or_else(|| Declined::invalid(StatusCode::NOT_FOUND, NO_HALL))?;
        let path = hall::path(parts.uri.path()).unwrap_or_default().to_owned();
        api.answer(caller, parts, path, body).await
    }

    /// An endpoint: a message of MCP, or JSON-RPC in and JSON-RPC out.
    async fn at_endpoint(
        &self,
        server: &Result<Server, Unavailable>,
        caller: &Caller,
        request: &mut Asked,
    ) -> Response {
        let is_post = *request.method() == Method::POST;
        let (parts, body) = mem::take(request).into_parts();
        let body = match body.filter(|_| is_post) {
            Some(_) if !is_json(&parts.headers) => return not_json().message(None),
            Some(body) => match whole(body, &parts, caller).await {
                Ok(body) => body,
                Err(declined) => return declined.message(None),
            },
            None => Bytes::new(),
        };
        let is_large = body.len() as u64 > LARGE;
        let (member, target) = match (server, sdk::wanted(&parts.method, &parts.headers, &body)) {
            (Ok(server), Some(era)) => {
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

/// The members that a caller may know of, as JSON.
fn members(reading: &Reading, caller: &Caller) -> Response {
    let mut report = reading.report();
    report.retain(|report| caller.is_for(&report.member));
    let mut response = Response::new(Body::from(guild_roster::to_json(&report)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
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
