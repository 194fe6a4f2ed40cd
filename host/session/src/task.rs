//! Runs work in a separate task, and defines the error of a task that ended without a result.

use guild_contract::{OperationError, rpc::RpcError};
use tokio::task::{JoinError, spawn_blocking};

use crate::tools::ToolError;

/// The reason that work in a separate task has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The host is stopping, and its tasks end with it. Nothing is known of the work itself.
    #[error("the host is stopping")]
    Stopping,
    /// The work panicked. The log has the message of the panic.
    #[error("the host failed: a task of it panicked, and its log says how")]
    Panicked,
}

impl From<JoinError> for TaskError {
    fn from(error: JoinError) -> Self {
        if error.is_panic() { Self::Panicked } else { Self::Stopping }
    }
}

impl From<TaskError> for OperationError {
    fn from(error: TaskError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<TaskError> for RpcError {
    fn from(error: TaskError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<TaskError> for ToolError {
    fn from(error: TaskError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Runs work of a tool that blocks on storage, on a thread that may block.
///
/// # Errors
///
/// Returns the error of the work, and `Unavailable` when the work panicked or the host is stopping.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    spawn_blocking(work).await.unwrap_or_else(|e| Err(TaskError::from(e).into()))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::JoinHandle;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_not_called_the_end_of_the_host() {
        let panicking: JoinHandle<()> = tokio::spawn(async { panic!("a mistake") });
        assert_eq!(panicking.await.map_err(TaskError::from), Err(TaskError::Panicked));
        let aborted = tokio::spawn(pending::<()>());
        aborted.abort();
        assert_eq!(aborted.await.map_err(TaskError::from), Err(TaskError::Stopping));
    }
}
