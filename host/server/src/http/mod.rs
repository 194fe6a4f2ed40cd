//! Defines the routes of a host's port, and admits requests to them.
//!
//! [`guild_auth`] comes first: a request whose host name does not belong to this host, as from a page in a browser
//! after DNS rebinding, gets 403. [`rpc`] handles requests to [`mcp`](crate::mcp) endpoints; [`sdk`] handles requests
//! with a session, and requests that state an MCP version without sessions. A response of [`rpc`] is always one JSON
//! text, never a stream, regardless of the types that the client accepts.

mod metrics;

use std::{future::poll_fn, sync::Arc};

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header::ALLOW},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures::FutureExt;
use guild_auth::{Browser, CalledBy, Caller, Connection, Ingress, LARGE, Refused};
use guild_contract::rpc::{RpcError, code, method};
use guild_roster::{host::Host, members::roster::Reading};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tracing::Instrument as _;

use self::metrics::{METRICS, READY};
use crate::{
    connections::Activity,
    declined::{Declined, Shape, json_response},
    events,
    hall::{Api, NO_HALL, forward::Forwarder},
    input::body::{is_json, not_json, whole},
    layers::{Admitted, Layers, Listener, compression, route},
    mcp::{Absent, Endpoint, Server, Unavailable},
    page::{self, OpenRequest},
    rpc::{self, Answer, RequestContext, Target},
    sdk::{self, Services},
};

/// The path of the host's health, and the path below which the hall's API is.
const HEALTH: &str = "/healthz";
const HALL: &str = "/hall";

/// The HTTP service of a host's port.
#[derive(Clone)]
pub struct Service {
    layers: Layers<App>,
    ingress: Arc<Ingress>,
}

impl Service {
    /// The service of a host.
    pub fn new(host: Arc<Host>) -> Self {
        let ingress = host.ingress().clone();
        let forwarder = Forwarder::new(&host);
        let app = App { router: router(&host), sdk: Services::new(host.clone()), forwarder, host };
        Self { layers: Layers::new(Arc::new(app)), ingress }
    }

    pub(crate) fn layers(&self) -> &Layers<impl Listener> {
        &self.layers
    }

    /// The rules by which requests are admitted.
    pub(crate) fn ingress(&self) -> &Arc<Ingress> {
        &self.ingress
    }
}

/// The listener of a host's port.
struct App {
    host: Arc<Host>,
    sdk: Services,
    /// All routes but the MCP endpoints, whose paths [`Endpoint::at`] reads.
    router: Router,
    /// Passes requests for the hall on.
    forwarder: Forwarder,
}

/// The answer at a path without a resource.
const NOTHING_HERE: &str = "nothing is at this path: a member is at /members/NAME/mcp, the tools of all members are \
                            at /mcp, and the page is at /";

/// The rest of a path in the hall.
fn in_hall(path: &str) -> Option<&str> {
    path.strip_prefix(HALL).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn router(host: &Arc<Host>) -> Router {
    let plain = Router::new()
        .route("/members", get(members))
        // A stream of events has no head alone.
        .route(events::PATH, get(listen).head(not_get))
        .route(METRICS, get(metrics::metrics))
        .fallback(|| async { Declined::invalid(StatusCode::NOT_FOUND, NOTHING_HERE).json() })
        .layer(compression());
    let hall: Router = match Api::of(host) {
        Some(api) => api.router(),
        None => Router::new().fallback(|| async { Declined::invalid(StatusCode::NOT_FOUND, NO_HALL).json() }),
    };
    // Pages are not compressed: the length of a compressed page would tell of the secrets in it.
    plain
        .merge(page::routes())
        .route(HEALTH, get(|| async { "ok\n" }))
        .route(READY, get(metrics::ready))
        .with_state(host.clone())
        .nest_service(HALL, hall.layer(compression()))
}

/// The findings of the gate about a request.
struct Admission {
    /// One reading of `guild.toml` for the whole request.
    reading: Arc<Reading>,
    to: Destination,
}

/// The destination of a request, with its caller.
enum Destination {
    /// The host's health or readiness, which is open to everybody.
    Health,
    /// An MCP endpoint.
    Endpoint(Caller, Endpoint),
    /// A route.
    Route(Caller),
    /// A page of a browser.
    Page(Caller, Browser),
    /// A page that needs no session.
    OpenPage(Arc<Connection>),
}

impl Listener for App {
    type Admission = Admission;

    fn shape(&self, path: &str) -> Shape {
        match in_hall(path) {
            Some(rest) if rest != "/mcp" => Shape::Hall,
            None if page::is_page(path) => Shape::Page,
            None if !path.ends_with("/mcp") => Shape::Text,
            _ => Shape::Message,
        }
    }

    /// Refuses a request whose host name does not belong to this host, and one that its caller may not make. Everybody
    /// may ask for the host's health and readiness.
    fn admit(&self, shape: Shape, from: &Arc<Connection>, request: &Request) -> Result<Admission, Declined> {
        let (path, headers) = (request.uri().path(), request.headers());
        let reading = self.host.roster().now();
        let called_by = from.called_by(&reading.rules, request.uri().authority(), headers);
        let called_by =
            called_by.map_err(|why| Declined::new(StatusCode::FORBIDDEN, RpcError::new(code::FORBIDDEN, why)))?;
        if path == HEALTH || path == READY {
            return Ok(Admission { reading, to: Destination::Health });
        }
        if page::is_page(path) {
            let to = self.admit_to_page(&reading, called_by, from, request)?;
            return Ok(Admission { reading, to });
        }
        let endpoint = Endpoint::at(path, self.host.single_key());
        let member = endpoint.as_ref().and_then(Endpoint::member);
        let caller = from.admit(&reading.rules, called_by, headers, member)?;
        let is_of_all = matches!(shape, Shape::Hall)
            || matches!(endpoint, Some(Endpoint::Hall | Endpoint::Host))
            || path == METRICS;
        let caller = if is_of_all { caller.require_all_members()? } else { caller };
        let to = match endpoint {
            Some(endpoint) => Destination::Endpoint(caller, endpoint),
            None => Destination::Route(caller),
        };
        Ok(Admission { reading, to })
    }

    async fn answer(&self, admission: Admission, activity: Arc<Activity>, mut request: Request) -> Response {
        let Admission { reading, to } = admission;
        let path = request.uri().path();
        if in_hall(path).is_some()
            && let Some(at) = self.host.hall_elsewhere()
        {
            return self.forwarder.forward(at, self.shape(path), request).await;
        }
        if !matches!(to, Destination::Health | Destination::Endpoint(..)) {
            self.host.hear_all().await;
        }
        let extensions = request.extensions_mut();
        match to {
            Destination::Health => {}
            Destination::Endpoint(caller, endpoint) => {
                return self.at_endpoint(reading, &endpoint, Admitted { caller, activity }, request).await;
            }
            Destination::Route(caller) => {
                extensions.insert(reading);
                extensions.insert(Admitted { caller, activity });
            }
            Destination::Page(caller, browser) => {
                extensions.insert(reading);
                extensions.insert(Admitted { caller, activity });
                extensions.insert(browser);
            }
            Destination::OpenPage(from) => {
                extensions.insert(OpenRequest { from, activity, reading });
            }
        }
        route(&self.router, request).await
    }
}

impl App {
    /// Admits a browser to a page. One without a session is led to the form that asks for a token.
    fn admit_to_page(
        &self,
        reading: &Reading,
        called_by: CalledBy,
        from: &Arc<Connection>,
        request: &Request,
    ) -> Result<Destination, Declined> {
        if page::is_open(request.uri().path()) {
            return Ok(Destination::OpenPage(from.clone()));
        }
        match from.admit_browser(&reading.rules, called_by, request.headers()) {
            Ok((caller, browser)) => Ok(Destination::Page(caller, browser)),
            Err(Refused::Unauthorized) => Err(page::sign_in_first(request)),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Handles a request to an MCP endpoint, which is an MCP message or plain JSON-RPC.
    async fn at_endpoint(
        &self,
        reading: Arc<Reading>,
        endpoint: &Endpoint,
        admitted: Admitted,
        request: Request,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let server = match Server::at(&self.host, &reading, endpoint) {
            Ok(server) => Ok(server),
            Err(Absent::Unavailable(unavailable)) => Err(unavailable),
            Err(Absent::NotFound(why)) => return Declined::invalid(StatusCode::NOT_FOUND, why).message(None),
        };
        let is_post = parts.method == Method::POST;
        let body = match is_post {
            true if !is_json(&parts.headers) => return not_json().message(None),
            true => match whole(body, &parts.headers, &admitted).await {
                Ok(body) => body,
                Err(declined) => return declined.message(None),
            },
            false => Bytes::new(),
        };
        // A dispatch is answered sooner without: it reads other jobs only for its `key` and `follows`, and waits then.
        if self.host.is_in_cluster() && !rpc::is_of(&body, method::DISPATCH) {
            self.host.hear_all().await;
        }
        let (caller, is_large) = (admitted.caller, body.len() as u64 > LARGE);
        let span = rpc::span(&body);
        let (member, target) = match (&server, sdk::protocol_of(&parts.method, &parts.headers, &body)) {
            (Ok(server), Some(era)) => {
                // Boxed, so that the future of a request stays small.
                let handled = self.sdk.handle(era, Server::clone(server), caller, parts, body).instrument(span).boxed();
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
            beside_others(rpc::answer(context, caller.limits(), &body).instrument(span).boxed()).await
        } else {
            rpc::answer(context, caller.limits(), &body).instrument(span).await
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
}

/// Lists the members that a caller may see, with the errors of those that are not served.
async fn members(Extension(reading): Extension<Arc<Reading>>, Extension(admitted): Extension<Admitted>) -> Response {
    let mut report = reading.report();
    report.retain(|report| admitted.caller.is_for(&report.member));
    json_response(StatusCode::OK, guild_roster::to_json(&report))
}

/// Streams the events of jobs.
async fn listen(State(host): State<Arc<Host>>, Extension(admitted): Extension<Admitted>, request: Request) -> Response {
    events::listen(host.events(), admitted.caller, request.uri(), request.headers())
}

/// Refuses a request for the head of a stream.
async fn not_get() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, HeaderValue::from_static("GET"))]).into_response()
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
