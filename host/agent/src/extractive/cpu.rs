//! Work that keeps a core busy, off the threads that answer.

use std::{num::NonZero, sync::Arc, thread::available_parallelism};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nobody waits for it any more.
    Cancelled,
    /// It could not be done; the text says why.
    Failed(String),
}

/// As many pieces of work at a time as there are cores.
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

    /// Does work that takes a while; work that is long looks at `cancel` itself. The core counts as busy until the
    /// work has really ended, even where nobody waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        cancel: &CancellationToken,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stop> {
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Stop::Cancelled),
            permit = self.free.clone().acquire_owned() => permit,
        };
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| Stop::Failed(format!("reading the sources broke off: {error}")))
    }
}
