//! Work that keeps a core busy, off the threads that answer.

use std::{num::NonZero, sync::Arc, thread::available_parallelism};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuError {
    /// The caller is gone.
    Cancelled,
    /// It could not be done; the text says why.
    Failed(String),
}

/// As many pieces of work at a time as there are cores. Each set of read roots has its own: documents of the one never
/// keep those who read the other waiting for a turn, and the system divides the cores between them.
pub(crate) struct Cpu {
    free: Arc<Semaphore>,
    cores: usize,
}

impl Cpu {
    pub(crate) fn new() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self { free: Arc::new(Semaphore::new(cores)), cores }
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Waits for a core.
    pub(crate) async fn permit(&self, cancel: &CancellationToken) -> Result<OwnedSemaphorePermit, CpuError> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(CpuError::Cancelled),
            permit = self.free.clone().acquire_owned() => permit.map_err(|error| CpuError::Failed(error.to_string())),
        }
    }

    /// Does work that takes a while; work that is long looks at `cancel` itself. The core counts as busy until the
    /// work has really ended, even where nobody waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        cancel: &CancellationToken,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CpuError> {
        let permit = self.permit(cancel).await?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| CpuError::Failed(format!("reading the sources broke off: {error}")))
    }
}
