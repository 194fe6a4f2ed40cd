//! Corpora that are shared between sessions on the same sources.
//!
//! A corpus is known by what a walk over the sources says: paths, sizes and times of all files. Each is built once,
//! however many sessions ask at the same time; the build belongs to all who wait for it, and stops when the last of
//! them is gone. A walk that is less than a second old is taken for the sources as they are now, so that a
//! thousand jobs that start together look at the files once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use guild_jobs::files::{FileEntry, Files};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    corpus::Corpus,
    cpu::{Cpu, Stop},
};

/// How long a walk is taken for the present state.
const FRESH: Duration = Duration::from_secs(1);
/// What the corpora that are kept take at most, in bytes; the one that was used last is kept in any case.
const MAX_BYTES: usize = 384 << 20;

/// What a walk over the sources says, as one number.
type Fingerprint = (u64, u64);

/// Corpora by their sources.
pub(crate) struct Cache {
    cpu: Arc<Cpu>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    walks: Vec<Walked>,
    /// The one that was used last is the last.
    ready: Vec<(Fingerprint, Arc<Corpus>)>,
    building: HashMap<Fingerprint, Weak<Build>>,
}

struct Walked {
    files: Weak<dyn Files>,
    at: Instant,
    entries: Arc<[FileEntry]>,
}

/// A corpus that is being built. Those who wait for it hold it; when the last lets go, it stops.
struct Build {
    done: watch::Receiver<Option<Result<Arc<Corpus>, Stop>>>,
    _stop: DropGuard,
}

impl Cache {
    pub(crate) fn new(cpu: Arc<Cpu>) -> Self {
        Self { cpu, state: Mutex::default() }
    }

    /// The corpus of these sources as they are now.
    pub(crate) async fn corpus(&self, files: &Arc<dyn Files>, cancel: &CancellationToken) -> Result<Arc<Corpus>, Stop> {
        // Held while the files are walked: whoever asks meanwhile would walk the same files.
        let mut state = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Stop::Cancelled),
            state = self.state.lock() => state,
        };
        let entries = self.walk(&mut state, files, cancel).await?;
        let key = fingerprint(&entries);
        if let Some(at) = state.ready.iter().position(|(known, _)| *known == key) {
            let found = state.ready.remove(at);
            let corpus = found.1.clone();
            state.ready.push(found);
            return Ok(corpus);
        }
        let build = match state.building.get(&key).and_then(Weak::upgrade) {
            Some(build) => build,
            None => {
                let build = self.start(files.clone(), entries);
                state.building.retain(|_, build| build.strong_count() > 0);
                state.building.insert(key, Arc::downgrade(&build));
                build
            }
        };
        drop(state);
        let mut done = build.done.clone();
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Stop::Cancelled),
            result = done.wait_for(Option::is_some) => result.ok().and_then(|result| result.clone()),
        };
        let corpus = result.unwrap_or_else(|| Err(Stop::Failed("indexing the sources broke off".to_owned())))?;
        self.state.lock().await.keep(key, corpus.clone());
        Ok(corpus)
    }

    async fn walk(
        &self,
        state: &mut State,
        files: &Arc<dyn Files>,
        cancel: &CancellationToken,
    ) -> Result<Arc<[FileEntry]>, Stop> {
        state.walks.retain(|walk| walk.at.elapsed() < FRESH);
        let same = |walk: &&Walked| walk.files.upgrade().is_some_and(|known| Arc::ptr_eq(&known, files));
        if let Some(walk) = state.walks.iter().find(same) {
            return Ok(walk.entries.clone());
        }
        let (walker, cancelled) = (files.clone(), cancel.clone());
        let entries = self.cpu.run(cancel, move || walker.walk(&cancelled)).await?;
        if cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let entries: Arc<[FileEntry]> = entries.map_err(|error| Stop::Failed(error.to_string()))?.into();
        state.walks.push(Walked { files: Arc::downgrade(files), at: Instant::now(), entries: entries.clone() });
        Ok(entries)
    }

    fn start(&self, files: Arc<dyn Files>, entries: Arc<[FileEntry]>) -> Arc<Build> {
        let stop = CancellationToken::new();
        let (sender, done) = watch::channel(None);
        let build = Corpus::build(files, entries, self.cpu.clone(), stop.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            let built = build.await.map(Arc::new);
            if let Ok(corpus) = &built {
                tracing::info!(
                    documents = corpus.documents.len(),
                    passages = corpus.passages.len(),
                    bytes = corpus.size,
                    ms = started.elapsed().as_millis() as u64,
                    "indexed the sources"
                );
            }
            // Nobody may be left to hear it.
            let _ = sender.send(Some(built));
        });
        Arc::new(Build { done, _stop: stop.drop_guard() })
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

fn fingerprint(entries: &[FileEntry]) -> Fingerprint {
    let hashed = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        for entry in entries {
            (&entry.path, entry.size, entry.modified).hash(&mut hasher);
        }
        hasher.finish()
    };
    (hashed(0), hashed(1))
}
