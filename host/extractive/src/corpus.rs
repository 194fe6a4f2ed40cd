//! Builds the corpus: the passages of all sources, and the index over them.

use std::{
    num::NonZero,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

use futures::{StreamExt as _, stream};
use guild_confine::{Bounds, Ended};
use guild_session::{
    charset,
    document::{Format, MAX_DOCUMENT_BYTES, document_format},
    files::{Files, Listing, Reason, Unread},
    meter::Ending,
    tools::ToolError,
};

use crate::{
    extract::{Page, Passage},
    index::Index,
    reader::Reader,
};

/// Memory of the passages of a corpus and their index, in bytes. Further files are left out, and counted.
const MAX_BYTES: usize = 256 << 20;

/// The passages of all sources, ready to be searched.
#[derive(Default)]
pub(crate) struct Corpus {
    pub(crate) documents: Vec<Document>,
    pub(crate) index: Index,
    /// The number of files found, of any kind.
    pub(crate) seen: usize,
    /// The files that were not read, and why.
    pub(crate) unread: Unread,
    /// Its approximate size in memory, in bytes.
    pub(crate) size: usize,
    passages: u32,
}

/// A file that was read.
pub(crate) struct Document {
    /// As the read roots spell it.
    pub(crate) path: String,
    pub(crate) page: Page,
    /// The number of its first passage.
    first: u32,
}

impl Document {
    /// The page's title, and the heading that a passage stands under.
    pub(crate) fn heading(&self, passage: &Passage) -> String {
        let (title, heading) = (&self.page.title, self.page.heading_of(passage));
        if heading == title { title.clone() } else { format!("{title} › {heading}") }
    }
}

impl Corpus {
    /// A passage by its number, with its document.
    pub(crate) fn passage(&self, number: u32) -> Option<(&Document, &Passage)> {
        let at = self.documents.partition_point(|document| document.first <= number).checked_sub(1)?;
        let document = self.documents.get(at)?;
        Some((document, document.page.passages.get((number - document.first) as usize)?))
    }

    /// How many documents have one of these paths; all where there are no paths.
    pub(crate) fn named(&self, paths: &[String]) -> usize {
        self.documents.iter().filter(|document| paths.is_empty() || paths.contains(&document.path)).count()
    }

    /// Reads and indexes the files, as many at a time as there are cores, each in a child process.
    pub(crate) async fn build(files: &Arc<dyn Files>, listing: &Listing, bounds: Bounds) -> Result<Self, Ending> {
        let mut corpus = Self { unread: listing.unread.clone(), ..Self::default() };
        corpus.seen = listing.files.len() + corpus.unread.total();
        let mut sources = Vec::new();
        for entry in &listing.files {
            match document_format(entry) {
                Ok(format) => sources.push((entry.path.clone(), format)),
                Err(reason) => corpus.unread.add(reason, &entry.path),
            }
        }
        let readers = Readers { files: files.clone(), bounds, idle: Mutex::default(), costly: AtomicUsize::new(0) };
        let readers = Arc::new(readers);
        let cores = available_parallelism().map_or(1, NonZero::get);
        let pages = stream::iter(sources.clone()).map(move |(path, format)| readers.clone().page(path, format));
        let mut pages = pages.buffered(cores);
        for (path, _) in sources {
            if corpus.size + corpus.index.size() >= MAX_BYTES {
                corpus.unread.add(Reason::Beyond, &path);
                continue;
            }
            match pages.next().await.transpose()?.unwrap_or(Err(Reason::Failed)) {
                Ok((page, index)) => corpus.add(path, page, index),
                Err(reason) => corpus.unread.add(reason, &path),
            }
        }
        corpus.size += corpus.index.size();
        Ok(corpus)
    }

    fn add(&mut self, path: String, page: Page, index: Index) {
        if page.passages.is_empty() {
            return;
        }
        let first = self.passages;
        self.passages += page.passages.len() as u32;
        self.size += page.size() + path.len() + size_of::<Document>();
        self.index.append(index);
        self.documents.push(Document { path, page, first });
    }
}

/// The readers of one corpus.
struct Readers {
    files: Arc<dyn Files>,
    bounds: Bounds,
    /// The readers without a document.
    idle: Mutex<Vec<Reader>>,
    /// How many documents exceeded their bounds.
    costly: AtomicUsize,
}

impl Readers {
    /// The page of a file and the index over it, or why it is left out.
    async fn page(self: Arc<Self>, path: String, format: Format) -> Result<Result<(Page, Index), Reason>, Ending> {
        let (files, file) = (self.files.clone(), path.clone());
        let bytes = match blocking(move || bytes(&*files, &file)).await? {
            Ok(bytes) => bytes,
            Err(reason) => return Ok(Err(reason)),
        };
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reader = idle().pop().unwrap_or_else(|| Reader::new(self.bounds));
        let read = reader.page(format, &path, bytes, self.costly.load(Ordering::Relaxed)).await;
        idle().push(reader);
        match read {
            Ok(read) => Ok(Ok(read)),
            Err(why) => {
                tracing::warn!(path, %why, "a document is left out");
                let is_costly = matches!(why, Ended::TooLong | Ended::TooMuchMemory);
                self.costly.fetch_add(is_costly.into(), Ordering::Relaxed);
                Ok(Err(if is_costly { Reason::Costly } else { Reason::Failed }))
            }
        }
    }
}

/// A file's bytes, or why it is left out.
fn bytes(files: &dyn Files, path: &str) -> Result<Vec<u8>, Reason> {
    let bytes = files.listed_bytes(path, MAX_DOCUMENT_BYTES).map_err(|error| match error {
        ToolError::OverLimit(_) => Reason::Large,
        _ => Reason::Denied,
    })?;
    if charset::is_binary(&bytes) { Err(Reason::Binary) } else { Ok(bytes) }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Ending> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Ending::Error(format!("reading the sources broke off: {error}")))
}
