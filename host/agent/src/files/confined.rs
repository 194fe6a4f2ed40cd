//! Walks and searches in a child process, which is handed the open read roots.
//!
//! A regular expression and a `.gitignore` can take any time and memory, and neither can be interrupted in this process.
//! So the child walks, reads ignore files and matches. It is killed after `limits.search_seconds`, when it takes more than
//! `limits.search_memory_bytes`, and when the caller is dropped. `limits.searches` bounds the searches of a member.

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use cap_std::fs::Dir;
use guild_confine::{Bounds, Ended, Task, Worker};
use guild_contract::Limits;
use guild_session::{
    files::{FileEntry, GrepRequest, Listing},
    tools::ToolError,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    ReadRoots, Root,
    visible::{BeyondBounds, cancelled},
};

/// Searches of a member that may wait for their turn, each on a thread; more are answered "busy".
const MAX_WAITING: usize = 8;

/// Walks and searches the read roots. Request and reply are in postcard's format.
pub static FILES_TASK: Task = Task { name: "files", run };

/// What the child is to do.
#[derive(Serialize, Deserialize)]
pub(super) enum Operation {
    Walk,
    Grep(GrepRequest),
    Glob { pattern: String, directory: Option<String>, limit: u32 },
    Look { enough: u32 },
}

/// What it came to, and the `.gitignore` beyond the bounds that were found.
type Reply<T> = (Result<T, ToolError>, Vec<String>);

/// A request: the names of the directories that the child was handed, and what is asked for.
#[derive(Serialize, Deserialize)]
struct Request {
    roots: Vec<String>,
    operation: Operation,
}

/// A [`FileEntry`]. Its time can be before 1970.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    path: String,
    size: u64,
    after_1970: bool,
    distance: Duration,
}

impl From<FileEntry> for Entry {
    fn from(FileEntry { path, size, modified }: FileEntry) -> Self {
        let (after_1970, distance) = match modified.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(distance) => (true, distance),
            Err(before) => (false, before.duration()),
        };
        Self { path, size, after_1970, distance }
    }
}

impl From<Entry> for FileEntry {
    fn from(Entry { path, size, after_1970, distance }: Entry) -> Self {
        let epoch = SystemTime::UNIX_EPOCH;
        let modified = if after_1970 { epoch.checked_add(distance) } else { epoch.checked_sub(distance) };
        Self { path, size, modified: modified.unwrap_or(epoch) }
    }
}

fn broke_off() -> ToolError {
    ToolError::Unavailable("the search broke off".to_owned())
}

/// The bounds of a member's searches, and the permits for them.
#[derive(Clone)]
pub(super) struct ChildSearch {
    bounds: Bounds,
    searches: usize,
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    pub(super) beyond: BeyondBounds,
    /// Where the roots were opened: who asks may be on a runtime of components, which can have no children.
    runtime: Option<Handle>,
}

impl ChildSearch {
    pub(super) fn new(limits: &Limits) -> Self {
        let bounds = Bounds { seconds: limits.search_seconds, memory_bytes: limits.search_memory_bytes };
        let searches = limits.searches as usize;
        let turns = Arc::new(Semaphore::new(searches));
        Self {
            bounds,
            searches,
            turns,
            waiting: Arc::default(),
            beyond: BeyondBounds::default(),
            runtime: Handle::try_current().ok(),
        }
    }

    /// The same bounds, with permits of its own, for another member.
    pub(super) fn another(&self) -> Self {
        Self { turns: Arc::new(Semaphore::new(self.searches)), waiting: Arc::default(), ..self.clone() }
    }

    /// A permit among the searches of the member; none where too many wait for one, or it takes too long.
    async fn turn(&self) -> Option<(Waiting<'_>, SemaphorePermit<'_>)> {
        let waiting = Waiting::new(&self.waiting);
        if waiting.before >= self.searches + MAX_WAITING {
            return None;
        }
        let patience = Duration::from_secs(self.bounds.seconds.into());
        let turn = time::timeout(patience, self.turns.acquire()).await.ok()?.ok()?;
        Some((waiting, turn))
    }

    async fn search(&self, roots: &[Arc<Root>], operation: Operation) -> Result<Vec<u8>, ToolError> {
        let busy = || {
            ToolError::Unavailable(format!(
                "busy: {} searches of this member are under way (limits.searches); try again",
                self.searches
            ))
        };
        let broke = |error: String| ToolError::Unavailable(format!("the search broke off: {error}"));
        // Walking and looking are the host's own work, and need no permit of the member's.
        let _turn = match operation {
            Operation::Walk | Operation::Look { .. } => None,
            Operation::Grep(_) | Operation::Glob { .. } => Some(self.turn().await.ok_or_else(busy)?),
        };
        let opened = |root: &Arc<Root>| root.dir.try_clone().map(|dir| Arc::new(OwnedFd::from(dir.into_std_file())));
        let directories: Vec<_> =
            roots.iter().map(opened).collect::<Result<_, _>>().map_err(|error| broke(error.to_string()))?;
        let request = Request { roots: roots.iter().map(|root| root.name.clone()).collect(), operation };
        let request = postcard::to_allocvec(&request).map_err(|error| broke(error.to_string()))?;
        let answer = Worker::new(&FILES_TASK, self.bounds).with_directories(directories).ask(request).await;
        answer.map_err(|ended| match ended {
            Ended::TooLong => ToolError::OverLimit(format!(
                "it took longer than {} s (limits.search_seconds): ask for less, with a narrower path, glob or pattern",
                self.bounds.seconds
            )),
            Ended::TooMuchMemory => ToolError::OverLimit(format!(
                "it took more than {} bytes of memory (limits.search_memory_bytes): ask for less, with a narrower path, \
                 glob or pattern",
                self.bounds.memory_bytes
            )),
            Ended::Failed(why) => broke(why),
        })
    }
}

/// Counts a search as long as it lives.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    /// How many there were before it.
    before: usize,
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadRoots {
    /// Has a child process do it, and waits for that: call it where blocking is allowed. A program that has no children,
    /// as the tests of a part of the host, does it itself.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        operation: Operation,
        cancel: &CancellationToken,
    ) -> Result<T, ToolError> {
        let reply = if guild_confine::has_children() {
            let runtime = self.child.runtime.as_ref().ok_or_else(broke_off)?;
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => Err(cancelled()),
                    reply = self.child.search(&self.roots, operation) => reply,
                }
            })?
        } else {
            self.here(operation, cancel)
        };
        let (result, beyond): Reply<T> = postcard::from_bytes(&reply).map_err(|_| broke_off())?;
        beyond.into_iter().for_each(|why| self.child.beyond.add(why));
        result
    }

    /// Does it in this process; the [`Reply`] as postcard has it.
    fn here(&self, operation: Operation, cancel: &CancellationToken) -> Vec<u8> {
        match operation {
            Operation::Walk => {
                let entries = |files: Vec<FileEntry>| files.into_iter().map(Entry::from).collect::<Vec<_>>();
                self.reply(self.walk_here(cancel).map(|Listing { files, unread }| (entries(files), unread)))
            }
            Operation::Grep(request) => self.reply(self.grep_here(&request, cancel)),
            Operation::Glob { pattern, directory, limit } => {
                self.reply(self.glob_here(&pattern, directory.as_deref(), limit, cancel))
            }
            Operation::Look { enough } => self.reply(self.look_here(enough, cancel)),
        }
    }

    fn reply<T: Serialize>(&self, result: Result<T, ToolError>) -> Vec<u8> {
        let reply: Reply<T> = (result, self.child.beyond.all());
        postcard::to_allocvec(&reply).unwrap_or_default()
    }

    /// The roots that this child was handed, under these names.
    fn handed(names: Vec<String>) -> Result<Self, ToolError> {
        let open = |(name, directory): (String, &OwnedFd)| {
            let dir = Dir::from_std_file(directory.try_clone().map_err(|_| broke_off())?.into());
            let path = PathBuf::from(&name);
            Ok(Arc::new(Root { real: path.clone(), path, name, dir }))
        };
        let roots = names.into_iter().zip(guild_confine::directories()).map(open).collect::<Result<_, ToolError>>()?;
        Ok(Self { roots, child: ChildSearch::new(&Limits::default()) })
    }
}

fn run(request: &[u8]) -> Vec<u8> {
    // An invalid request gets an empty reply, which the host reports as a failure.
    let Ok(Request { roots, operation }) = postcard::from_bytes(request) else { return Vec::new() };
    ReadRoots::handed(roots).map(|roots| roots.here(operation, &CancellationToken::new())).unwrap_or_default()
}
