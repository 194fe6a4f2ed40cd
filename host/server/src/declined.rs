//! Makes the responses to rejected requests: a JSON-RPC error at endpoints, `{"error": TEXT}` in the hall's API, a page
//! for browsers, text elsewhere.
//!
//! All have the same HTTP status. MCP clients can read the JSON-RPC error.

use axum::{
    body::Body,
    http::{
        HeaderMap, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
            RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};
use guild_auth::Refused;
use guild_contract::rpc::{RpcError, code};
use guild_roster::to_json;
use serde_json::json;

/// The error text when a handler panicked.
pub(crate) const HANDLER_FAILED: &str = "the host could not answer; its log has the reason";

/// The form of an answer that refuses a request.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// A text.
    Text,
    /// An error of JSON-RPC.
    Message,
    /// An error of the hall's API.
    Hall,
    /// A page.
    Page,
}

impl Shape {
    /// The kind of route in a word, for `/metrics`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "host",
            Self::Message => "mcp",
            Self::Hall => "hall",
            Self::Page => "page",
        }
    }

    /// The answer.
    pub(crate) fn decline(self, declined: Declined) -> Response {
        match self {
            Self::Text => declined.text(),
            Self::Message => declined.message(None),
            Self::Hall => declined.json(),
            Self::Page => declined.page(),
        }
    }
}

/// The reason that a request is rejected, as an HTTP status and an error.
pub(crate) struct Declined {
    status: StatusCode,
    error: RpcError,
    headers: HeaderMap,
}

impl Declined {
    /// A rejection with an error of its own.
    pub(crate) fn new(status: StatusCode, error: RpcError) -> Self {
        Self { status, error, headers: HeaderMap::new() }
    }

    /// A rejection of an invalid request.
    pub(crate) fn invalid(status: StatusCode, why: impl Into<String>) -> Self {
        Self::new(status, RpcError::new(code::INVALID_REQUEST, why))
    }

    /// Adds a header to the response.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The reason.
    pub(crate) fn why(&self) -> &str {
        &self.error.message
    }

    /// The response to a browser.
    pub(crate) fn page(self) -> Response {
        (self.headers, page_response(self.status, guild_page::refusal(None, &self.error.message))).into_response()
    }

    /// The response of routes without JSON-RPC.
    pub(crate) fn text(self) -> Response {
        (self.status, self.headers, format!("{}\n", self.error.message)).into_response()
    }

    /// The response in the hall's API.
    pub(crate) fn json(self) -> Response {
        (self.headers, json_response(self.status, json!({"error": self.error.message}).to_string())).into_response()
    }

    /// The response at an endpoint. `id` is the id of the request as it is written, if known.
    pub(crate) fn message(self, id: Option<&str>) -> Response {
        let (id, error) = (id.unwrap_or("null"), to_json(&self.error));
        let body = [b"{\"jsonrpc\":\"2.0\",\"id\":", id.as_bytes(), b",\"error\":", &error, b"}"].concat();
        (self.headers, json_response(self.status, body)).into_response()
    }
}

/// The headers of each page.
const PAGE_HEADERS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(guild_page::CONTENT_SECURITY_POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // With `no-referrer`, browsers send the forms of a page with `Origin: null`, which is refused.
    (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// A response with a page.
pub(crate) fn page_response(status: StatusCode, page: impl Into<Body>) -> Response {
    (status, PAGE_HEADERS, page.into()).into_response()
}

/// A response with a JSON text.
pub(crate) fn json_response(status: StatusCode, json: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], json.into()).into_response()
}

/// A failure that is not the caller's fault.
impl From<RpcError> for Declined {
    fn from(error: RpcError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

/// A refusal of the gate.
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
