//! Runs work outside of the async threads: file system calls, background tasks, and tasks with a time limit.

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guild_contract::OperationError;
use guild_session::task::TaskError;
use tokio::runtime::Handle;

/// The longest wait for one project of a caller that reads several projects.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs a closure that blocks on the file system.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(TaskError::from(e).into()))
}

/// Runs a task that continues when its caller stops waiting.
pub(crate) async fn in_background<T: Send + 'static, E: From<TaskError> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    on_runtime(&Handle::current(), work).await
}

/// Runs a task like [`in_background`] on the host's runtime, for a caller on the runtime of components.
pub(crate) async fn on_runtime<T: Send + 'static, E: From<TaskError> + Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    match runtime.spawn(work).await {
        Ok(done) => done,
        // The host is stopping, and the caller with it: this must not be taken for a failure.
        Err(e) if e.is_cancelled() => pending().await,
        Err(e) => Err(TaskError::from(e).into()),
    }
}

/// Runs a task in a project, and fails if it takes too long.
pub(crate) async fn in_time<T>(
    project: &str,
    work: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| {
        Err(OperationError::Conflict(format!(
            "project {project:?} is busy, or its git hangs: the operation takes more than {} s, and continues in the \
             background",
            PATIENCE.as_secs()
        )))
    })
}

/// Locks a mutex. The value that a panicked thread left is used as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
