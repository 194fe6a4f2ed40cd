//! Carries a job out, from its plan to its end.

pub(crate) mod conversation;

use std::{
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use guild_auth::Ingress;
use guild_config::Runtime;
use guild_contract::{
    Bounds, Grants, JobUsage, MemberKey, SpendError, Usage,
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use guild_hall::{Attempt, NO_RESULT};
use guild_jobs::{Accepted, JobTools, RunningJob, ScopedMemory, StoreError};
use guild_sandbox::{CallError, Plugin, RunScope};
use guild_session::{
    activation::{Activation, Plan, SessionPlan},
    meter::{Account, Ending, Meter, Observer},
    queue::Permit,
    session::{AgentRuntime, Query, QueryHandle, Session, SessionEnd, Sessions, Wanted},
    task::TaskError,
    tools::{ToolError, Tools},
    transcript::{self, Entry, SUCCESS},
};
use guild_telemetry::{record, trace::Parent};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use super::{
    host_context::HostContext,
    member_data::MemberData,
    own_sessions::{OwnSession, OwnSessions, SessionResources, returned},
};
use crate::{
    answer::blocking,
    resources::{
        Reach,
        runtimes::{GRACE, Slot, may_spend},
    },
};

/// The way in which a job is carried out.
pub(crate) enum JobRequest {
    /// The host runs its session.
    Session {
        /// Its tools of toolboxes.
        toolboxes: Arc<dyn Tools>,
        /// Whether the end of a host interrupted it.
        resumed: bool,
    },
    /// It was dispatched, and its component carries it out.
    OwnRun(Arc<Plugin>, Arc<Activation>),
}

/// A job that is to be carried out.
pub(crate) struct Assignment {
    /// The member of the job.
    pub(crate) data: Arc<MemberData>,
    /// The host, as the job finds it.
    pub(crate) context: HostContext,
    /// The job.
    pub(crate) job: Arc<RunningJob>,
    /// The attempt at a commission, if it is one.
    pub(crate) attempt: Option<Attempt>,
    /// The runtime of its sessions.
    pub(crate) agent: Runtime,
    /// The accepted plan.
    pub(crate) accepted: Accepted,
    /// The grants of its member.
    pub(crate) grants: Arc<Grants>,
    /// The read roots, the web and the memories, where its dispatch has opened them already.
    pub(crate) granted: Option<(Reach, ScopedMemory)>,
    /// The way in which it is carried out.
    pub(crate) request: JobRequest,
    /// The dispatch, in whose trace the job is.
    pub(crate) parent: Parent,
}

/// Carries a job out and stores its end. Even after an error or a panic the job does not remain `running`. `held` is
/// dropped at the end.
pub(crate) async fn carry_out(assignment: Assignment, held: impl Send) {
    let Assignment { data, context, job, attempt, agent, accepted, grants, granted, request, parent } = assignment;
    let is_commission = attempt.as_ref().is_some_and(|attempt| attempt.activity.commission().is_some());
    let ingress = context.ingress.clone();
    let Accepted { granted_tools, ceiling, plan, .. } = accepted;
    let span = tracing::debug_span!("job", member = %data.key, job = %job.id());
    parent.adopt(&span);
    let running = job.clone();
    let is_resumed = matches!(request, JobRequest::Session { resumed: true, .. });
    let carried_out = async move {
        // The trial begins before its memories, its worktree and its transcript are read, since that may have ended the
        // previous host.
        let place = match is_resumed {
            true => Some(resumed(&context, &data.key, &running, agent).await?),
            false => None,
        };
        let opened = Opened { data, context, attempt, job: running, grants, granted_tools };
        // Boxed as all that follows is, so that a job that waits for its place takes little memory.
        let work = Box::pin(opened.work(granted)).await?;
        match (plan, request) {
            (Plan::Session(plan), JobRequest::Session { toolboxes, .. }) => {
                work.session(agent, plan, ceiling, toolboxes, place).await
            }
            (Plan::OwnRun(bounds), JobRequest::OwnRun(plugin, activation)) => {
                Box::pin(work.own_run(agent, &plugin, activation, bounds.min(ceiling))).await
            }
            _ => Err(RunError::Failed("its plugin is not there to carry it out".to_owned())),
        }
    };
    let outcome = match tokio::spawn(carried_out.instrument(span.clone())).await {
        // The last text of a session is the result of a dispatched job, but not of a commission.
        Ok(Ok(_)) if is_commission && !job.has_submission() => Err(NO_RESULT.to_owned()),
        Ok(Ok(text)) => Ok(text),
        Ok(Err(RunError::Failed(why))) => Err(why),
        // The caller that cancelled it stores its end.
        Ok(Err(RunError::Cancelled)) => return drop(held),
        // The host stops and this task with it. The next host resumes the job.
        Err(e) if e.is_cancelled() => return pending().await,
        Err(_) => Err("the host failed while it carried the job out".to_owned()),
    };
    if job.cancelled().is_cancelled() {
        // The caller that cancelled it stores its end.
        return drop(held);
    }
    let id = job.id().clone();
    span.in_scope(|| match &outcome {
        Ok(_) => tracing::debug!("the job completed"),
        Err(why) => tracing::debug!(why = one_line(why, LOGGED_CHARS), "the job failed"),
    });
    let ended = blocking(move || {
        // Its spending is recorded before its end is published.
        ingress.ledger().flush();
        let ended = match outcome {
            Ok(text) => job.complete(text.as_deref()),
            Err(reason) => job.fail(&reason),
        };
        match ended {
            // Another host has ended the job, or carries it out.
            Err(StoreError::Lost) => Ok(()),
            ended => Ok(ended.map(|_| ())?),
        }
    });
    if let Err(e) = ended.instrument(tracing::debug_span!(parent: &span, "end-job")).await {
        tracing::error!(job = %id, "the end of the job could not be stored: {}", e.message);
    }
    drop(held);
}

/// The reason that a job has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A caller cancelled the job, and stored its end.
    #[error("the job was cancelled")]
    Cancelled,
    /// The job failed. The text is the reason for `meta.json`.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for RunError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<CallError> for RunError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Cancelled => Self::Cancelled,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// A job's final text, if it has one besides the submitted result; or the reason that it has none.
type Outcome = Result<Option<String>, RunError>;

/// The tools on a job, and the tools of its sessions, which have further ones in a commission (REQ-WKR-10).
async fn tools(
    context: &HostContext,
    attempt: Option<&Attempt>,
    job: &Arc<RunningJob>,
    memory: ScopedMemory,
    grants: &Arc<Grants>,
) -> Result<(Arc<JobTools>, Arc<dyn Tools>), String> {
    let tools = JobTools::new(job.clone(), memory).granted(grants);
    let (Some(attempt), Some(hall)) = (attempt, &context.hall) else {
        let tools = Arc::new(tools);
        return Ok((tools.clone(), tools));
    };
    let tools = hall.tools(attempt, tools, grants, context.limits.clone()).await.map_err(|e| e.to_string())?;
    Ok((tools.job_tools().clone(), Arc::new(tools)))
}

/// A job under way.
struct Work {
    data: Arc<MemberData>,
    context: HostContext,
    job: Arc<RunningJob>,
    tools: Arc<JobTools>,
    /// The tools of its sessions.
    of_sessions: Arc<dyn Tools>,
    /// The manager's tools, for the manager's sessions and component.
    manager: Option<Arc<dyn Tools>>,
    grants: Arc<Grants>,
    reach: Reach,
    granted_tools: Vec<String>,
    /// The token that its spending counts for, if there is one.
    token: Option<String>,
}

/// A job whose work begins.
pub(crate) struct Opened {
    /// The member of the job.
    pub(crate) data: Arc<MemberData>,
    /// The host, as the job finds it.
    pub(crate) context: HostContext,
    /// The attempt at a commission or the meeting, if it is one.
    pub(crate) attempt: Option<Attempt>,
    /// The job.
    pub(crate) job: Arc<RunningJob>,
    /// The grants of its member.
    pub(crate) grants: Arc<Grants>,
    /// The built-in tools that its sessions can be given.
    pub(crate) granted_tools: Vec<String>,
}

impl Opened {
    /// The work, with the read roots, the web and the memories that are open already, if they are.
    ///
    /// # Errors
    ///
    /// Returns an error when the job's memories or its worktree cannot be read.
    async fn work(self, granted: Option<(Reach, ScopedMemory)>) -> Result<Work, String> {
        let (reach, memory) = match granted {
            Some(granted) => granted,
            None => (self.reach()?, self.memory().await?),
        };
        let Self { data, context, attempt, job, grants, granted_tools } = self;
        let attempt = attempt.as_ref();
        let (tools, of_sessions) = tools(&context, attempt, &job, memory, &grants).await?;
        let manager = context.manager(job.id(), attempt, &grants);
        let token = attempt.map_or_else(|| job.token(), |attempt| attempt.token.clone());
        Ok(Work { data, context, job, tools, of_sessions, manager, grants, reach, granted_tools, token })
    }

    /// The resources that the job reaches. It blocks for a moment.
    fn reach(&self) -> Result<Reach, String> {
        let attachments = self.data.attachments(self.job.id());
        self.context.reach(&self.data.key, self.attempt.as_ref(), attachments.as_deref(), &self.grants)
    }

    async fn memory(&self) -> Result<ScopedMemory, String> {
        let (grants, data, attempt) = (self.grants.clone(), self.data.clone(), self.attempt.clone());
        let context = self.context.clone();
        let memory = blocking(move || {
            let memory = context.memory(&data.key, data.memory.clone(), attempt.as_ref(), &grants);
            memory.map_err(RpcError::internal)
        });
        memory.await.map_err(|e| e.message)
    }
}

impl Work {
    /// Runs the session that the component planned. A resumed session has its place already.
    async fn session(
        self,
        agent: Runtime,
        plan: SessionPlan,
        ceiling: Bounds,
        toolboxes: Arc<dyn Tools>,
        place: Option<Place>,
    ) -> Outcome {
        let (history, account, seconds) = if place.is_some() { self.history().await? } else { Default::default() };
        if let Some(ended) = ended_before(&history) {
            return ended;
        }
        let (slot, permit) = match place {
            Some(place) => place,
            None => {
                let slot = self.context.resources.runtimes.get(agent)?;
                let permit = match slot.queue.try_acquire(&self.data.key, 1) {
                    Some(permit) => permit,
                    None => {
                        if self.context.cluster.is_some() {
                            self.wait_anywhere().await?;
                        }
                        permit(&slot, &self.job, agent, &self.data.key).await?
                    }
                };
                (slot, permit)
            }
        };
        let end = Box::pin(self.run_session(agent, plan, ceiling, toolboxes, &slot, (history, account, seconds))).await;
        drop(permit);
        end
    }

    /// Lets the job wait for the first host that has a place. It ends here then, as when it is cancelled.
    ///
    /// # Errors
    ///
    /// Returns `Cancelled` when another host can take the job now.
    async fn wait_anywhere(&self) -> Result<(), RunError> {
        let (store, id) = (self.data.store.clone(), self.job.id().clone());
        match blocking(move || Ok(store.release(&id, "the host has no place for its session")?)).await {
            Ok(()) => Err(RunError::Cancelled),
            Err(e) => {
                tracing::warn!(job = %self.job.id(), "the job waits for a place at this host: {}", e.message);
                Ok(())
            }
        }
    }

    /// Runs the session in its place, from what it did before its host stopped.
    async fn run_session(
        self,
        agent: Runtime,
        plan: SessionPlan,
        ceiling: Bounds,
        toolboxes: Arc<dyn Tools>,
        slot: &Slot,
        (history, account, seconds): (Vec<Entry>, Account, f64),
    ) -> Outcome {
        let bounds = plan.bounds.min(ceiling);
        let clock = Clock::start(&self, agent, account.clone(), seconds);
        let meter = Meter::for_job(bounds, &self.context.limits, account, seconds, Arc::new(clock.clone()));
        let number = self.job.next_session();
        let (sets, resources) = (self.sets(toolboxes), self.session_resources());
        let session = Session {
            number,
            system_prompt: plan.system_prompt,
            prompt: plan.prompt,
            converses: false,
            conversation_chars: self.context.limits.conversation_chars,
            model: plan.model,
            tools: resources
                .tool_set(number, sets, &plan.tools, self.job.cancelled())
                .map(|tools| Arc::new(tools.with_history(&history)))
                .map_err(|e| e.to_string())?,
            files: resources.readable(&plan.tools),
            meter: meter.clone(),
            cancel: self.job.cancelled().clone(),
            texts: None,
            journal: self.job.clone(),
            history,
        };
        let end = run_session(&*slot.runtime, session).instrument(span(&self.data.key, &self.job)).await;
        clock.show(&meter.account());
        match meter.reason(&end.ending) {
            None => Ok(Some(end.text)),
            Some(reason) => Err(RunError::Failed(reason)),
        }
    }

    /// The entries of the session from before its host stopped, its usage, and its seconds.
    async fn history(&self) -> Result<(Vec<Entry>, Account, f64), String> {
        let job = self.job.clone();
        let lines = blocking(move || {
            job.history().map_err(|e| RpcError::internal(format!("its transcript cannot be read: {e}")))
        });
        let lines = lines.await.map_err(|e| e.message)?;
        let (account, seconds) = (transcript::account(&lines), transcript::seconds(&lines));
        let first = |entry: &Entry| entry.session() == Some(1);
        Ok((lines.into_iter().map(|line| line.entry).filter(first).collect(), account, seconds))
    }

    /// Lets the component carry the job out itself.
    async fn own_run(
        self,
        agent: Runtime,
        plugin: &Arc<Plugin>,
        activation: Arc<Activation>,
        bounds: Bounds,
    ) -> Outcome {
        let (data, limits) = (self.data.clone(), self.context.limits.clone());
        queue(&self.job, agent);
        let permit = plugin.permit(&self.job).await?;
        // Time in the queue does not count.
        let clock = Clock::start(&self, agent, Account::default(), 0.0);
        let meter = Meter::for_run(bounds, &limits, Arc::new(clock.clone()));
        let no_dir = |e: std::io::Error| format!("the job's directory cannot be opened: {}", e.kind());
        let job_dir = data.store.job_dir(self.job.id()).map_err(no_dir)?;
        let (tools, reach) = (self.tools.clone(), self.reach.clone());
        let (hall, manager) = (self.context.view(), self.manager.clone());
        let environment = self.context.resources.runtimes.environment();
        let job_tools = [self.of_sessions.clone()].into_iter().chain(self.manager.clone()).collect();
        let own = OwnSessions::new(self.session_resources(), activation.clone(), job_tools, meter.clone());
        let work = Arc::new(self);
        let sessions: Arc<dyn Sessions> = Arc::new(SessionStarter { work, own, agent, host: Handle::current() });
        let scope = RunScope {
            tools: tools.clone(),
            artifacts_dir: job_dir.open_dir("artifacts").map_err(no_dir)?,
            job_dir,
            files: reach.files,
            web: reach.own_web,
            environment,
            host: Handle::current(),
            hall,
            manager,
            sessions: Some(sessions),
            seconds: meter.bounds().deadline_seconds.unwrap_or(u32::MAX),
        };
        let outcome = plugin.run(permit, activation, scope).await;
        clock.show(&meter.account());
        if let Some(text) = returned(outcome?)? {
            let submitted = blocking(move || Ok(tools.job().submit_result(&text, None))).await;
            submitted.map_err(|e| e.message)?.map_err(|e| e.to_string())?;
        }
        Ok(None)
    }

    /// The resources of the job's sessions.
    fn session_resources(&self) -> SessionResources {
        SessionResources {
            job: self.job.clone(),
            grants: self.grants.clone(),
            limits: self.context.limits.clone(),
            granted_tools: self.granted_tools.clone(),
            broker: self.reach.broker.clone(),
            web: self.reach.web.clone(),
            files: self.reach.session_files.clone(),
        }
    }

    /// The whole sets of tools of a session that the host runs.
    fn sets(&self, toolboxes: Arc<dyn Tools>) -> impl Iterator<Item = Arc<dyn Tools>> + use<> {
        [self.of_sessions.clone()].into_iter().chain(self.manager.clone()).chain([toolboxes])
    }
}

/// The outcome of a session that had ended already when its host stopped.
fn ended_before(history: &[Entry]) -> Option<Outcome> {
    history.iter().rev().find_map(|entry| match entry {
        Entry::End { ending, text, .. } if ending == SUCCESS => Some(Ok(Some(text.clone()))),
        Entry::End { ending, .. } => Some(Err(RunError::Failed(ending.clone()))),
        _ => None,
    })
}

/// The span of the log lines of a job's sessions.
fn span(member: &MemberKey, job: &RunningJob) -> Span {
    tracing::warn_span!(
        "session",
        %member,
        job = %job.id(),
        otel.name = %format_args!("invoke_agent {member}"),
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = %member,
    )
}

/// Runs a session until it ends, is cancelled, or is out of time; the transcript records its beginning and its end.
pub async fn run_session(runtime: &dyn AgentRuntime, session: Session) -> SessionEnd {
    let (meter, journal) = (session.meter.clone(), session.journal.clone());
    let number = session.number;
    journal.write(&if session.history.is_empty() {
        Entry::Session {
            session: number,
            agent: runtime.name().to_owned(),
            model: session.model.clone(),
            system_prompt: session.system_prompt.clone(),
            prompt: session.prompt.clone(),
            tools: session.tools.definitions().iter().map(|tool| tool.name.clone()).collect(),
        }
    } else {
        Entry::Resumed { session: number }
    });
    let (began, name) = (Instant::now(), runtime.name());
    let end = match journal.before_turn().await {
        Ok(()) => run_in_time(runtime, session).await,
        Err(_) => Ending::Interrupted.into(),
    };
    record::session_ended(name, end.ending.kind(), began.elapsed());
    let ending = meter.reason(&end.ending).unwrap_or_else(|| SUCCESS.to_owned());
    journal.write(&Entry::End { session: number, ending, text: end.text.clone(), usage: meter.account().usage });
    end
}

/// Runs a session until it ends, is cancelled, or is out of time.
async fn run_in_time(runtime: &dyn AgentRuntime, session: Session) -> SessionEnd {
    let (cancel, meter) = (session.cancel.clone(), session.meter.clone());
    let late = async {
        // A runtime should end by itself in time and report its usage; one that does not is dropped.
        let ending = tokio::select! {
            () = cancel.cancelled() => Ending::Interrupted,
            () = tokio::time::sleep_until(meter.deadline().into()) => Ending::Deadline,
        };
        tokio::time::sleep(GRACE).await;
        ending
    };
    tokio::select! {
        end = runtime.run(session) => end,
        ending = late => ending.into(),
    }
}

/// Shows in the job's status the usage of its sessions and its duration, and counts their spending.
#[derive(Clone)]
struct Clock {
    job: Arc<RunningJob>,
    member: MemberKey,
    agent: Runtime,
    begun: Instant,
    /// The seconds for which it ran before its host stopped.
    before: f64,
    ingress: Arc<Ingress>,
    token: Option<String>,
    /// US dollars that were counted so far.
    counted: Arc<Mutex<f64>>,
}

impl Clock {
    fn start(work: &Work, agent: Runtime, account: Account, before: f64) -> Self {
        let clock = Self {
            job: work.job.clone(),
            member: work.data.key.clone(),
            agent,
            begun: Instant::now(),
            before,
            ingress: work.context.ingress.clone(),
            token: work.token.clone(),
            counted: Arc::new(Mutex::new(account.usage.known_cost())),
        };
        clock.show(&account);
        clock
    }

    fn show(&self, account: &Account) {
        let Account { usage, models, open } = account.clone();
        {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            let known = usage.known_cost();
            self.ingress.ledger().add(known - *counted, self.token.as_deref());
            *counted = counted.max(known);
        }
        let seconds = self.before + self.begun.elapsed().as_secs_f64();
        // Milliseconds are enough, and short to read.
        let wall_seconds = (seconds * 1000.0).round() / 1000.0;
        let usage = JobUsage { agent: self.agent.to_string(), models, usage, wall_seconds, queued: false };
        self.job.set_usage(usage, open > 0);
    }
}

impl Observer for Clock {
    fn changed(&self, account: &Account) {
        self.show(account);
    }

    fn booked(&self, used: &Usage, model: Option<&str>) {
        record::used(&self.member, model, used);
    }

    fn may_spend(&self) -> Result<Option<f64>, SpendError> {
        may_spend(&self.ingress, self.agent, self.token.as_deref())
    }
}

/// Shows that the job is queued, and its earlier usage.
fn queue(job: &RunningJob, agent: Runtime) {
    let used = job.snapshot().usage.unwrap_or_else(|| JobUsage {
        agent: agent.to_string(),
        models: Vec::new(),
        usage: Usage::default(),
        wall_seconds: 0.0,
        queued: true,
    });
    job.set_usage(JobUsage { queued: true, ..used }, false);
}

/// A runtime, and a permit to run a session there.
type Place = (Slot, Permit<MemberKey>);

/// Waits for a place for the session of a job that goes on. One that was interrupted waits for its turn before, and is on
/// trial then.
async fn resumed(
    context: &HostContext,
    member: &MemberKey,
    job: &Arc<RunningJob>,
    agent: Runtime,
) -> Result<Place, RunError> {
    let (slot, resumptions) = (context.resources.runtimes.get(agent)?, &context.resumptions);
    loop {
        queue(job, agent);
        let waited = async {
            let turn = match job.was_interrupted() {
                false => None,
                true => tokio::select! {
                    turn = resumptions.turn(job) => Some(turn),
                    () = job.cancelled().cancelled() => return Err(RunError::Cancelled),
                },
            };
            let reserved = context.cluster.as_ref().and_then(|cluster| cluster.reserved(member, job.id()));
            match reserved {
                Some(permit) => Ok((turn, permit)),
                None => Ok((turn, permit(&slot, job, agent, member).await?)),
            }
        };
        let (turn, permit) = tokio::select! {
            waited = waited => waited?,
            () = job.given_back() => return Err(RunError::Cancelled),
        };
        let Some(turn) = turn else { return Ok((slot, permit)) };
        if let Some(trial) = resumptions.trial(turn) {
            trial.begin(job, Duration::from_secs(context.limits.resume_trial_seconds.into())).await;
            return Ok((slot, permit));
        }
    }
}

/// Waits for a permit to run a session. The job's status shows that it waits.
async fn permit(
    slot: &Slot,
    job: &Arc<RunningJob>,
    agent: Runtime,
    member: &MemberKey,
) -> Result<Permit<MemberKey>, RunError> {
    if let Some(permit) = slot.queue.try_acquire(member, 1) {
        return Ok(permit);
    }
    queue(job, agent);
    tokio::select! {
        permit = slot.queue.acquire(member, 1) => Ok(permit),
        () = job.cancelled().cancelled() => Err(RunError::Cancelled),
    }
}

/// Starts the sessions of a component on the job's runtime.
struct SessionStarter {
    work: Arc<Work>,
    own: OwnSessions,
    agent: Runtime,
    /// Sessions belong to the host's threads, not to those of the component that asks for them.
    host: Handle,
}

#[async_trait]
impl Sessions for SessionStarter {
    async fn start(&self, query: Query) -> Result<QueryHandle, ToolError> {
        let work = &self.work;
        self.own.check_tools(&query)?;
        let (resources, files) = (work.context.resources.clone(), work.reach.session_files.clone());
        let (model, agent) = (query.model.clone(), self.agent);
        let ready = self.host.spawn_blocking(move || {
            let wanted = Wanted { model: model.as_deref(), files: files.as_deref(), ..Wanted::default() };
            resources.runtimes.ready(agent, &wanted)
        });
        let slot = ready.await.map_err(TaskError::from)?.map_err(ToolError::Unavailable)?;
        let one_more = self.own.permit().await?;
        let OwnSession { session, bounds, texts } = self.own.session(query)?;
        let (interrupt, stop) = (session.cancel.clone(), session.cancel.clone());
        let member = work.data.key.clone();
        let span = span(&work.data.key, &work.job);
        let session = async move {
            let permit = tokio::select! {
                permit = slot.queue.acquire(&member, 1) => permit,
                () = stop.cancelled() => return (Ending::Interrupted.into(), Usage::default()),
            };
            // The time begins with the permit.
            let meter = session.meter.for_session(bounds);
            let end = run_session(&*slot.runtime, Session { meter: meter.clone(), ..session }).instrument(span).await;
            drop((permit, one_more));
            (end, meter.account().usage)
        };
        let (handle, work) = QueryHandle::new(session, texts, interrupt);
        self.host.spawn(work);
        Ok(handle)
    }
}
