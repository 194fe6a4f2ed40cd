//! Corpora that are shared between sessions on the same sources.
//!
//! A corpus is identified by a walk over the sources: the roots, and paths, sizes and times of all files. Each is built once,
//! however many sessions ask at the same time. Its waiters share the build, which stops when the last of them is gone. Of the same read
//! roots one corpus is built at a time: a caller that finds an older build under way waits for it and walks again, so a file
//! that changes all the time causes one build after another, and not many at once. A walk that is less than a second old
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
    tools::ToolError,
};
use tokio::sync::{self, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    corpus::Corpus,
    cpu::{Cpu, CpuError},
};

/// How long a walk counts as current.
const FRESH: Duration = Duration::from_secs(1);
/// The most bytes of all cached corpora together. The one used last is kept in any case.
const MAX_BYTES: usize = 384 << 20;

/// A hash of a walk over the sources.
type Fingerprint = (u64, u64);

/// What a build has sent so far.
type Built = Option<Result<Arc<Corpus>, CpuError>>;

/// Corpora by their sources.
pub(crate) struct Cache {
    /// The bounds of reading one document.
    document: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the names of the read roots.
    sources: BTreeMap<Vec<String>, Arc<Sources>>,
    /// The most recently used is the last.
    ready: Vec<(Fingerprint, Arc<Corpus>)>,
    /// By the names of the read roots.
    building: BTreeMap<Vec<String>, (Fingerprint, Weak<Build>)>,
}

/// A set of read roots. Readers of other roots never wait for it.
struct Sources {
    cpu: Arc<Cpu>,
    /// Held while the files are walked: a second caller would walk the same files.
    walks: sync::Mutex<Vec<Walked>>,
}

struct Walked {
    files: Weak<dyn Files>,
    at: Instant,
    listing: Arc<Listing>,
    fingerprint: Fingerprint,
}

/// A corpus that is being built. Its waiters hold it; the build stops when the last one drops it.
struct Build {
    done: watch::Receiver<Built>,
    _stop: DropGuard,
}

impl Cache {
    pub(crate) fn new(document: Bounds) -> Self {
        Self { document, state: Mutex::default() }
    }

    /// The bounds of reading one document.
    pub(crate) fn document(&self) -> Bounds {
        self.document
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self, files: &Arc<dyn Files>) -> Arc<Sources> {
        let new = || Arc::new(Sources { cpu: Arc::new(Cpu::new()), walks: sync::Mutex::default() });
        let (mut state, roots) = (self.state(), files.roots());
        if !state.sources.contains_key(&roots) {
            // Others that nobody works on go, with their listings. The corpora stay.
            state.sources.retain(|_, sources| Arc::strong_count(sources) + Arc::strong_count(&sources.cpu) > 2);
            state.building.retain(|_, (_, build)| build.strong_count() > 0);
        }
        state.sources.entry(roots).or_insert_with(new).clone()
    }

    /// The cores for work on these sources.
    pub(crate) fn cpu(&self, files: &Arc<dyn Files>) -> Arc<Cpu> {
        self.sources(files).cpu.clone()
    }

    /// The corpus of these sources as they are now.
    pub(crate) async fn corpus(
        &self,
        files: &Arc<dyn Files>,
        cancel: &CancellationToken,
    ) -> Result<Arc<Corpus>, CpuError> {
        let sources = self.sources(files);
        let (build, key) = loop {
            let (listing, key) = sources.walk(files, cancel).await?;
            let mut older = {
                let mut state = self.state();
                if let Some(at) = state.ready.iter().position(|(known, _)| *known == key) {
                    let found = state.ready.remove(at);
                    let corpus = found.1.clone();
                    state.ready.push(found);
                    return Ok(corpus);
                }
                let building = state.building.get(&files.roots());
                match building.and_then(|(known, build)| Some((*known, build.upgrade()?))) {
                    Some((known, build)) if known == key => break (build, key),
                    // Waits without holding the build, so that only its own waiters keep it alive.
                    Some((_, build)) if build.done.borrow().is_none() => build.done.clone(),
                    _ => {
                        let build = self.start(files.clone(), listing, sources.cpu.clone());
                        state.building.insert(files.roots(), (key, Arc::downgrade(&build)));
                        break (build, key);
                    }
                }
            };
            // Whether it was built or broke off makes no difference.
            let _ = built(&mut older, cancel).await?;
        };
        let result = built(&mut build.done.clone(), cancel).await?;
        let corpus = result.unwrap_or_else(|| Err(CpuError::Failed("indexing the sources broke off".to_owned())))?;
        self.state().keep(key, corpus.clone());
        Ok(corpus)
    }

    fn start(&self, files: Arc<dyn Files>, listing: Arc<Listing>, cpu: Arc<Cpu>) -> Arc<Build> {
        let stop = CancellationToken::new();
        let (sender, done) = watch::channel(None);
        let build = Corpus::build(files, listing, cpu, self.document, stop.clone());
        let cancel = stop.clone();
        tokio::spawn(async move {
            let started = Instant::now();
            // Dropping it ends the children that read documents.
            let built = cancel.run_until_cancelled(build).await.unwrap_or(Err(CpuError::Cancelled)).map(Arc::new);
            if let Ok(corpus) = &built {
                tracing::info!(
                    documents = corpus.documents.len(),
                    passages = corpus.passages.len(),
                    bytes = corpus.size,
                    ms = started.elapsed().as_millis() as u64,
                    "indexed the sources"
                );
            }
            // All waiters may be gone.
            let _ = sender.send(Some(built));
        });
        Arc::new(Build { done, _stop: stop.drop_guard() })
    }
}

/// Waits for the result of a build: `None`, if the build broke off without one.
async fn built(done: &mut watch::Receiver<Built>, cancel: &CancellationToken) -> Result<Built, CpuError> {
    let built = cancel.run_until_cancelled(done.wait_for(Option::is_some)).await.ok_or(CpuError::Cancelled)?;
    Ok(built.ok().and_then(|built| built.clone()))
}

impl Sources {
    /// The files as they are now, and their fingerprint.
    async fn walk(
        &self,
        files: &Arc<dyn Files>,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Listing>, Fingerprint), CpuError> {
        let mut walks = cancel.run_until_cancelled(self.walks.lock()).await.ok_or(CpuError::Cancelled)?;
        walks.retain(|walk| walk.at.elapsed() < FRESH);
        let same = |walk: &&Walked| walk.files.upgrade().is_some_and(|known| Arc::ptr_eq(&known, files));
        if let Some(walk) = walks.iter().find(same) {
            return Ok((walk.listing.clone(), walk.fingerprint));
        }
        let (walker, cancelled) = (files.clone(), cancel.clone());
        let walked = self.cpu.run(cancel, move || {
            let listing = walker.sources(&cancelled)?;
            let fingerprint = fingerprint(&listing);
            Ok::<_, ToolError>((Arc::new(listing), fingerprint))
        });
        let walked = walked.await?;
        if cancel.is_cancelled() {
            return Err(CpuError::Cancelled);
        }
        let (listing, fingerprint) = walked.map_err(|error| CpuError::Failed(error.to_string()))?;
        let at = Instant::now();
        walks.push(Walked { files: Arc::downgrade(files), at, listing: listing.clone(), fingerprint });
        Ok((listing, fingerprint))
    }
}

impl State {
    /// Caches a corpus, and drops the least recently used ones beyond the limit.
    fn keep(&mut self, key: Fingerprint, corpus: Arc<Corpus>) {
        if !self.ready.iter().any(|(known, _)| *known == key) {
            self.ready.push((key, corpus));
        }
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
