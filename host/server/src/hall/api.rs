//! Serves the routes of the hall's API, on the port below `/hall` and on the Unix socket, one for each row of
//! [`OPERATIONS`].

use std::{future::ready, sync::Arc};

use axum::{
    Extension, Router,
    body::{Body, HttpBody as _},
    extract::{RawPathParams, Request, State, rejection::RawPathParamsRejection},
    http::{Method, StatusCode, Uri},
    response::Response,
    routing::any,
};
use futures::StreamExt as _;
use guild_auth::{Audit, Caller, Ingress, Operation, Subscription, budget::Permit};
use guild_contract::{
    operation::{Access, AnswerKind, Verbs},
    rpc::{RpcError, code},
};
use guild_hall::{
    Hall,
    operations::{HallOperation, OPERATIONS},
};
use guild_roster::{events::Hub, host::Host};
use tracing::Instrument as _;

use super::{
    events as stream,
    routes::{self, Answered, Asked},
};
use crate::{
    declined::{Declined, HANDLER_FAILED},
    events,
    input::{
        body::{is_json, not_json, whole},
        json,
    },
    layers::Admitted,
};

/// The error below `/hall` on a host without a hall.
pub(crate) const NO_HALL: &str = "this host has no hall; start it with `guild serve --hall HOME`";

/// The stream of the hall's events. It has no end, so it is not an operation. The original's command line requests it
/// by POST.
const EVENTS: &str = "/system/events/stream/subscribe";
/// The operation that the gate checks for the stream.
const LISTENS: Operation<'static> = Operation { name: "system/events", access: Access::Reads };

/// The API of a hall.
#[derive(Clone)]
pub struct Api {
    hall: Arc<Hall>,
    /// Counts the listeners.
    events: Arc<Hub>,
    pub(super) ingress: Arc<Ingress>,
}

impl Api {
    /// The API of a hall. `events` counts its listeners, `ingress` its callers.
    pub fn new(hall: Arc<Hall>, events: Arc<Hub>, ingress: Arc<Ingress>) -> Self {
        Self { hall, events, ingress }
    }

    /// The API of a host's hall, if the host has one.
    pub fn of(host: &Host) -> Option<Self> {
        host.hall().map(|hall| Self::new(hall.clone(), host.events().clone(), host.ingress().clone()))
    }

    /// The routes. Requests must carry [`Admitted`] as an extension.
    pub(crate) fn router(self) -> Router {
        let mut router = Router::new().route(EVENTS, any(listen));
        for operation in OPERATIONS.iter() {
            let Some(route) = operation.row.route else { continue };
            let handler = async move |State(api): State<Self>,
                                      Extension(admitted): Extension<Admitted>,
                                      path: Result<RawPathParams, RawPathParamsRejection>,
                                      request: Request| {
                let Some(path) = path.ok().filter(|_| route.verbs.include(request.method().as_str())) else {
                    return not_found(request.method().clone(), request.uri().clone()).await;
                };
                let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                api.carry_out(operation, admitted, path, request).await.unwrap_or_else(Declined::json)
            };
            router = router.route(route.path, any(handler));
        }
        router.fallback(not_found).with_state(self)
    }

    /// Carries out an operation, even if the client goes away: a change is made completely, or not at all.
    ///
    /// # Errors
    ///
    /// Returns an error when the caller may not call the operation, or not now.
    async fn carry_out(
        self,
        operation: &'static HallOperation,
        admitted: Admitted,
        path: Vec<(String, String)>,
        request: Request,
    ) -> Result<Response, Declined> {
        let (parts, body) = request.into_parts();
        if !body.is_end_stream() && !admitted.caller.is_process() && !is_json(&parts.headers) {
            return Err(not_json());
        }
        let body = whole(body, &parts.headers, &admitted).await?;
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let asked = Asked { operation, path, query, body, is_query: parts.method != Method::POST };
        match tokio::spawn(async move { self.answer(admitted.caller, asked).await }.in_current_span()).await {
            Ok(answered) => answered,
            Err(_) => Err(RpcError::internal(HANDLER_FAILED).into()),
        }
    }

    async fn answer(&self, caller: Caller, asked: Asked) -> Result<Response, Declined> {
        let (limits, row) = (caller.limits(), &asked.operation.row);
        let refused = |why| Declined::invalid(StatusCode::BAD_REQUEST, format!("the body is {why}"));
        let bytes = json::check(&asked.body, limits).map_err(refused)?;
        caller.reserve(bytes.saturating_add(row.answer_bytes)).await?;
        let authorized = caller.authorize("", Operation { name: row.name, access: row.access })?;
        let no_place = || events::no_place(&self.events);
        let place = match row.answer {
            AnswerKind::Turn => Some(self.events.place(caller.identity()).ok_or_else(no_place)?),
            AnswerKind::Json | AnswerKind::File => None,
        };
        let token = caller.token().map(str::to_owned);
        let work = async |audit: Audit| {
            let response = guild_hall::with_token(token, routes::answer(&self.hall, asked)).await;
            let answered = response.extensions().get::<Answered>();
            if let Some(about) = answered.and_then(|answered| answered.about.as_deref()) {
                audit.of(about);
            }
            let refused = answered.and_then(|answered| answered.refused);
            audit.end(failure(refused.unwrap_or(response.status())).as_ref());
            Ok(response)
        };
        let response = authorized.run(work).await?;
        if let Some(place) = place.filter(|_| routes::is_of_events(&response)) {
            return Ok(listened(response, caller.into_subscription(), place));
        }
        let (head, body) = response.into_parts();
        let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        Ok(Response::from_parts(head, Body::from(caller.respond(whole)?)))
    }
}

/// The response for an unknown route.
async fn not_found(method: Method, uri: Uri) -> Response {
    routes::error(StatusCode::NOT_FOUND, &format!("{method} {} not found", uri.path()))
}

/// Streams the events of the hall from now on.
async fn listen(
    State(api): State<Api>,
    Extension(Admitted { caller, .. }): Extension<Admitted>,
    method: Method,
    uri: Uri,
) -> Response {
    if !Verbs::Both.include(method.as_str()) {
        return not_found(method, uri).await;
    }
    let listened = async {
        let authorized = caller.authorize("", LISTENS)?;
        let place = api.events.place(caller.identity()).ok_or_else(|| events::no_place(&api.events))?;
        let response = authorized.run(async |_| Ok(stream::listen(&api.hall))).await?;
        Ok::<_, Declined>(listened(response, caller.into_subscription(), place))
    };
    listened.await.unwrap_or_else(Declined::json)
}

/// The audit log's error for a response that is a refusal.
fn failure(status: StatusCode) -> Option<RpcError> {
    let code = if status.is_server_error() { code::INTERNAL_ERROR } else { code::INVALID_PARAMS };
    (!status.is_success()).then(|| RpcError::new(code, status.to_string()))
}

/// A stream of events that ends when its listener may no longer listen.
fn listened(response: Response, subscription: Subscription, place: Permit) -> Response {
    response.map(|body| {
        Body::from_stream(body.into_data_stream().take_while(move |_| {
            // The place is held for as long as the stream lives.
            let _place = &place;
            ready(subscription.is_good())
        }))
    })
}
