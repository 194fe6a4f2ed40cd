//! Defines the errors of operations.

use thiserror::Error;

use crate::rpc::{RpcError, code};

/// The error of an operation: a sentence for the caller, without paths of the host other than the caller's own.
///
/// A variant is a kind of error, with one code of JSON-RPC and one HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OperationError {
    /// The parameters are not acceptable.
    #[error("{0}")]
    Invalid(String),
    /// The file is not of the requested kind.
    #[error("{0}")]
    Unsupported(String),
    /// The object does not exist. The original's clients look for the words "not found".
    #[error("{0}")]
    NotFound(String),
    /// The operation is not possible in this state.
    #[error("{0}")]
    Conflict(String),
    /// A cap on spending is reached. The sentence names the time until which the cap holds.
    #[error("{0}")]
    Spent(String),
    /// The host failed.
    #[error("{0}")]
    Internal(String),
}

impl OperationError {
    /// The code of JSON-RPC.
    pub fn code(&self) -> i32 {
        match self {
            Self::Invalid(_) | Self::Unsupported(_) | Self::NotFound(_) | Self::Conflict(_) => code::INVALID_PARAMS,
            Self::Spent(_) => code::BUSY,
            Self::Internal(_) => code::INTERNAL_ERROR,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::NotFound(_) => 404,
            Self::Conflict(_) => 409,
            Self::Unsupported(_) => 415,
            Self::Spent(_) => 429,
            Self::Internal(_) => 500,
        }
    }

    /// An error of the file system; `doing` describes the failed action.
    pub fn io(doing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |e| Self::Internal(format!("{doing}: {e}"))
    }
}

/// The reason that no money may be spent now, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpendError {
    /// A cap on today's spending is reached. The sentence names the cap, and the time until which it holds.
    #[error("{0}")]
    Cap(String),
    /// The ledger cannot be read, so today's spending is not known. The sentence names the ledger.
    #[error("{0}")]
    Unreadable(String),
}

impl From<SpendError> for OperationError {
    fn from(error: SpendError) -> Self {
        match error {
            SpendError::Cap(why) => Self::Spent(why),
            SpendError::Unreadable(why) => Self::Internal(why),
        }
    }
}

impl From<SpendError> for RpcError {
    fn from(error: SpendError) -> Self {
        OperationError::from(error).into()
    }
}

impl From<OperationError> for RpcError {
    fn from(error: OperationError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
