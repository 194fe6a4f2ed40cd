//! Why a call has no result.

use std::time::Duration;

use reqwest::{StatusCode, Url};

/// Why a call has no result. What the host says is shown as it came: it may have characters that steer a terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be a host's.
    #[error("{url:?} is not the address of a host: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The token may not be sent there, or is none.
    #[error("no token: {0}")]
    Token(String),
    /// The certificate authority is none.
    #[error("the certificate authority: {0}")]
    Authority(String),
    /// Nobody listens.
    #[error("cannot connect to {url} ({reason})")]
    Unreachable {
        /// Where.
        url: Url,
        /// What the connection failed with.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {} s", after.as_secs())]
    Timeout {
        /// Where.
        url: Url,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to {url} broke: {reason}")]
    Broken {
        /// Where.
        url: Url,
        /// With what.
        reason: String,
    },
    /// An HTTP error.
    #[error("{url} answered HTTP {status}{}", said(.text))]
    Http {
        /// Where.
        url: Url,
        /// The answer.
        status: StatusCode,
        /// What the host says about it: the beginning of the body.
        text: String,
    },
    /// Something that JSON-RPC does not know.
    #[error("{url} answered, but not as a host does: {reason}")]
    Protocol {
        /// Where.
        url: Url,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The host's own refusal.
    #[error("{message}")]
    Refused {
        /// The code: see [`code`](guild_contract::rpc::code).
        code: i32,
        /// What the host says.
        message: String,
    },
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl Error {
    /// Whether the same call may succeed a little later: the host is busy, is being restarted, or was not reached.
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
