//! CPU-bound work, off the threads of the async runtime.

use std::{num::NonZero, sync::Arc, thread::available_parallelism};

use guild_session::meter::Ending;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CpuError {
    /// The caller is gone.
    #[error("cancelled")]
    Cancelled,
    /// It could not be done; the text says why.
    #[error("{0}")]
    Failed(String),
}

impl From<CpuError> for Ending {
    fn from(error: CpuError) -> Self {
        match error {
            CpuError::Cancelled => Self::Interrupted,
            CpuError::Failed(text) => Self::Error(text),
        }
    }
}

/// Runs as many pieces of work at a time as there are cores. Each set of read roots has its own, so that work on one
/// never waits for work on another; the operating system divides the cores between them.
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
        let permit = cancel.run_until_cancelled(self.free.clone().acquire_owned()).await;
        permit.ok_or(CpuError::Cancelled)?.map_err(|error| CpuError::Failed(error.to_string()))
    }

    /// Runs CPU-bound work. Long work has to check `cancel` itself. The core counts as busy until the work has ended,
    /// even if its caller no longer waits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        cancel: &CancellationToken,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CpuError> {
        let permit = self.permit(cancel).await?;
        blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CpuError> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| CpuError::Failed(format!("reading the sources broke off: {error}")))
}
