//! The API as it is asked, on the port below `/hall` and at the Unix socket: by one set of bounds.

use std::{future::ready, sync::Arc};

use axum::{
    body::Body,
    http::{StatusCode, request::Parts},
    response::Response,
};
use bytes::Bytes;
use futures::StreamExt as _;
use guild_auth::{Audit, Caller, Ingress, Subscription, shares::Share};
use guild_contract::rpc::{RpcError, code};
use guild_hall::Hall;
use guild_roster::{events::Hub, host::Host};

use super::routes::{self, Answered, Asked, Found};
use crate::{declined::Declined, events, json};

/// Why there is nothing below `/hall`.
pub(crate) const NO_HALL: &str = "this host has no hall; start it with `guild serve --hall HOME`";

/// What a path is in the API, where it is one of it.
pub(crate) fn path(path: &str) -> Option<&str> {
    path.strip_prefix("/hall").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The API of a hall.
#[derive(Clone)]
pub struct Api {
    hall: Arc<Hall>,
    /// Where its listeners are counted.
    events: Arc<Hub>,
    pub(super) ingress: Arc<Ingress>,
}

impl Api {
    /// That of a hall, of which it is known where its callers are counted.
    pub fn new(hall: Arc<Hall>, events: Arc<Hub>, ingress: Arc<Ingress>) -> Self {
        Self { hall, events, ingress }
    }

    /// That of the hall of a host, where it has one.
    pub fn of(host: &Host) -> Option<Self> {
        host.hall().map(|hall| Self::new(hall.clone(), host.events().clone(), host.ingress().clone()))
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Where the caller may not make it, or not now.
    pub(crate) async fn answer(
        &self,
        caller: Caller,
        parts: Parts,
        path: String,
        body: Bytes,
    ) -> Result<Response, Declined> {
        let api = self.clone();
        // A client that goes away leaves nothing half done: a change is made whole, or not at all.
        match tokio::spawn(async move { api.answered(caller, parts, &path, body).await }).await {
            Ok(answered) => answered,
            Err(_) => Err(RpcError::internal("the host could not answer; its log says why").into()),
        }
    }

    async fn answered(&self, caller: Caller, parts: Parts, path: &str, body: Bytes) -> Result<Response, Declined> {
        let limits = caller.limits();
        if json::is_deeper(&body, limits.json_depth as usize) {
            let why = format!("the body is JSON that nests deeper than {} levels", limits.json_depth);
            return Err(Declined::invalid(StatusCode::BAD_REQUEST, why));
        }
        let weight = json::weigh(&body, limits).map_err(|why| Declined::invalid(StatusCode::BAD_REQUEST, why))?;
        let found = Found::at(&parts.method, path);
        caller.takes(weight.saturating_add(found.answer_bytes())).await?;
        let authorized = caller.authorize("", found.operation())?;
        let query = parts.uri.query().unwrap_or_default();
        let asked = Asked { method: &parts.method, path, query, body: &body };
        let token = caller.token().map(str::to_owned);
        let is_stream = found.is_stream();
        let work = async |audit: Audit| {
            let response = guild_hall::asked_by(token, routes::answer(&self.hall, found, asked)).await;
            let answered = response.extensions().get::<Answered>();
            if let Some(about) = answered.and_then(|answered| answered.about.as_deref()) {
                audit.of(about);
            }
            let refused = answered.and_then(|answered| answered.refused);
            audit.end(failure(refused.unwrap_or(response.status())).as_ref());
            Ok(response)
        };
        let place = match is_stream {
            true => Some(self.events.place(caller.identity()).ok_or_else(|| events::no_place(&self.events))?),
            false => None,
        };
        let response = authorized.run(work).await?;
        if let Some(place) = place.filter(|_| routes::is_of_events(&response)) {
            return Ok(listened(response, caller.into_subscription(), place));
        }
        let (head, body) = response.into_parts();
        let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        Ok(Response::from_parts(head, Body::from(caller.awaits(whole)?)))
    }
}

/// What the audit log has of an answer that says why there is no other.
fn failure(status: StatusCode) -> Option<RpcError> {
    let code = if status.is_server_error() { code::INTERNAL_ERROR } else { code::INVALID_PARAMS };
    (!status.is_success()).then(|| RpcError::new(code, status.to_string()))
}

/// A stream of events that ends when its listener may not listen any more.
fn listened(response: Response, subscription: Subscription, place: Share) -> Response {
    response.map(|body| {
        Body::from_stream(body.into_data_stream().take_while(move |_| {
            // It is a listener's for as long as the stream lives.
            let _place = &place;
            ready(subscription.is_good())
        }))
    })
}
