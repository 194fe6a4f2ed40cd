//! Reads and indexes one document in a child process.
//!
//! A document can make its parser take time or memory in the square of its length, as an HTML tag with 100,000
//! attributes does. So a child process parses and indexes it, and is killed if the document exceeds the fixed limits
//! `document_seconds` or `document_memory_bytes`.

use std::time::Duration;

use guild_confine::{Bounds, Ended, Task, Worker};
use guild_session::{charset, document::Format};
use tokio::{task::spawn_blocking, time};

use crate::{
    extract::{self, Page},
    index::Index,
};

/// Once so many documents of the same sources exceeded their bounds, the others get a tenth of the time.
const MANY: usize = 8;

/// Reads and indexes one document. The request is its format and its path, as postcard has them, then its bytes; the
/// reply is its page and the index over it.
pub static DOCUMENT_TASK: Task = Task { name: "document", run };

/// Reads documents, one after another.
pub(crate) struct Reader {
    worker: Worker,
    bounds: Bounds,
}

impl Reader {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { worker: Worker::new(&DOCUMENT_TASK, bounds), bounds }
    }

    /// A document's page, and the index over it. `beyond` is how many other documents of the same sources exceeded their bounds.
    ///
    /// # Errors
    /// Why it is left out.
    pub(crate) async fn page(
        &mut self,
        format: Format,
        path: &str,
        bytes: Vec<u8>,
        beyond: usize,
    ) -> Result<(Page, Index), Ended> {
        let failed = |error: postcard::Error| Ended::Failed(error.to_string());
        let mut request = postcard::to_allocvec(&(format, path)).map_err(failed)?;
        request.extend_from_slice(&bytes);
        drop(bytes);
        let time = Duration::from_secs(self.bounds.seconds.into());
        let time = if beyond < MANY { time } else { time / 10 };
        let answer = time::timeout(time, self.worker.ask(request)).await.map_err(|_| Ended::TooLong)??;
        let decoded = spawn_blocking(move || postcard::from_bytes(&answer)).await;
        decoded.map_err(|error| Ended::Failed(error.to_string()))?.map_err(failed)
    }
}

fn run(request: &[u8]) -> Vec<u8> {
    // An invalid request gets an empty answer, which the host reports as a failure.
    let Ok(((format, path), bytes)) = postcard::take_from_bytes::<(Format, &str)>(request) else { return Vec::new() };
    let page = extract::page(format, path, &charset::decode(bytes, None));
    let index = Index::of(&page);
    postcard::to_allocvec(&(page, index)).unwrap_or_default()
}
