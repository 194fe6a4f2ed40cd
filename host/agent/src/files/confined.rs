//! Walks and searches the read roots in a child process, which inherits their open directories.
//!
//! A regular expression and a `.gitignore` can take any time and memory, and neither can be interrupted in this
//! process. So the child walks, reads ignore files and matches. It is killed after `limits.search_seconds`, when it
//! takes more than `limits.search_memory_bytes`, and when the caller is dropped. `limits.searches` bounds the searches
//! of a member.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use cap_std::fs::Dir;
use guild_confine::{Bounds, Ended, Task, Worker};
use guild_contract::Limits;
use guild_session::{files::GrepRequest, tools::ToolError};
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

/// The number of a member's searches that may wait for a permit, each on a thread; further ones are answered "busy".
const MAX_WAITING: usize = 8;

/// Walks and searches the read roots. Request and reply are in postcard's format.
pub static FILES_TASK: Task = Task { name: "files", run };

/// The work of the child.
#[derive(Serialize, Deserialize)]
pub(super) enum Operation {
    Walk,
    Grep(GrepRequest),
    Glob { pattern: String, directory: Option<String>, limit: u32 },
    Look { enough: u32 },
}

/// The result, and the `.gitignore` files beyond the bounds that were found.
type Reply<T> = (Result<T, ToolError>, Vec<String>);

/// A request: the names of the directories that the child inherits, whether a `.gitignore` hides files there, and the
/// operation.
#[derive(Serialize, Deserialize)]
struct Request {
    roots: Vec<(String, bool)>,
    operation: Operation,
}

fn broke_off() -> ToolError {
    ToolError::Unavailable("the search failed".to_owned())
}

/// The bounds of a member's searches, and the permits for them.
#[derive(Clone)]
pub(super) struct ChildSearch {
    bounds: Bounds,
    searches: usize,
    /// Permits to run or to wait; a search without one is answered "busy".
    admitted: Arc<Semaphore>,
    /// Permits to run.
    turns: Arc<Semaphore>,
    pub(super) beyond: BeyondBounds,
    /// The runtime on which the roots were opened. The caller may be on a runtime of components, which starts no
    /// children.
    runtime: Option<Handle>,
}

impl ChildSearch {
    pub(super) fn new(limits: &Limits) -> Self {
        let bounds = Bounds { seconds: limits.search_seconds, memory_bytes: limits.search_memory_bytes };
        let searches = limits.searches as usize;
        Self {
            bounds,
            searches,
            admitted: Arc::new(Semaphore::new(searches + MAX_WAITING)),
            turns: Arc::new(Semaphore::new(searches)),
            beyond: BeyondBounds::default(),
            runtime: Handle::try_current().ok(),
        }
    }

    /// The same bounds with separate permits, for one member.
    pub(super) fn for_member(&self) -> Self {
        Self {
            admitted: Arc::new(Semaphore::new(self.searches + MAX_WAITING)),
            turns: Arc::new(Semaphore::new(self.searches)),
            ..self.clone()
        }
    }

    /// A permit for a search of the member; `None` if too many searches wait or the wait takes too long.
    async fn turn(&self) -> Option<[SemaphorePermit<'_>; 2]> {
        let admitted = self.admitted.try_acquire().ok()?;
        let patience = Duration::from_secs(self.bounds.seconds.into());
        let turn = time::timeout(patience, self.turns.acquire()).await.ok()?.ok()?;
        Some([turn, admitted])
    }

    async fn search(&self, roots: &[Arc<Root>], operation: Operation) -> Result<Vec<u8>, ToolError> {
        let busy = || {
            ToolError::Unavailable(format!(
                "busy: {} searches of this member are running ({}); try again",
                self.searches,
                Limits::cited("searches")
            ))
        };
        let broke = |error: String| ToolError::Unavailable(format!("the search failed: {error}"));
        // Listings and counts are the host's own work, and need no permit of the member.
        let _turn = match operation {
            Operation::Walk | Operation::Look { .. } => None,
            Operation::Grep(_) | Operation::Glob { .. } => Some(self.turn().await.ok_or_else(busy)?),
        };
        let opened = |root: &Arc<Root>| root.dir.try_clone().map(|dir| Arc::new(OwnedFd::from(dir.into_std_file())));
        let directories: Vec<_> =
            roots.iter().map(opened).collect::<Result<_, _>>().map_err(|error| broke(error.to_string()))?;
        let request =
            Request { roots: roots.iter().map(|root| (root.name.clone(), root.has_rules)).collect(), operation };
        let request = postcard::to_allocvec(&request).map_err(|error| broke(error.to_string()))?;
        let answer = Worker::new(&FILES_TASK, self.bounds).with_directories(directories).ask(request).await;
        answer.map_err(|ended| match ended {
            Ended::TooLong => ToolError::OverLimit(format!(
                "it took longer than {} s ({}): ask for less, with a narrower path, glob or pattern",
                self.bounds.seconds,
                Limits::cited("search_seconds")
            )),
            Ended::TooMuchMemory => ToolError::OverLimit(format!(
                "it took more than {} bytes of memory ({}): ask for less, with a narrower path, glob or pattern",
                self.bounds.memory_bytes,
                Limits::cited("search_memory_bytes")
            )),
            Ended::Failed(why) => broke(why),
        })
    }
}

impl ReadRoots {
    /// Runs the operation in a child process, and blocks until it ends. A program without children, such as the tests
    /// of this crate, runs it in its own process.
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

    /// Runs the operation in this process; returns the [`Reply`] in postcard's format.
    fn here(&self, operation: Operation, cancel: &CancellationToken) -> Vec<u8> {
        match operation {
            Operation::Walk => self.reply(self.list(None, cancel, &mut |_| true)),
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

    /// The roots that this child inherited, under these names.
    fn inherited(names: Vec<(String, bool)>) -> Result<Self, ToolError> {
        let open = |((name, has_rules), directory): ((String, bool), &OwnedFd)| {
            let dir = Dir::from_std_file(directory.try_clone().map_err(|_| broke_off())?.into());
            let path = PathBuf::from(&name);
            Ok(Arc::new(Root { real: path.clone(), path, name, dir, has_rules }))
        };
        let roots = names.into_iter().zip(guild_confine::directories()).map(open).collect::<Result<_, ToolError>>()?;
        Ok(Self { roots, no_sources: Vec::new(), absent: None, child: ChildSearch::new(&Limits::default()) })
    }
}

fn run(request: &[u8]) -> Vec<u8> {
    // An invalid request gets an empty reply, which the host reports as a failure.
    let Ok(Request { roots, operation }) = postcard::from_bytes(request) else { return Vec::new() };
    ReadRoots::inherited(roots).map(|roots| roots.here(operation, &CancellationToken::new())).unwrap_or_default()
}
