//! Errors of calls to a host.

use std::time::Duration;

use reqwest::{StatusCode, Url};

/// An error of a call. Texts of the host are unchanged, and may have control characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not that of a host.
    #[error("{url:?} is not the address of a host: {reason}")]
    Address {
        /// The address.
        url: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The token may not be sent there, or is invalid.
    #[error("no token: {0}")]
    Token(String),
    /// The certificate authority is invalid.
    #[error("the certificate authority: {0}")]
    Authority(String),
    /// The connection failed.
    #[error("cannot connect to {url} ({reason})")]
    Unreachable {
        /// The endpoint.
        url: Url,
        /// Why the connection failed.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {} s", after.as_secs())]
    Timeout {
        /// The endpoint.
        url: Url,
        /// The timeout.
        after: Duration,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to {url} broke: {reason}")]
    Broken {
        /// The endpoint.
        url: Url,
        /// Why the connection broke.
        reason: String,
    },
    /// An HTTP error.
    #[error("{url} answered HTTP {status}{}", said(.text))]
    Http {
        /// The endpoint.
        url: Url,
        /// The status of the answer.
        status: StatusCode,
        /// The reason: the beginning of the body.
        text: String,
    },
    /// An answer that is not valid JSON-RPC, or not that of a host.
    #[error("{url} answered, but not as a host does: {reason}")]
    Protocol {
        /// The endpoint.
        url: Url,
        /// Why the answer is invalid.
        reason: String,
    },
    /// A JSON-RPC error of the host.
    #[error("{message}")]
    Refused {
        /// The code: see [`code`](guild_contract::rpc::code).
        code: i32,
        /// The host's message.
        message: String,
    },
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl Error {
    /// Whether the same call may succeed later: the host is busy, is being restarted, or was not reached.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Broken { .. } => true,
            Self::Http { status, .. } => {
                matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Refused { code, .. } => *code == guild_contract::rpc::code::BUSY,
            Self::Address { .. } | Self::Token(_) | Self::Authority(_) | Self::Protocol { .. } => false,
        }
    }
}
