//! The sessions of a job, and those that a component starts while it carries its job out: the checks, texts and tools that
//! a host and `guild test` have in common.

use std::sync::Arc;

use guild_agent::{Broker, ToolSet};
use guild_contract::{Bounds, Grants, Limits, manifest::FILE_TOOLS};
use guild_jobs::RunningJob;
use guild_session::{
    activation::Activation,
    files::Files,
    meter::{Meter, session_limits},
    session::{EVENTS, Query, Session},
    tools::{ToolError, Tools},
    web::Web,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{discovery::granted::no_tool, resources::runtimes::GRACE};

/// The resources of all sessions of a job.
pub struct SessionResources {
    /// The job.
    pub job: Arc<RunningJob>,
    /// The grants of its member.
    pub grants: Arc<Grants>,
    /// The limits of its member.
    pub limits: Arc<Limits>,
    /// The built-in tools that its sessions can be given.
    pub granted_tools: Vec<String>,
    /// The read-only tools over the read roots.
    pub broker: Broker,
    /// The web of its sessions.
    pub web: Web,
    /// The read roots of its sessions.
    pub files: Option<Arc<dyn Files>>,
}

impl SessionResources {
    /// The read roots, for a session with all three tools that read them.
    pub fn readable(&self, requested: &[String]) -> Option<Arc<dyn Files>> {
        let has =
            |name: &&str| [requested, &self.granted_tools].iter().all(|tools| tools.iter().any(|tool| tool == name));
        self.files.clone().filter(|_| FILE_TOOLS.iter().all(has))
    }

    /// The tools of a session: whole sets of tools, and the built-in tools that were granted and requested.
    ///
    /// # Errors
    ///
    /// Returns an error when two tools have the same name, or a tool has the name of a built-in one.
    pub fn tool_set(
        &self,
        session: u32,
        sets: impl IntoIterator<Item = Arc<dyn Tools>>,
        requested: &[String],
        cancel: &CancellationToken,
    ) -> Result<ToolSet, ToolError> {
        Ok(ToolSet::new(session, sets)?
            .with_read_only(&self.broker, &self.web, &self.granted_tools, requested)
            .with_journal(self.job.clone())
            .with_result_bytes(self.limits.tool_result_bytes)
            .with_cancel(cancel.clone()))
    }
}

/// The sessions that a component starts, on the account of its job.
pub struct OwnSessions {
    resources: SessionResources,
    activation: Arc<Activation>,
    /// The sets of internal tools, for sessions that request them.
    job_tools: Vec<Arc<dyn Tools>>,
    meter: Arc<Meter>,
    permits: Arc<Semaphore>,
}

/// A session that can be started.
pub struct OwnSession {
    /// The session. Its meter is that of the job.
    pub session: Session,
    /// The bounds of the session on that meter.
    pub bounds: Bounds,
    /// The texts of its agent.
    pub texts: mpsc::Receiver<String>,
}

impl OwnSessions {
    /// The sessions of a component that was given this activation.
    pub fn new(
        resources: SessionResources,
        activation: Arc<Activation>,
        job_tools: Vec<Arc<dyn Tools>>,
        meter: Arc<Meter>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(resources.limits.job_sessions as usize));
        Self { resources, activation, job_tools, meter, permits }
    }

    /// Checks that the requested tools were granted.
    ///
    /// # Errors
    ///
    /// Returns [`ToolError::NotGranted`] for the first tool that was not.
    pub fn check_tools(&self, query: &Query) -> Result<(), ToolError> {
        let SessionResources { granted_tools, grants, .. } = &self.resources;
        let Some(tool) = query.tools.iter().find(|tool| !granted_tools.contains(tool)) else { return Ok(()) };
        let is_of_toolbox = self.activation.toolbox_tools.iter().any(|definition| definition.name == *tool);
        Err(ToolError::NotGranted(match is_of_toolbox {
            true => format!(
                "the tool {tool:?} is a toolbox's, which only a session that `activate` plans has; one that the component \
                 starts itself has built-in tools and own ones"
            ),
            false => no_tool(grants, tool),
        }))
    }

    /// Waits for a permit for one more session at a time. A session that was just dropped is about to end.
    ///
    /// # Errors
    ///
    /// Returns [`ToolError::OverLimit`] when the job has used up a bound, or has as many sessions as it may have.
    pub async fn permit(&self) -> Result<OwnedSemaphorePermit, ToolError> {
        if let Some(bound) = used_up(&self.meter.left().map_err(ToolError::Unavailable)?) {
            return Err(ToolError::OverLimit(format!("the job has no {bound} left")));
        }
        let most = self.resources.limits.job_sessions;
        let over = || {
            ToolError::OverLimit(format!(
                "the job has {most} sessions, as many as limits.job_sessions allows; let one end before another begins"
            ))
        };
        timeout(GRACE, self.permits.clone().acquire_owned()).await.map_err(|_| over())?.map_err(|_| over())
    }

    /// The session of a query.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SessionResources::tool_set`].
    pub fn session(&self, query: Query) -> Result<OwnSession, ToolError> {
        let SessionResources { job, limits, .. } = &self.resources;
        let (number, cancel) = (job.next_session(), job.cancelled().child_token());
        let (sender, texts) = mpsc::channel(EVENTS);
        let job_tools = query.job_tools.then(|| self.job_tools.iter().cloned());
        let sets = job_tools.into_iter().flatten().chain([query.own_tools]);
        let session = Session {
            number,
            system_prompt: query.system_prompt,
            prompt: query.prompt,
            converses: false,
            conversation_chars: limits.conversation_chars,
            model: query.model,
            tools: Arc::new(self.resources.tool_set(number, sets, &query.tools, &cancel)?),
            files: self.resources.readable(&query.tools),
            meter: self.meter.clone(),
            cancel,
            texts: Some(sender),
            journal: job.clone(),
            history: Vec::new(),
        };
        Ok(OwnSession { session, bounds: query.bounds.min(session_limits(limits)), texts })
    }
}

/// The bound that is used up.
fn used_up(left: &Bounds) -> Option<&'static str> {
    if left.max_turns == Some(0) {
        return Some("turns");
    }
    if left.max_budget_usd.is_some_and(|usd| usd <= 0.0) {
        return Some("dollars");
    }
    (left.deadline_seconds == Some(0)).then_some("time")
}

/// The text that a component's `run` submits by returning it, if there is one; or the reason that the job fails.
///
/// # Errors
///
/// Returns the reason that the component gave.
pub fn returned(answer: Result<String, String>) -> Result<Option<String>, String> {
    let is_empty = |text: &str| text.trim().is_empty();
    match answer {
        // A component that submitted a result before may return an empty text.
        Ok(text) => Ok(Some(text).filter(|text| !is_empty(text))),
        Err(why) if is_empty(&why) => Err("the plugin gave up without a reason".to_owned()),
        Err(why) => Err(why),
    }
}
