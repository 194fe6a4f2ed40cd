//! Defines the errors of the job store.

use std::io;

use guild_contract::{JobId, rpc::RpcError};
use guild_session::tools::ToolError;

/// The error of an operation of the store. `Display` is the text for the wire, which never shows a path of the host.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No job of this member has that id, valid or not (REQ-WD-46).
    #[error("Unknown job ID: {0}")]
    Unknown(String),
    /// The job's state or the input does not allow the operation; the text tells why.
    #[error("{0}")]
    Refused(String),
    /// The operation exceeds a limit, which the text names.
    #[error("{0}")]
    OverLimit(String),
    /// The ledger of the member's jobs does not answer, or takes no more; the text says what to do.
    #[error("{0}")]
    Unavailable(String),
    /// The job is not this host's any more: see [`Refused::Lost`].
    #[error("{}", Refused::Lost)]
    Lost,
    /// The file system refused the operation.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action: `could not write meta.json`.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The reason that a ledger did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The job is not this host's any more: it has ended, is deleted, or another host holds it. Nothing is stored.
    #[error("the job has ended, or another host carries it out")]
    Lost,
    /// The ledger does not answer, or takes no more. The sentence says what to do.
    #[error("{0}")]
    Unavailable(String),
}

impl StoreError {
    /// Wraps an I/O error with what failed.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing.into(), source }
    }

    /// The error for callers who asked about the job `id`.
    pub(crate) fn of_ledger(id: &JobId) -> impl FnOnce(Refused) -> Self {
        move |refused| match refused {
            Refused::Lost => Self::Unknown(id.to_string()),
            Refused::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

impl From<Refused> for ToolError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Lost => Self::JobEnded,
            Refused::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unknown(_) => Self::NoJob,
            StoreError::Lost => Self::JobEnded,
            StoreError::Refused(text) => Self::InvalidInput(text),
            StoreError::OverLimit(text) => Self::OverLimit(text),
            StoreError::Unavailable(_) | StoreError::Io { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } => Self::internal(error.to_string()),
            StoreError::Unavailable(text) => Self::busy(text),
            refused => Self::invalid_params(refused.to_string()),
        }
    }
}
