//! The inputs and outputs of a call of a component.

pub(crate) mod tools;

use std::{sync::Arc, time::Instant};

use cap_std::fs::Dir;
use guild_jobs::{JobTools, MemoryStore, ScopedMemory};
use guild_session::{
    activation::{Plan, Refusal},
    files::Files,
    hall::HallView,
    session::Sessions,
    tools::{ToolError, Tools},
    web::Web,
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// What `activate` can reach: no job exists yet.
pub struct ActivateScope {
    /// The memories that it was granted, which it can read.
    pub memory: ScopedMemory,
    /// The granted read roots.
    pub files: Option<Arc<dyn Files>>,
    /// The hall, where the host serves one.
    pub hall: Option<Arc<dyn HallView>>,
    /// Where the host's own work for it is done.
    pub host: Handle,
    /// Until when it may wait for its turn.
    pub wait_until: Instant,
}

/// What `activate` answered.
#[derive(Debug)]
pub struct Activated {
    /// The plan, or why the dispatch is not accepted. A plan asks for nothing that was not granted.
    pub outcome: Result<Plan, Refusal>,
    /// What the component wrote meanwhile: lines for the job's log, if there will be a job.
    pub log: Vec<String>,
}

/// What a tool call can reach: no job exists for it.
pub struct ToolScope {
    /// The member's memory, which it can read.
    pub memory: Arc<MemoryStore>,
    /// The granted read roots.
    pub files: Option<Arc<dyn Files>>,
    /// The web, as far as the operator opened it.
    pub web: Web,
    /// Where the host's own work for it is done: a component that never rests must not hold up what it waits for.
    pub host: Handle,
    /// Until when it may wait for its turn.
    pub wait_until: Instant,
}

/// Why a tool gave no result, as the component says it: `tool-error` in WIT. Whoever called sees the text, of which
/// 8 KiB are kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFault {
    /// There is no tool of this name.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// The input does not satisfy the tool's schema; the text says where.
    #[error("{0}")]
    InvalidInput(String),
    /// The tool did not work; the text says why.
    #[error("{0}")]
    Failed(String),
}

/// What `run` can reach.
pub struct RunScope {
    /// The internal tools on the job, with the memories that it was granted.
    pub tools: Arc<JobTools>,
    /// The job's directory: `/job`, read-only.
    pub job_dir: Dir,
    /// Its `artifacts/`: `/job/artifacts`, read-write.
    pub artifacts_dir: Dir,
    /// The granted read roots.
    pub files: Option<Arc<dyn Files>>,
    /// The web, as far as the operator opened it.
    pub web: Web,
    /// Where the host's own work for it is done: a component that never rests must not hold up what it waits for.
    pub host: Handle,
    /// The hall, where the host serves one.
    pub hall: Option<Arc<dyn HallView>>,
    /// The manager's tools, for the manager.
    pub manager: Option<Arc<dyn Tools>>,
    /// Where it starts sessions of its own.
    pub sessions: Option<Arc<dyn Sessions>>,
    /// Its deadline, if that is sooner than `limits.run_seconds`.
    pub seconds: u32,
}

/// Does work for a component where the host does its own; it ends with the call. `failed` is said where the host stops
/// meanwhile.
pub(crate) async fn on_host<T: Send + 'static>(
    host: &Handle,
    failed: &str,
    work: impl Future<Output = Result<T, ToolError>> + Send + 'static,
) -> Result<T, ToolError> {
    let done = AbortOnDropHandle::new(host.spawn(work)).await;
    done.unwrap_or_else(|_| Err(ToolError::Unavailable(failed.to_owned())))
}
