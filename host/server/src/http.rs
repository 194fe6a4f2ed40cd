//! Defines the routes of a host's port, and admits requests to them.
//!
//! [`guild_auth`] comes first: a request whose host name does not belong to this host, as from a page in a browser
//! after DNS rebinding, gets 403. [`rpc`] handles requests to [`mcp`](crate::mcp) endpoints; [`sdk`] handles requests
//! with a session, and requests that state an MCP version without sessions. A response of [`rpc`] is always one JSON
//! text, never a stream, regardless of the types that the client accepts.

use std::{future::poll_fn, sync::Arc};

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{Extensions, HeaderValue, Method, StatusCode, header::ALLOW},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use bytes::Bytes;
use futures::FutureExt;
use guild_auth::{Caller, Connection, Ingress, LARGE};
use guild_contract::rpc::{RpcError, code};
use guild_roster::{host::Host, members::roster::Reading};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

use crate::{
    declined::{Declined, Shape, json_response},
    events,
    hall::{Api, NO_HALL},
    input::body::{is_json, not_json, whole},
    layers::{compression, of_connection, panics},
    mcp::{Absent, Endpoint, Server, Unavailable},
    rpc::{self, Answer, RequestContext, Target},
    sdk::{self, Services},
};

/// The paths of the MCP endpoints; [`Endpoint::at`] finds those that exist.
const ENDPOINTS: [&str; 8] = [
    "/mcp",
    "/hall/mcp",
    "/members/{key}/mcp",
    "/members/{scope}/{key}/mcp",
    "/dispatch/{key}/mcp",
    "/dispatch/{scope}/{key}/mcp",
    "/all/{key}/mcp",
    "/all/{scope}/{key}/mcp",
];

/// The HTTP service of a host's port.
#[derive(Clone)]
pub struct Service {
    router: Router,
    ingress: Arc<Ingress>,
}

impl Service {
    /// The service of a host.
    pub fn new(host: Arc<Host>) -> Self {
        let ingress = host.ingress().clone();
        Self { router: of_port(Arc::new(App { sdk: Services::new(host.clone()), host })), ingress }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// The rules by which requests are admitted.
    pub(crate) fn ingress(&self) -> &Arc<Ingress> {
        &self.ingress
    }
}

/// State of the handlers.
struct App {
    host: Arc<Host>,
    sdk: Services,
}

fn of_port(app: Arc<App>) -> Router {
    let gate = |shape| from_fn_with_state(Gate { app: app.clone(), shape }, admit);
    let health = get(|| async { "ok\n" });
    let plain = Router::new()
        .route("/members", get(members))
        // A stream of events has no head alone.
        .route(events::PATH, get(listen).head(not_get))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer((gate(Shape::Text), panics(Shape::Text), compression()));
    let endpoints = ENDPOINTS.into_iter().fold(Router::new(), |router, path| router.route(path, any(endpoint)));
    let hall: Router = match Api::of(&app.host) {
        Some(api) => api.router(),
        None => Router::new().fallback(|| async { Declined::invalid(StatusCode::NOT_FOUND, NO_HALL).json() }),
    };
    let router = plain
        .merge(endpoints.layer((gate(Shape::Message), panics(Shape::Message))))
        .with_state(app.clone())
        .nest_service("/hall", hall.layer((gate(Shape::Hall), panics(Shape::Hall), compression())))
        .merge(Router::new().route("/healthz", health.layer(from_fn_with_state(app, check_names))));
    of_connection(router)
}

/// Refuses a request whose host name does not belong to this host.
async fn check_names(
    State(app): State<Arc<App>>,
    Extension(from): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    let reading = app.host.roster().now();
    match from.called_by(&reading.rules, request.uri().authority(), request.headers()) {
        Ok(_) => next.run(request).await,
        Err(why) => Declined::new(StatusCode::FORBIDDEN, RpcError::new(code::FORBIDDEN, why)).text(),
    }
}

/// The gate of a group of routes.
#[derive(Clone)]
struct Gate {
    app: Arc<App>,
    shape: Shape,
}

/// Admits a request. The handlers get its caller, and one reading of `guild.toml` for the whole request.
async fn admit(
    State(Gate { app, shape }): State<Gate>,
    Extension(from): Extension<Arc<Connection>>,
    mut request: Request,
    next: Next,
) -> Response {
    let reading = app.host.roster().now();
    let called_by = match from.called_by(&reading.rules, request.uri().authority(), request.headers()) {
        Ok(called_by) => called_by,
        Err(why) => return shape.decline(Declined::new(StatusCode::FORBIDDEN, RpcError::new(code::FORBIDDEN, why))),
    };
    let endpoint = match shape {
        Shape::Message => Endpoint::at(request.uri().path(), app.host.single_key()),
        Shape::Text | Shape::Hall => None,
    };
    let member = endpoint.as_ref().and_then(Endpoint::member);
    let admitted = from.admit(&reading.rules, called_by, request.headers(), member);
    let is_of_all = matches!(shape, Shape::Hall) || endpoint == Some(Endpoint::Hall);
    let caller = match admitted.and_then(|caller| if is_of_all { caller.require_all_members() } else { Ok(caller) }) {
        Ok(caller) => caller,
        Err(refused) => return shape.decline(refused.into()),
    };
    if let Some(endpoint) = endpoint {
        request.extensions_mut().insert(endpoint);
    }
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(reading);
    next.run(request).await
}

/// Lists the members that a caller may see, with the errors of those that are not served.
async fn members(Extension(reading): Extension<Arc<Reading>>, Extension(caller): Extension<Caller>) -> Response {
    let mut report = reading.report();
    report.retain(|report| caller.is_for(&report.member));
    json_response(StatusCode::OK, guild_roster::to_json(&report))
}

/// Streams the events of jobs.
async fn listen(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    events::listen(app.host.events(), caller, request.uri(), request.headers())
}

/// Refuses a request for the head of a stream.
async fn not_get() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, HeaderValue::from_static("GET"))]).into_response()
}

/// Handles a request to an MCP endpoint, which is an MCP message or plain JSON-RPC.
async fn endpoint(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(reading): Extension<Arc<Reading>>,
    endpoint: Option<Extension<Endpoint>>,
    request: Request,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(Extension(endpoint)) = endpoint else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let server = match Server::at(&app.host, &reading, &endpoint) {
        Ok(server) => Ok(server),
        Err(Absent::Unavailable(unavailable)) => Err(unavailable),
        Err(Absent::NotFound(why)) => return Declined::invalid(StatusCode::NOT_FOUND, why).message(None),
    };
    let is_post = parts.method == Method::POST;
    let body = match is_post {
        true if !is_json(&parts.headers) => return not_json().message(None),
        true => match whole(body, &parts, &caller).await {
            Ok(body) => body,
            Err(declined) => return declined.message(None),
        },
        false => Bytes::new(),
    };
    let is_large = body.len() as u64 > LARGE;
    let (member, target) = match (&server, sdk::protocol_of(&parts.method, &parts.headers, &body)) {
        (Ok(server), Some(era)) => {
            // A stream lives long, and must keep neither its caller's place nor an old reading of `guild.toml`.
            parts.extensions = Extensions::new();
            // Boxed, so that the future of a request stays small.
            let handled = Box::pin(app.sdk.handle(era, Server::clone(server), caller, parts, body));
            return if is_large { beside_others(handled).await } else { handled.await };
        }
        _ if !is_post => {
            return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, HeaderValue::from_static("POST"))]).into_response();
        }
        (Ok(server), None) => (server.key(), Target::Server(server)),
        (Err(Unavailable { member, reason }), _) => (member.as_str(), Target::Unavailable(reason)),
    };
    let context = RequestContext { caller: &caller, member, target };
    let answered = if is_large {
        Box::pin(beside_others(Box::pin(rpc::answer(context, caller.limits(), &body)))).await
    } else {
        rpc::answer(context, caller.limits(), &body).await
    };
    match answered {
        Answer::Json(answer) => match caller.respond(answer) {
            Ok(answer) => json_response(StatusCode::OK, answer),
            Err(refused) => Declined::from(refused).message(id_of(&body)),
        },
        Answer::Nothing => StatusCode::ACCEPTED.into_response(),
        Answer::Refused(refused) => Declined::from(refused).message(id_of(&body)),
    }
}

/// The id of the single request in a body.
fn id_of(body: &[u8]) -> Option<&str> {
    str::from_utf8(body).ok().and_then(rpc::id)
}

/// Runs work that scans a large text, without blocking other tasks of its thread.
async fn beside_others<T>(mut work: impl Future<Output = T> + Unpin) -> T {
    let has_others = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    poll_fn(|context| match has_others {
        true => block_in_place(|| work.poll_unpin(context)),
        false => work.poll_unpin(context),
    })
    .await
}
