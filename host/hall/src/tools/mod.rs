//! Assembles the tools of a session in a commission or in a meeting (REQ-WKR-8 to REQ-WKR-13).

pub mod commission;
pub mod lore;
pub mod meeting;
pub mod memory;
pub mod report;
pub mod workspace;
mod worktree;

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{Grants, capability::LORE_WRITE};
use guild_git::Checkout;
use guild_jobs::{ActivityKind, JobTools};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools};
use schemars::JsonSchema;
use serde_json::Value;

use commission::{CommissionReporting, ReportTools};
use lore::LoreTools;
use meeting::{MeetingReports, MeetingTools};
use memory::MemoryTools;
use report::Reports;
use workspace::WorkspaceTools;
pub use worktree::Worktree;
pub(crate) use worktree::key;

/// The tools of a session in a commission or a meeting besides toolboxes and built-in tools: the base tools
/// (REQ-WKR-9), the tools of the commission (REQ-WKR-10) or of the meeting (REQ-WKR-11), and the remaining tools of a
/// job. A tool that is not granted does not exist.
pub struct ActivityTools {
    tools: Vec<(Arc<ToolDefinition>, Arc<dyn Tools>)>,
    job: Arc<JobTools>,
}

impl ActivityTools {
    /// The tools of an attempt at a commission, for a worktree with this checkout. `job` has the granted tools on the
    /// job, with the granted memories. It is called on the host's runtime.
    pub fn of_commission(
        job: JobTools,
        grants: &Arc<Grants>,
        worktree: Arc<Worktree>,
        checkout: Checkout,
        reports: Arc<dyn Reports>,
    ) -> Self {
        let lore = LoreTools::new(worktree.clone(), grants.clone(), reports.clone());
        let reporting = Arc::new(CommissionReporting::new(job.job().clone(), lore.clone(), reports));
        let job = job.within(ActivityKind::Commission).reporting_to(reporting.clone());
        let own = Arc::new(ReportTools::new(reporting));
        Self::new(job, grants, worktree, checkout, lore, own)
    }

    /// The tools of a meeting, assembled like [`Self::of_commission`].
    pub fn of_meeting(
        job: JobTools,
        grants: &Arc<Grants>,
        worktree: Arc<Worktree>,
        checkout: Checkout,
        reports: Arc<dyn MeetingReports>,
    ) -> Self {
        let lore = LoreTools::new(worktree.clone(), grants.clone(), Arc::new(meeting::NoReports));
        let own = Arc::new(MeetingTools::new(lore.clone(), reports));
        Self::new(job.within(ActivityKind::Meeting), grants, worktree, checkout, lore, own)
    }

    fn new(
        job: JobTools,
        grants: &Arc<Grants>,
        worktree: Arc<Worktree>,
        checkout: Checkout,
        lore: LoreTools,
        own: Arc<dyn Tools>,
    ) -> Self {
        let job = Arc::new(job);
        let sets: [Arc<dyn Tools>; 4] = [
            Arc::new(MemoryTools::new(job.clone(), grants)),
            Arc::new(lore),
            Arc::new(WorkspaceTools::new(worktree, grants.clone(), checkout)),
            own,
        ];
        let own = sets.into_iter().flat_map(|set| set.definitions().into_iter().map(move |tool| (tool, set.clone())));
        let of_job = job.definitions().into_iter().map(|tool| (tool, job.clone() as Arc<dyn Tools>));
        Self { tools: own.chain(of_job).collect(), job }
    }

    /// Adds the tools of another set.
    #[must_use]
    pub fn with(mut self, set: Arc<dyn Tools>) -> Self {
        self.tools.extend(set.definitions().into_iter().map(|tool| (tool, set.clone())));
        self
    }

    /// The tools on the job, for its component: its reports go to the same receiver as the reports of sessions.
    pub fn job_tools(&self) -> &Arc<JobTools> {
        &self.job
    }
}

#[async_trait]
impl Tools for ActivityTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.tools.iter().map(|(definition, _)| definition.clone()).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let tool = self.tools.iter().find(|(definition, _)| definition.name == call.name);
        let (_, set) = tool.ok_or_else(|| unknown(&call.name))?;
        set.call(call).await
    }

    fn repeats_safely(&self, tool: &str) -> bool {
        self.tools.iter().find(|(known, _)| known.name == tool).is_some_and(|(_, set)| set.repeats_safely(tool))
    }
}

/// A tool whose input is a `T`.
pub(crate) fn define<T: JsonSchema>(name: &str, title: &str, read_only: bool) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition::of::<T>(name, Some(title), read_only))
}

pub(crate) fn unknown(name: &str) -> ToolError {
    ToolError::InvalidInput(format!("there is no tool {name:?}"))
}

/// Refuses a tool that a set does not have.
pub(crate) fn is_offered(set: &dyn Tools, name: &str) -> Result<(), ToolError> {
    if set.definitions().iter().any(|tool| tool.name == name) { Ok(()) } else { Err(unknown(name)) }
}

/// Checks that writing documents is granted.
fn lore_write(grants: &Grants) -> Result<(), ToolError> {
    if grants.base.holds(&LORE_WRITE) {
        return Ok(());
    }
    Err(ToolError::NotGranted(grants.base.denial(&LORE_WRITE)))
}

pub(crate) fn answer(text: &str) -> Value {
    Value::String(text.to_owned())
}
