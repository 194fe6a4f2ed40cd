//! Work beside the async threads: on the file system, in the background, and within a time.

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guild_contract::OperationError;

/// How long a caller who has other projects to see to waits for one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does something that blocks on the file system.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(OperationError::Internal("the host is stopping".to_owned())))
}

/// Does something that goes on when nobody waits for it any more.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl Future<Output = Result<T, OperationError>> + Send + 'static,
) -> Result<T, OperationError> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        // The host ends, and the caller with it: nobody may take that for a failure.
        Err(e) if e.is_cancelled() => pending().await,
        Err(e) => Err(OperationError::Internal(e.to_string())),
    }
}

/// Does something in a project, and fails where that takes long.
pub(crate) async fn in_time<T>(
    project: &str,
    work: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| {
        Err(OperationError::Conflict(format!(
            "project {project:?} is busy, or its git hangs: it takes more than {} s, and goes on",
            PATIENCE.as_secs()
        )))
    })
}

/// Locks a mutex. What a thread that panicked left in it is taken as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
