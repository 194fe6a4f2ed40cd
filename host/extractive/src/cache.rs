//! Shares corpora between sessions on the same sources.
//!
//! A corpus is identified by a walk over the sources: the roots, and paths, sizes and times of all files. For the same
//! read roots one corpus is built at a time, and other sessions wait for it. A walk that is less than a second old
//! counts as current, so a thousand jobs that start together walk the files once.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use guild_confine::Bounds;
use guild_session::{
    files::{FileEntry, Files, Listing},
    meter::Ending,
};
use tokio::sync;
use tokio_util::sync::CancellationToken;

use crate::corpus::{Corpus, blocking};

/// How long a walk counts as current.
const FRESH: Duration = Duration::from_secs(1);
/// The most bytes of all cached corpora together. The corpus that was used last is kept in any case.
const MAX_BYTES: usize = 384 << 20;

/// A hash of a walk over the sources.
type Fingerprint = (u64, u64);

/// Corpora by their sources.
pub(crate) struct Cache {
    /// The bounds of reading one document.
    document: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last walk over read roots, by their names. The lock is held while the roots are walked and read.
    walks: BTreeMap<Vec<String>, Arc<sync::Mutex<Option<Walk>>>>,
    /// The most recently used is the last.
    ready: Vec<(Fingerprint, Arc<Corpus>)>,
}

struct Walk {
    files: Weak<dyn Files>,
    at: Instant,
    listing: Arc<Listing>,
}

impl Cache {
    pub(crate) fn new(document: Bounds) -> Self {
        Self { document, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The corpus of these sources as they are now. If a session is cancelled while it builds the corpus, the next session
    /// begins anew.
    pub(crate) async fn corpus(
        &self,
        files: &Arc<dyn Files>,
        cancel: &CancellationToken,
    ) -> Result<Arc<Corpus>, Ending> {
        cancel.run_until_cancelled(self.current(files, cancel)).await.unwrap_or(Err(Ending::Interrupted))
    }

    async fn current(&self, files: &Arc<dyn Files>, cancel: &CancellationToken) -> Result<Arc<Corpus>, Ending> {
        let walk = self.state().walk(files.roots());
        let mut walk = walk.lock().await;
        let is_current = |walk: &Walk| walk.at.elapsed() < FRESH && Weak::ptr_eq(&walk.files, &Arc::downgrade(files));
        let listing = match walk.as_ref().filter(|walk| is_current(walk)) {
            Some(walk) => walk.listing.clone(),
            None => {
                let (walker, cancelled) = (files.clone(), cancel.clone());
                let listing = blocking(move || walker.sources(&cancelled)).await?;
                let listing = Arc::new(listing.map_err(|error| Ending::Error(error.to_string()))?);
                *walk = Some(Walk { files: Arc::downgrade(files), at: Instant::now(), listing: listing.clone() });
                listing
            }
        };
        let key = fingerprint(&listing);
        if let Some(corpus) = self.state().ready(key) {
            return Ok(corpus);
        }
        let started = Instant::now();
        let corpus = Arc::new(Corpus::build(files, &listing, self.document).await?);
        tracing::info!(
            documents = corpus.documents.len(),
            bytes = corpus.size,
            ms = started.elapsed().as_millis() as u64,
            "indexed the sources"
        );
        self.state().keep(key, corpus.clone());
        Ok(corpus)
    }
}

impl State {
    fn walk(&mut self, roots: Vec<String>) -> Arc<sync::Mutex<Option<Walk>>> {
        if !self.walks.contains_key(&roots) {
            // Walks over other roots that no session is using go. The corpora stay.
            self.walks.retain(|_, walk| Arc::strong_count(walk) > 1);
        }
        self.walks.entry(roots).or_default().clone()
    }

    fn ready(&mut self, key: Fingerprint) -> Option<Arc<Corpus>> {
        let at = self.ready.iter().position(|(known, _)| *known == key)?;
        let found = self.ready.remove(at);
        let corpus = found.1.clone();
        self.ready.push(found);
        Some(corpus)
    }

    /// Caches a corpus, and drops the least recently used ones beyond the limit.
    fn keep(&mut self, key: Fingerprint, corpus: Arc<Corpus>) {
        self.ready.push((key, corpus));
        let size = |ready: &[(Fingerprint, Arc<Corpus>)]| ready.iter().map(|(_, corpus)| corpus.size).sum::<usize>();
        while self.ready.len() > 1 && size(&self.ready) > MAX_BYTES {
            self.ready.remove(0);
        }
    }
}

fn fingerprint(listing: &Listing) -> Fingerprint {
    let hashed = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &listing.roots).hash(&mut hasher);
        for FileEntry { path, size, modified } in &listing.files {
            (path, size, modified).hash(&mut hasher);
        }
        listing.unread.lines().for_each(|line| line.hash(&mut hasher));
        hasher.finish()
    };
    (hashed(0), hashed(1))
}
