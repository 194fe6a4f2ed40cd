//! How an operation on the job store fails.

use std::io;

use guild_contract::rpc::RpcError;
use guild_session::tools::ToolError;

/// Why the store did not do what it was asked. `Display` is the text for the wire; it never shows a host path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No job of this member has that id, whatever the id looks like (REQ-WD-46).
    #[error("Unknown job ID: {0}")]
    Unknown(String),
    /// The job's state, or what was given, does not allow it; the text says why.
    #[error("{0}")]
    Refused(String),
    /// A size or count limit; the text names it.
    #[error("{0}")]
    OverLimit(String),
    /// The file system would not have it.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done: `could not write meta.json`.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// Wraps an I/O error with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing.into(), source }
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unknown(_) => Self::NoJob,
            StoreError::Refused(text) => Self::InvalidInput(text),
            StoreError::OverLimit(text) => Self::OverLimit(text),
            StoreError::Io { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } => Self::internal(error.to_string()),
            refused => Self::invalid_params(refused.to_string()),
        }
    }
}
