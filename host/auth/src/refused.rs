//! Defines refusals of requests, as HTTP statuses and JSON-RPC errors.

use std::fmt;

use guild_contract::{
    MemberKey,
    rpc::{RpcError, code},
};
use http::{StatusCode, header::HeaderValue};

use crate::audit_log::Outcome;

/// Seconds until a retry after a lack of memory.
const AGAIN_SECONDS: u64 = 1;

/// The reason that a request, or one method of a batch, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token, or an invalid one. Unknown, expired and revoked tokens get the same response.
    Unauthorized,
    /// The host cannot read its tokens.
    Unreadable,
    /// The token does not permit this member.
    Member {
        /// The token's name.
        token: String,
        /// The member, if the name is a valid key.
        member: Option<MemberKey>,
    },
    /// The token permits only some members, and the operation concerns all of them.
    SomeMembers {
        /// The token's name.
        token: String,
    },
    /// The token does not permit this method.
    Method {
        /// The token's name.
        token: String,
        /// The method.
        method: String,
    },
    /// The token made too many requests.
    TooMany {
        /// The token's name.
        token: String,
        /// The limit's name.
        limit: &'static str,
        /// Seconds until a retry.
        seconds: u64,
    },
    /// The host's memory for requests is in use.
    NoMemory {
        /// The token's name, if there is one.
        token: Option<String>,
    },
}

impl Refused {
    /// The status of the HTTP response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Unreadable | Self::NoMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Member { .. } | Self::SomeMembers { .. } | Self::Method { .. } => StatusCode::FORBIDDEN,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The reason in a word, for `/metrics`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unauthorized => "no-token",
            Self::Unreadable => "tokens-unreadable",
            Self::Member { .. } => "member",
            Self::SomeMembers { .. } => "all-members",
            Self::Method { .. } => "method",
            Self::TooMany { limit, .. } => limit,
            Self::NoMemory { .. } => "requests_bytes",
        }
    }

    /// `Retry-After`, in seconds.
    pub fn retry_after(&self) -> Option<HeaderValue> {
        match self {
            Self::TooMany { seconds, .. } => Some((*seconds).into()),
            Self::NoMemory { .. } => Some(AGAIN_SECONDS.into()),
            _ => None,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Unauthorized => Outcome::Unauthorized,
            Self::Unreadable => Outcome::Failed,
            Self::Member { .. } | Self::SomeMembers { .. } | Self::Method { .. } => Outcome::Forbidden,
            Self::TooMany { .. } | Self::NoMemory { .. } => Outcome::Busy,
        }
    }

    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Unauthorized | Self::Unreadable => None,
            Self::Member { token, .. }
            | Self::SomeMembers { token }
            | Self::Method { token, .. }
            | Self::TooMany { token, .. } => Some(token),
            Self::NoMemory { token } => token.as_deref(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized => f.write_str("a valid token is needed: Authorization: Bearer TOKEN"),
            Self::Unreadable => f.write_str("the host cannot check tokens at the moment"),
            Self::Member { token, member: Some(member) } => {
                write!(f, "the token {token} is not for the member {member}")
            }
            Self::Member { token, member: None } => write!(f, "the token {token} is not for this member"),
            Self::SomeMembers { token } => write!(
                f,
                "the token {token} is for some members, and this needs a token for all of them; ask the operator for a \
                 token that was made without --members"
            ),
            Self::Method { token, method } => write!(f, "the token {token} is not for {method}"),
            Self::TooMany { token, limit, seconds } => {
                write!(f, "too many requests with the token {token} (limits.{limit}); try again in {seconds} s")
            }
            Self::NoMemory { .. } => write!(
                f,
                "the running requests of all callers or of this one have reached limits.requests_bytes; try again in \
                 {AGAIN_SECONDS} s"
            ),
        }
    }
}

/// The error of a single element of a batch.
impl From<Refused> for RpcError {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::TooMany { .. } | Refused::Unreadable | Refused::NoMemory { .. } => code::BUSY,
            _ => code::FORBIDDEN,
        };
        Self::new(code, refused.to_string())
    }
}
