//! Defines a request to a page: its caller, and the members at that moment.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
    response::Response,
};
use guild_auth::{Browser, Caller, LARGE, Refused};
use guild_contract::operation::Operation;
use guild_hall::meetings::Turn;
use guild_page::{Viewer, refusal};
use guild_roster::{host::Host, members::roster::Reading};
use serde_json::Value;

use crate::{
    declined::page_response,
    hall::NO_HALL,
    layers::Admitted,
    mcp::{self, Absent, Endpoint, Failure, Server, Unavailable},
    methods,
};

/// The reason that an operation has no answer, for a person.
pub(super) struct Why {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Why {
    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, text: text.into() }
    }
}

impl From<Failure> for Why {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rpc(error) => Self { status: StatusCode::BAD_REQUEST, text: error.message },
            Failure::Refused(refused) => refused.into(),
        }
    }
}

impl From<Refused> for Why {
    fn from(refused: Refused) -> Self {
        Self { status: refused.status(), text: refused.to_string() }
    }
}

fn internal<E>(_: E) -> Why {
    Why { status: StatusCode::INTERNAL_SERVER_ERROR, text: "the host could not answer".to_owned() }
}

/// The answer of a handler: a page, or the reason that there is none.
pub(super) type Answer = Result<Response, Why>;

/// A request to a page that needs a session.
#[derive(Clone)]
pub(super) struct PageRequest {
    pub(super) host: Arc<Host>,
    pub(super) reading: Arc<Reading>,
    pub(super) admitted: Admitted,
    pub(super) browser: Browser,
}

impl PageRequest {
    pub(super) fn caller(&self) -> &Caller {
        &self.admitted.caller
    }

    pub(super) fn viewer(&self) -> Viewer {
        Viewer { token: self.caller().token().map(str::to_owned), csrf: self.browser.csrf().to_owned() }
    }

    /// Answers with a page, whose memory counts among that of the caller's requests.
    pub(super) fn show(&self, page: String) -> Response {
        self.answer(
            self.caller().respond(page.into()).map(|page| page_response(StatusCode::OK, page)).map_err(Why::from),
        )
    }

    /// Answers with a page, or with the page that says why there is none.
    pub(super) fn answer(&self, answer: Answer) -> Response {
        answer.unwrap_or_else(|why| page_response(why.status, refusal(Some(&self.viewer()), &why.text)))
    }

    /// The server of the operations on the host itself, for a viewer whose token is for all members.
    pub(super) fn host_server(&self) -> Result<Server, Why> {
        self.caller().clone().require_all_members()?;
        Ok(Server::Host(self.host.clone()))
    }

    /// Whether the host belongs to a cluster.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.host.is_in_cluster()
    }

    /// The server of a member's operations.
    pub(super) fn server(&self, key: &str) -> Result<Server, Why> {
        if !self.caller().is_for(key) {
            return Err(Why {
                status: StatusCode::FORBIDDEN,
                text: format!("your token does not permit the member {key}"),
            });
        }
        self.at(&Endpoint::Member(key.to_owned()))
    }

    /// The server of the hall's operations, for a viewer whose token is for all members.
    pub(super) fn hall(&self) -> Result<Server, Why> {
        self.caller().clone().require_all_members()?;
        self.at(&Endpoint::Hall)
    }

    fn at(&self, endpoint: &Endpoint) -> Result<Server, Why> {
        Server::at(&self.host, &self.reading, endpoint).map_err(|absent| match absent {
            Absent::NotFound(why) => Why::not_found(why),
            Absent::Unavailable(Unavailable { reason, .. }) => {
                Why { status: StatusCode::SERVICE_UNAVAILABLE, text: reason.to_string() }
            }
        })
    }

    /// Calls an operation for the viewer.
    pub(super) async fn call<O: Operation>(&self, server: &Server, input: &O::Input) -> Result<O::Output, Why> {
        let params = serde_json::to_string(input).map_err(internal)?;
        // A form's files are held as a text once more until the operation has read them.
        if params.len() as u64 > LARGE {
            self.caller().reserve(params.len() as u64).await?;
        }
        let answer = methods::call(server, self.caller(), O::ROW.name, Some(&params)).await?;
        serde_json::from_slice(&answer).map_err(internal)
    }

    /// Calls an operation of the hall that answers with a meeting's turn. The turn goes on if it is dropped.
    pub(super) async fn turn<O: Operation>(&self, input: &O::Input) -> Result<Turn, Why> {
        let Server::Hall(hall) = self.hall()? else { return Err(Why::not_found(NO_HALL)) };
        let Value::Object(input) = serde_json::to_value(input).map_err(internal)? else { return Err(internal(())) };
        Ok(mcp::hall::turn(O::ROW.name, &hall, self.caller(), input).await?)
    }
}

impl FromRequestParts<Arc<Host>> for PageRequest {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, host: &Arc<Host>) -> Result<Self, StatusCode> {
        let (reading, admitted, browser) = (
            parts.extensions.get::<Arc<Reading>>().cloned(),
            parts.extensions.get::<Admitted>().cloned(),
            parts.extensions.get::<Browser>().cloned(),
        );
        match (reading, admitted, browser) {
            (Some(reading), Some(admitted), Some(browser)) => {
                Ok(Self { host: host.clone(), reading, admitted, browser })
            }
            _ => Err(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}
