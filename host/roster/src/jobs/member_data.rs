//! Holds the state of a member that outlives changes of its manifest: its jobs, its memory, running work, and its owner
//! lock.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_contract::{JobId, MemberKey, manifest::Scope};
use guild_fs::{clock::SystemClock, tree};
use guild_jobs::{JobStore, MemoryStore, OwnerLock, StoreOptions};
use guild_trust::directory_path;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{host_context::HostContext, interrupted::InterruptedJobs, memory_budget::MemberBudget};
use crate::resources::serving_options::Serving;

/// A member's directory, and the host's open files in it. It is dropped with its last reference, so a removed member is
/// owned until its last job has ended.
pub(crate) struct MemberData {
    pub(crate) key: MemberKey,
    pub(crate) dir: Dir,
    pub(crate) store: Arc<JobStore>,
    pub(crate) memory: Arc<MemoryStore>,
    /// Resumes jobs that were interrupted by the end of a host.
    pub(crate) interrupted: Arc<InterruptedJobs>,
    /// The part of the host's memory for running jobs that the member may use.
    pub(crate) budget: MemberBudget,
    under_way: Mutex<HashMap<String, CancellationToken>>,
    /// The size of its files when they were last measured; 0 before.
    disk_bytes: AtomicU64,
    /// The jobs of meetings whose workers can answer.
    conversing: watch::Sender<HashSet<String>>,
    owner: OwnerLock,
    /// Cancels when the owner's lock is free again: fields are dropped in their order.
    gone: DropGuard,
}

impl MemberData {
    /// The directory with the files that came with a job's dispatch; none if there are none. It blocks.
    pub(crate) fn attachments(&self, job: &JobId) -> Option<PathBuf> {
        self.absolute(&self.store.attachments(job)?)
    }

    /// Measures its files. It blocks.
    pub(crate) fn measure(&self) {
        self.disk_bytes.store(tree::bytes(&self.dir, "."), Ordering::Relaxed);
    }

    /// The bytes of its files when they were last measured.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        Some(self.disk_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// The absolute path of a file of the member's directory. It blocks.
    pub(crate) fn absolute(&self, path: &Path) -> Option<PathBuf> {
        Some(Path::new(&directory_path(&self.dir).ok()?).join(path))
    }
}

/// A job whose work is under way.
struct UnderWay {
    data: Arc<MemberData>,
    id: JobId,
    ended: CancellationToken,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.data.all_under_way();
        self.ended.cancel();
        // A host of a cluster may have taken the job again, and begun its work anew.
        if all.get(self.id.as_str()).is_some_and(CancellationToken::is_cancelled) {
            all.remove(self.id.as_str());
        }
    }
}

/// A job of a meeting whose worker can answer.
struct Conversing {
    data: Arc<MemberData>,
    id: JobId,
}

impl Drop for Conversing {
    fn drop(&mut self) {
        self.data.conversing.send_modify(|all| {
            all.remove(self.id.as_str());
        });
    }
}

impl MemberData {
    /// Opens a member's jobs and memory, with its limits. The caller holds its owner lock.
    ///
    /// # Errors
    ///
    /// Returns an error when the directories cannot be opened.
    pub(crate) async fn open(
        key: MemberKey,
        dir: Dir,
        context: &HostContext,
        owner: OwnerLock,
    ) -> Result<Arc<Self>, String> {
        let clock = Arc::new(SystemClock);
        let (limits, directory) = (context.limits.clone(), |name| move |e: io::Error| format!("{name}/: {e}"));
        let options = StoreOptions { limits: limits.clone(), clock: clock.clone() };
        let store = match &context.cluster {
            None => JobStore::open(&dir, options),
            Some(cluster) => JobStore::open_shared(&dir, options, cluster.ledger(&key)),
        };
        let store = store.map_err(directory("jobs"))?;
        let memory = match &context.cluster {
            None => MemoryStore::open(&dir, limits, clock).map_err(directory("memory"))?,
            Some(cluster) => MemoryStore::open_on(cluster.notes(&key, &dir).await?, Scope::Worker, limits, clock),
        };
        let interrupted = Arc::new(InterruptedJobs::new(&store, context.cluster.is_some()));
        store.set_resume(interrupted.clone());
        store.set_subscriber(context.events.of_member(&key));
        if let Some(cluster) = &context.cluster {
            cluster.add(&key, &store).await;
        }
        let (under_way, conversing) = (Mutex::default(), watch::Sender::default());
        let gone = CancellationToken::new().drop_guard();
        let budget = context.budget.of_member();
        let disk_bytes = AtomicU64::new(0);
        Ok(Arc::new(Self {
            key,
            dir,
            store,
            memory,
            interrupted,
            budget,
            under_way,
            disk_bytes,
            conversing,
            owner,
            gone,
        }))
    }

    /// The device and inode of the directory.
    pub(crate) fn directory(&self) -> Option<(u64, u64)> {
        self.dir.dir_metadata().ok().map(|own| (own.dev(), own.ino()))
    }

    /// Cancelled when this is dropped, and another process can own the directory.
    pub(crate) fn gone(&self) -> CancellationToken {
        self.gone.token().clone()
    }

    /// Records for other processes the way in which the member is served.
    pub(crate) fn note_serving(&self, serving: Result<Serving, String>) {
        let noted = serving.and_then(|serving| self.owner.set_note(&serving).map_err(|e| e.to_string()));
        if let Err(why) = noted {
            tracing::warn!(member = %self.key, "commands cannot see how the member is served: {why}");
        }
    }

    /// The work of a running job, if it is under way here: the token is cancelled when it has ended.
    pub(crate) fn under_way(&self, id: &str) -> Option<CancellationToken> {
        self.all_under_way().get(id).cloned()
    }

    fn all_under_way(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the worker of a meeting's job can answer.
    pub(crate) fn is_conversing(&self, id: &str) -> bool {
        self.conversing.borrow().contains(id)
    }

    /// The jobs of meetings whose workers can answer, and changes of the set.
    pub(crate) fn conversing(&self) -> watch::Receiver<HashSet<String>> {
        self.conversing.subscribe()
    }

    /// Notes that the worker of a meeting's job can answer, until the guard is dropped.
    pub(crate) fn converse(self: &Arc<Self>, id: &JobId) -> impl Drop + Send + use<> {
        self.conversing.send_modify(|all| {
            all.insert(id.to_string());
        });
        Conversing { data: self.clone(), id: id.clone() }
    }

    /// Notes that the work of a job begins. It has ended when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, id: &JobId) -> impl Drop + Send + use<> {
        let ended = CancellationToken::new();
        self.all_under_way().insert(id.to_string(), ended.clone());
        UnderWay { data: self.clone(), id: id.clone(), ended }
    }
}
