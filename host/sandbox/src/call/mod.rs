//! Defines the inputs and outputs of calls of components.

pub(crate) mod tools;

use std::{sync::Arc, time::Instant};

use cap_std::fs::Dir;
use guild_jobs::{JobTools, MemoryStore, RunningJob, ScopedMemory};
use guild_session::{
    activation::{Plan, Refusal},
    files::Files,
    hall::HallView,
    session::Sessions,
    tools::{ToolError, Tools},
    transcript::Entry,
    web::Web,
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::environment::Environment;

/// The resources that `activate` can reach. No job exists yet.
pub struct ActivateScope {
    /// The granted memories, which it can read.
    pub memory: ScopedMemory,
    /// The granted read roots.
    pub files: Option<Arc<dyn Files>>,
    /// The hall, if the host serves one.
    pub hall: Option<Arc<dyn HallView>>,
    /// The runtime of the host's own work for it.
    pub host: Handle,
    /// The clocks and the random numbers that it sees.
    pub environment: Environment,
    /// The end of its wait for a permit.
    pub wait_until: Instant,
}

/// The result of `activate`.
#[derive(Debug)]
pub struct Activated {
    /// The plan, or the refusal of the dispatch. A plan asks only for granted things.
    pub outcome: Result<Plan, Refusal>,
    /// The traces of the call, for the files of the future job.
    pub activity: Activity,
}

/// The traces of an `activate`.
#[derive(Debug, Default)]
pub struct Activity {
    /// Lines that the component wrote.
    pub log: Vec<String>,
    /// The capabilities that it used, as `guild.toml` spells them.
    pub uses: Vec<String>,
}

impl Activity {
    /// Writes the traces into the files of the job.
    pub fn write(self, job: &RunningJob) {
        self.log.iter().for_each(|line| job.log(line));
        record_uses(job, "activate", self.uses);
    }
}

/// Writes the capabilities that a component used into the transcript of the job.
pub(crate) fn record_uses(job: &RunningJob, call: &str, capabilities: Vec<String>) {
    if !capabilities.is_empty() {
        job.transcript(&Entry::Used { call: call.to_owned(), capabilities });
    }
}

/// Told of the capabilities that a component used in one call, as `guild.toml` spells them.
pub type TellUses = Arc<dyn Fn(Vec<String>) + Send + Sync>;

/// The resources that a tool call can reach. No job exists for it.
pub struct ToolScope {
    /// The member's memory, which it can read.
    pub memory: Arc<MemoryStore>,
    /// The granted read roots.
    pub files: Option<Arc<dyn Files>>,
    /// The web, as far as the operator opened it.
    pub web: Web,
    /// The clocks and the random numbers that it sees.
    pub environment: Environment,
    /// The runtime of the host's own work for it: a busy component must not delay the work that it waits for.
    pub host: Handle,
    /// The end of its wait for a permit.
    pub wait_until: Instant,
    /// The listener for the capabilities that it uses, if there is one: a call of a tool has no transcript.
    pub tell_uses: Option<TellUses>,
}

/// A component's error of a tool call: `tool-error` in WIT. The caller sees the text, of which 8 KiB are kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFault {
    /// The tool does not exist.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// The input does not satisfy the tool's schema; the text names the place.
    #[error("{0}")]
    InvalidInput(String),
    /// The tool failed; the text tells why.
    #[error("{0}")]
    Failed(String),
}

/// The resources that `run` can reach.
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
    /// The clocks and the random numbers that it sees.
    pub environment: Environment,
    /// The runtime of the host's own work for it: a busy component must not delay the work that it waits for.
    pub host: Handle,
    /// The hall, if the host serves one.
    pub hall: Option<Arc<dyn HallView>>,
    /// The manager's tools, for the manager.
    pub manager: Option<Arc<dyn Tools>>,
    /// Starts its own sessions.
    pub sessions: Option<Arc<dyn Sessions>>,
    /// Its deadline, if that is sooner than `limits.run_seconds`.
    pub seconds: u32,
}

/// Runs work for a component on the host's runtime; it ends with the call. `failed` is the error if the host stops
/// meanwhile.
pub(crate) async fn on_host<T: Send + 'static>(
    host: &Handle,
    failed: &str,
    work: impl Future<Output = Result<T, ToolError>> + Send + 'static,
) -> Result<T, ToolError> {
    let done = AbortOnDropHandle::new(host.spawn(work)).await;
    done.unwrap_or_else(|_| Err(ToolError::Unavailable(failed.to_owned())))
}
