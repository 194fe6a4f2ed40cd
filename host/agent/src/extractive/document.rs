//! Reading one document in a child process.
//!
//! How long a document takes to read, and how much memory, is for whoever wrote it to say: `![` again and again takes a
//! Markdown parser the square of its length, and a tag with 100,000 attributes an HTML parser. So a child does it, and is
//! ended where a document goes beyond `limits.document_seconds` or `limits.document_memory_bytes`.

use std::time::Duration;

use guild_confine::{Bounds, Ended, Task, Worker};
use serde::{Deserialize, Serialize};
use tokio::time;

use crate::format::Format;

use super::extract::{self, Page};

/// Where so many documents of the same sources went beyond their bounds, the others have a tenth of the time.
const MANY: usize = 8;

/// Reading one document: its text and its page, as postcard has them.
pub static DOCUMENT_TASK: Task = Task { name: "document", run };

#[derive(Serialize, Deserialize)]
struct Request<'a> {
    format: Format,
    path: &'a str,
    text: &'a str,
}

/// Reads documents, one after another.
pub(crate) struct Reader {
    worker: Worker,
    bounds: Bounds,
}

impl Reader {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { worker: Worker::new(&DOCUMENT_TASK, bounds), bounds }
    }

    /// A document's page. So many others of the same sources went beyond their bounds.
    ///
    /// # Errors
    /// Why it is left out.
    pub(crate) async fn page(
        &mut self,
        format: Format,
        path: &str,
        text: String,
        beyond: usize,
    ) -> Result<Page, Ended> {
        let failed = |error: postcard::Error| Ended::Failed(error.to_string());
        let request = postcard::to_allocvec(&Request { format, path, text: &text }).map_err(failed)?;
        drop(text);
        let time = Duration::from_secs(self.bounds.seconds.into());
        let time = if beyond < MANY { time } else { time / 10 };
        let answer = time::timeout(time, self.worker.ask(request)).await.map_err(|_| Ended::TooLong)??;
        postcard::from_bytes(&answer).map_err(failed)
    }
}

fn run(request: &[u8]) -> Vec<u8> {
    // What is no request has no answer, and the host calls that a failure.
    let Ok(Request { format, path, text }) = postcard::from_bytes(request) else { return Vec::new() };
    postcard::to_allocvec(&extract::page(format, path, text.to_owned())).unwrap_or_default()
}
