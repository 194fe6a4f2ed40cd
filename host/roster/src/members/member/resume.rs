//! Resumes a member's jobs that the end of a host interrupted.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use guild_config::Runtime;
use guild_contract::{Bounds, Grants, JobId};
use guild_hall::Attempt;
use guild_jobs::{Accepted, Resume, RunningJob, Sealed};
use guild_session::{
    activation::Plan,
    session::{NoTools, Wanted},
    tools::Tools,
    transcript::Entry,
};
use guild_telemetry::trace::Parent;
use tokio::runtime::Handle;

use super::Member;
use crate::jobs::{
    interrupted::fail,
    run::{self, Assignment, JobRequest, conversation},
};

/// The reason that a job without a valid seal is not resumed.
const NOT_BEGUN: &str = "its plan.json does not have this host's seal for it (guild.seal next to guild.toml), so no host \
                         began it here, and it is not resumed";

/// How long a resumed job waits for the components of its toolboxes: no caller waits with it.
const LOADING: Duration = Duration::from_secs(3600);

/// Resumes jobs of a member, as long as that serves its directory.
pub(super) struct Runner {
    member: Weak<Member>,
    /// Jobs belong to the host's threads.
    host: Handle,
}

impl Runner {
    /// For jobs that run in the current runtime.
    pub(super) fn new(member: &Arc<Member>) -> Self {
        Self { member: Arc::downgrade(member), host: Handle::current() }
    }
}

impl Resume for Runner {
    fn seal(&self, job: &JobId, plan: &[u8]) -> Option<String> {
        let member = self.member.upgrade()?;
        member.context.seals.seal(member.key(), &member.data.dir, job, plan)
    }

    fn check(&self, job: &JobId, plan: &Sealed, history: &[Entry]) -> Result<(), String> {
        let member = self.member.upgrade().ok_or("the host is stopping")?;
        begun(&member, job, plan)?;
        let plan = &plan.accepted;
        let session = match &plan.plan {
            Plan::Session(session) => session,
            Plan::OwnRun(_) => return Err("its plugin carried it out itself and was interrupted".to_owned()),
            // Nothing of it runs until somebody says something, and then it is looked at.
            Plan::Conversation(_) => return Ok(()),
        };
        // The operator may no longer allow the runtime of its dispatch.
        let agent = member.agent(Some(&plan.agent)).map_err(|e| e.message)?;
        let attempt = member.context.attempt_of(job);
        let attachments = member.data.attachments(job);
        let (attachments, grants) = (attachments.as_deref(), grants(&member, plan));
        let reach = member.context.reach(member.key(), attempt.as_ref(), attachments, &grants)?;
        let wanted =
            Wanted { model: session.model.as_deref(), files: reach.session_files.as_deref(), ..Wanted::default() };
        let slot = member.context.resources.runtimes.ready(agent, &wanted)?;
        if history.iter().any(|entry| matches!(entry, Entry::Truncated { .. })) {
            let why = "its transcript reached limits.transcript_bytes, or could not be written, so it is not known where it was";
            return Err(why.to_owned());
        }
        // A job that had not begun begins now.
        if history.is_empty() { Ok(()) } else { slot.runtime.can_resume(history) }
    }

    fn resume(&self, job: Arc<RunningJob>) {
        if let Some(member) = self.member.upgrade() {
            resume(&self.host, member, job);
        }
    }
}

/// Resumes a job. It does not wait for it.
fn resume(host: &Handle, member: Arc<Member>, job: Arc<RunningJob>) {
    let permits = member.context.permits.clone();
    let under_way = member.data.begin(job.id());
    host.spawn(async move {
        let permit = tokio::select! {
            permit = permits.acquire_owned() => permit,
            () = job.given_back() => return,
        };
        if job.cancelled().is_cancelled() {
            return;
        }
        let read = {
            let job = job.clone();
            let member = member.clone();
            tokio::task::spawn_blocking(move || {
                let plan = plan(&member, &job).inspect_err(|why| fail(&job, why)).ok();
                if plan.as_ref().is_some_and(|plan| matches!(plan.plan, Plan::Conversation(_))) {
                    conversation::mark_cut_off(&job);
                }
                plan
            })
        };
        let Ok(Some(plan)) = read.await else { return };
        if let Plan::Conversation(_) = plan.plan {
            // It takes a place for each turn.
            let _ = member.context.cluster.as_ref().and_then(|cluster| cluster.reserved(member.key(), job.id()));
            let conversing = member.data.converse(job.id());
            return conversation::hold(job, (permit, under_way, conversing)).await;
        }
        let toolboxes = tokio::select! {
            toolboxes = toolboxes(&member, &plan.plan, Instant::now() + LOADING) => toolboxes,
            () = job.cancelled().cancelled() => return,
            () = job.given_back() => return,
        };
        let toolboxes = match toolboxes {
            Ok(toolboxes) => toolboxes,
            Err(why) => return drop(tokio::task::spawn_blocking(move || fail(&job, &why)).await),
        };
        let attempt = member.context.attempt_of(job.id());
        let Allowed { grants, granted_tools, ceiling } = allowed(&member, job.id(), &plan, attempt.as_ref());
        let plan = Accepted { granted_tools, ceiling, ..plan };
        let request = JobRequest::Session { toolboxes, resumed: true };
        let agent = match plan.agent.parse::<Runtime>() {
            Ok(agent) => agent,
            Err(why) => return drop(tokio::task::spawn_blocking(move || fail(&job, &why)).await),
        };
        let context = member.context_of(attempt.as_ref());
        let data = member.data.clone();
        let assignment = Assignment {
            data,
            context,
            job,
            attempt,
            agent,
            accepted: plan,
            grants,
            granted: None,
            request,
            parent: Parent::default(),
        };
        run::carry_out(assignment, (permit, under_way)).await;
    });
}

/// The plan of a job that this host began, or one before it. It blocks.
///
/// # Errors
///
/// Returns the reason when the job has no such plan.
pub(super) fn plan(member: &Member, job: &RunningJob) -> Result<Accepted, String> {
    let plan = job.plan().map_err(|e| format!("its plan.json cannot be read: {e}"))?;
    // Somebody may have put another one there since it was checked.
    begun(member, job.id(), &plan)?;
    Ok(plan.accepted)
}

/// The permissions that a job which was accepted earlier still has.
pub(super) struct Allowed {
    pub(super) grants: Arc<Grants>,
    pub(super) granted_tools: Vec<String>,
    pub(super) ceiling: Bounds,
}

/// The permissions that a job had at its dispatch and still has.
pub(super) fn allowed(member: &Member, job: &JobId, plan: &Accepted, attempt: Option<&Attempt>) -> Allowed {
    let grants = grants(member, plan);
    let attachments = member.data.attachments(job);
    let today = member.context.reach(member.key(), attempt, attachments.as_deref(), &grants).map(|reach| reach.tools);
    let today = today.unwrap_or_default();
    let granted_tools = plan.granted_tools.iter().filter(|tool| today.contains(tool)).cloned().collect();
    let ceiling = plan.ceiling.min(member.ceiling_of(attempt));
    Allowed { grants, granted_tools, ceiling }
}

/// The grants of a job that was accepted earlier, perhaps by a host with another policy: those that were granted then
/// and still are.
fn grants(member: &Member, plan: &Accepted) -> Arc<Grants> {
    Arc::new((*member.grants).clone().and(&plan.grants))
}

/// Whether a host began that job of the member with that plan. It blocks.
fn begun(member: &Member, job: &JobId, plan: &Sealed) -> Result<(), String> {
    let own = |seal: &String| member.context.seals.is_seal(seal, member.key(), &member.data.dir, job, &plan.text);
    if plan.seal.as_ref().is_some_and(own) { Ok(()) } else { Err(NOT_BEGUN.to_owned()) }
}

/// The toolbox tools of a plan, as its member and its toolboxes are by now. What is still being loaded is waited for.
pub(super) async fn toolboxes(member: &Member, plan: &Plan, until: Instant) -> Result<Arc<dyn Tools>, String> {
    let names = match plan.session() {
        Some(session) if !session.toolbox_tools.is_empty() => &session.toolbox_tools,
        _ => return Ok(Arc::new(NoTools)),
    };
    // A component is compiled within its time limit, so this is for all of them to be there.
    let offered = member.offered(until).await.map_err(|e| e.message)?;
    offered
        .only(names)
        .map_err(|name| format!("its session used the tool {name:?}, which no toolbox of its member has now"))
}
