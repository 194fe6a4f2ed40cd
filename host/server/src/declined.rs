//! What a request is answered with that is not carried out: at an endpoint an error of JSON-RPC, which clients of MCP can
//! read, of the hall's API an error as that has it, elsewhere a text. The HTTP status is the same.

use axum::{
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use guild_auth::Refused;
use guild_contract::rpc::{RpcError, code};
use guild_roster::to_json;
use serde_json::json;

/// The form of an answer that refuses a request.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// A text.
    Text,
    /// An error of JSON-RPC.
    Message,
    /// An error of the hall's API.
    Hall,
}

impl Shape {
    /// The answer.
    pub(crate) fn decline(self, declined: Declined) -> Response {
        match self {
            Self::Text => declined.text(),
            Self::Message => declined.message(None),
            Self::Hall => declined.json(),
        }
    }
}

/// Why a request is not carried out.
pub(crate) struct Declined {
    status: StatusCode,
    error: RpcError,
    headers: HeaderMap,
}

impl Declined {
    /// With an error of its own.
    pub(crate) fn new(status: StatusCode, error: RpcError) -> Self {
        Self { status, error, headers: HeaderMap::new() }
    }

    /// What was sent is no request that this host takes.
    pub(crate) fn invalid(status: StatusCode, why: impl Into<String>) -> Self {
        Self::new(status, RpcError::new(code::INVALID_REQUEST, why))
    }

    /// The same, with one more header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The answer where no JSON-RPC is spoken.
    pub(crate) fn text(self) -> Response {
        (self.status, self.headers, format!("{}\n", self.error.message)).into_response()
    }

    /// The answer of the hall's API.
    pub(crate) fn json(mut self) -> Response {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (self.status, self.headers, json!({"error": self.error.message}).to_string()).into_response()
    }

    /// The answer at an endpoint, to the request with the id that is written so; without one where it is not known.
    pub(crate) fn message(mut self, id: Option<&str>) -> Response {
        let (id, error) = (id.unwrap_or("null"), to_json(&self.error));
        let body = [b"{\"jsonrpc\":\"2.0\",\"id\":", id.as_bytes(), b",\"error\":", &error, b"}"].concat();
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (self.status, self.headers, body).into_response()
    }
}

/// What could not be done for no fault of the caller's.
impl From<RpcError> for Declined {
    fn from(error: RpcError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

/// What the gate refused.
impl From<Refused> for Declined {
    fn from(refused: Refused) -> Self {
        let (status, retry_after) = (refused.status(), refused.retry_after());
        let mut declined = Self::new(status, refused.into());
        if status == StatusCode::UNAUTHORIZED {
            declined = declined.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        match retry_after {
            Some(seconds) => declined.with(RETRY_AFTER, seconds),
            None => declined,
        }
    }
}
