//! Corpora that are shared between sessions on the same sources.
//!
//! A corpus is identified by a walk over the sources: paths, sizes and times of all files. Each is built once, however many
//! sessions ask at the same time. Its waiters share the build, which stops when the last of them is gone. Of the same read
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

/// How long a walk is taken for the present state.
const FRESH: Duration = Duration::from_secs(1);
/// What the corpora that are kept take at most, in bytes; the one that was used last is kept in any case.
const MAX_BYTES: usize = 384 << 20;

/// What a walk over the sources says, as one number.
type Fingerprint = (u64, u64);

/// Corpora by their sources.
pub(crate) struct Cache {
    /// What reading one document may take.
    document: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the names of the read roots.
    sources: BTreeMap<Vec<String>, Arc<Sources>>,
    /// The one that was used last is the last.
    ready: Vec<(Fingerprint, Arc<Corpus>)>,
    /// By the names of the read roots.
    building: BTreeMap<Vec<String>, (Fingerprint, Weak<Build>)>,
}

/// A set of read roots. Those who read others wait for nothing of it.
struct Sources {
    cpu: Arc<Cpu>,
    /// Held while the files are walked: whoever asks meanwhile would walk the same files.
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
    done: watch::Receiver<Option<Result<Arc<Corpus>, CpuError>>>,
    _stop: DropGuard,
}

impl Cache {
    pub(crate) fn new(document: Bounds) -> Self {
        Self { document, state: Mutex::default() }
    }

    /// What reading one document may take.
    pub(crate) fn document(&self) -> Bounds {
        self.document
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self, files: &Arc<dyn Files>) -> Arc<Sources> {
        let new = || Arc::new(Sources { cpu: Arc::new(Cpu::new()), walks: sync::Mutex::default() });
        self.state().sources.entry(files.roots()).or_insert_with(new).clone()
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
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(CpuError::Cancelled),
                _ = older.wait_for(Option::is_some) => {}
            }
        };
        let mut done = build.done.clone();
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CpuError::Cancelled),
            result = done.wait_for(Option::is_some) => result.ok().and_then(|result| result.clone()),
        };
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
            let built = tokio::select! {
                biased;
                () = cancel.cancelled() => Err(CpuError::Cancelled),
                built = build => built.map(Arc::new),
            };
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

impl Sources {
    /// The files as they are now, and what they say as one number.
    async fn walk(
        &self,
        files: &Arc<dyn Files>,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Listing>, Fingerprint), CpuError> {
        let mut walks = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CpuError::Cancelled),
            walks = self.walks.lock() => walks,
        };
        walks.retain(|walk| walk.at.elapsed() < FRESH);
        let same = |walk: &&Walked| walk.files.upgrade().is_some_and(|known| Arc::ptr_eq(&known, files));
        if let Some(walk) = walks.iter().find(same) {
            return Ok((walk.listing.clone(), walk.fingerprint));
        }
        let (walker, cancelled) = (files.clone(), cancel.clone());
        let walked = self.cpu.run(cancel, move || {
            let listing = walker.walk(&cancelled)?;
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
    /// Keeps a corpus, and lets those go that were not used for longest and no longer fit.
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
        salt.hash(&mut hasher);
        for FileEntry { path, size, modified } in &listing.files {
            (path, size, modified).hash(&mut hasher);
        }
        listing.unread.lines().for_each(|line| line.hash(&mut hasher));
        hasher.finish()
    };
    (hashed(0), hashed(1))
}
