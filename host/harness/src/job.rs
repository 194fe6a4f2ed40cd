//! Carries out the job of a scenario: the session that the host runs, or the component's own `run` with its sessions.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use guild_agent::ToolSet;
use guild_contract::{Bounds, Grants, Limits, manifest::FILE_TOOLS};
use guild_jobs::{JobStore, JobTools, RunningJob};
use guild_roster::{discovery::granted::no_tool, run_session, trial::Trial, used_up};
use guild_sandbox::{CallError, Environment, RunScope};
use guild_scripted::{Scripted, SessionScript};
use guild_session::{
    activation::{Activation, Plan, SessionPlan},
    files::Files,
    meter::{Account, Meter, Observer, session_limits},
    session::{EVENTS, Query, QueryHandle, Session, Sessions},
    tools::{ToolError, Tools},
    web::Web,
};
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc},
    task::{JoinSet, spawn_blocking},
};
use tokio_util::sync::CancellationToken;

use crate::{
    observed::{HostCalls, Observed},
    surroundings::{Surroundings, failed},
};

/// A job that is carried out.
pub(crate) struct Work<'a> {
    pub(crate) tools: Arc<JobTools>,
    pub(crate) job: Arc<RunningJob>,
    pub(crate) trial: &'a Trial,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) environment: Environment,
    pub(crate) sessions: Arc<[SessionScript]>,
}

/// An account that nobody is told of.
struct Unobserved;

impl Observer for Unobserved {
    fn changed(&self, _account: &Account) {}
}

impl Work<'_> {
    /// Carries the job out, and stores its end.
    ///
    /// # Errors
    ///
    /// Returns an error of the harness; a job that fails is none.
    pub(crate) async fn carry_out(
        self,
        store: &Arc<JobStore>,
        plan: Plan,
        activation: Arc<Activation>,
    ) -> Result<(), String> {
        let job = self.job.clone();
        let outcome = match plan {
            Plan::Session(plan) | Plan::Conversation(plan) => self.session(plan, &activation).await,
            Plan::OwnRun(bounds) => self.own_run(store, bounds, activation).await?,
        };
        let ended = spawn_blocking(move || match outcome {
            Ok(text) => job.complete(text.as_deref()),
            Err(reason) => job.fail(&reason),
        });
        ended.await.map_err(failed)?.map(drop).map_err(failed)
    }

    fn parts(&self, granted: &[String]) -> SessionParts {
        SessionParts {
            runtime: Arc::new(Scripted::new(self.sessions.clone())),
            job: self.job.clone(),
            grants: self.trial.grants.clone(),
            limits: self.trial.limits.clone(),
            of_sessions: self.tools.clone(),
            broker: self.surroundings.broker.clone(),
            files: self.surroundings.files.clone(),
            web: self.surroundings.web.clone(),
            granted: granted.to_vec(),
        }
    }

    /// Runs the session that the component planned.
    async fn session(self, plan: SessionPlan, activation: &Activation) -> Result<Option<String>, String> {
        let parts = self.parts(&activation.granted_tools);
        let bounds = plan.bounds.min(activation.bounds);
        let meter = Meter::for_job(bounds, &parts.limits, Account::default(), 0.0, Arc::new(Unobserved));
        let toolbox = self.surroundings.toolbox.only(&plan.toolbox_tools);
        let number = self.job.next_session();
        let cancel = self.job.cancelled().clone();
        let sets = [self.tools.clone() as Arc<dyn Tools>, toolbox];
        let tools = parts.tool_set(number, sets, &plan.tools, &cancel).map_err(|e| e.to_string())?;
        let session = Session {
            number,
            system_prompt: plan.system_prompt,
            prompt: plan.prompt,
            converses: false,
            conversation_chars: parts.limits.conversation_chars,
            model: plan.model,
            tools: Arc::new(tools),
            files: parts.readable(&plan.tools),
            meter: meter.clone(),
            cancel,
            texts: None,
            journal: self.job.clone(),
            history: Vec::new(),
        };
        let end = run_session(&*parts.runtime, session).await;
        match meter.reason(&end.ending) {
            None => Ok(Some(end.text)),
            Some(reason) => Err(reason),
        }
    }

    /// Lets the component carry the job out itself.
    async fn own_run(
        self,
        store: &Arc<JobStore>,
        bounds: Bounds,
        activation: Arc<Activation>,
    ) -> Result<Result<Option<String>, String>, String> {
        let (plugin, limits) = (&self.trial.loaded.plugin, &self.trial.limits);
        let permit = plugin.permit(&self.job).await.map_err(failed)?;
        let meter = Meter::for_run(bounds.min(activation.bounds), limits, Arc::new(Unobserved));
        let job_dir = store.job_dir(self.job.id()).map_err(failed)?;
        let sessions = Arc::new(OwnSessions {
            parts: self.parts(&activation.granted_tools),
            meter: meter.clone(),
            alive: Arc::new(Semaphore::new(limits.job_sessions as usize)),
            host: Handle::current(),
            calls: self.surroundings.calls.clone(),
            running: Mutex::default(),
        });
        let (calls, inner) = (self.surroundings.calls.clone(), self.tools.reporting().clone());
        let tools = (*self.tools).clone().reporting_to(Arc::new(Observed { calls, inner }));
        let scope = RunScope {
            tools: Arc::new(tools),
            artifacts_dir: job_dir.open_dir("artifacts").map_err(failed)?,
            job_dir,
            files: self.surroundings.own_files(self.trial),
            web: self.surroundings.own_web.clone(),
            environment: self.environment,
            host: Handle::current(),
            hall: None,
            manager: None,
            sessions: Some(sessions.clone()),
            seconds: meter.bounds().deadline_seconds.unwrap_or(u32::MAX),
        };
        let outcome = plugin.run(permit, activation, scope).await;
        sessions.ended().await;
        Ok(match outcome {
            // Returning a text submits it. A plugin that submitted before may return an empty text.
            Ok(Ok(text)) if text.trim().is_empty() => Ok(None),
            Ok(Ok(text)) => {
                let job = self.job.clone();
                let submitted = spawn_blocking(move || job.submit_result(&text, None)).await.map_err(failed)?;
                submitted.map(|()| None).map_err(|e| e.to_string())
            }
            Ok(Err(text)) if text.trim().is_empty() => Err("the plugin gave up without a reason".to_owned()),
            Ok(Err(text)) => Err(text),
            Err(CallError::Cancelled) => Err("the job was cancelled".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }
}

/// What all sessions of a job have.
struct SessionParts {
    runtime: Arc<Scripted>,
    job: Arc<RunningJob>,
    grants: Arc<Grants>,
    limits: Arc<Limits>,
    /// The internal tools.
    of_sessions: Arc<dyn Tools>,
    broker: guild_agent::Broker,
    files: Option<Arc<dyn Files>>,
    web: Web,
    /// The built-in tools that they can be given.
    granted: Vec<String>,
}

impl SessionParts {
    fn tool_set(
        &self,
        number: u32,
        sets: impl IntoIterator<Item = Arc<dyn Tools>>,
        asked: &[String],
        cancel: &CancellationToken,
    ) -> Result<ToolSet, ToolError> {
        Ok(ToolSet::new(number, sets)?
            .with_read_only(&self.broker, &self.web, &self.granted, asked)
            .with_journal(self.job.clone())
            .with_result_bytes(self.limits.tool_result_bytes)
            .with_cancel(cancel.clone()))
    }

    /// The read roots, for a session with all three tools that read them.
    fn readable(&self, asked: &[String]) -> Option<Arc<dyn Files>> {
        let has = |name: &&str| [asked, &self.granted].iter().all(|tools| tools.iter().any(|tool| tool == name));
        self.files.clone().filter(|_| FILE_TOOLS.iter().all(has))
    }
}

/// Sessions that a component starts while it carries its job out, on the job's account.
struct OwnSessions {
    parts: SessionParts,
    meter: Arc<Meter>,
    /// The sessions that the component may have at a time.
    alive: Arc<Semaphore>,
    host: Handle,
    calls: Arc<HostCalls>,
    running: Mutex<JoinSet<()>>,
}

impl OwnSessions {
    /// Waits until all sessions have ended, so that the transcript has their ends.
    async fn ended(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        running.join_all().await;
    }
}

#[async_trait]
impl Sessions for OwnSessions {
    async fn start(&self, query: Query) -> Result<QueryHandle, ToolError> {
        let own_tools: Vec<String> = query.own_tools.definitions().iter().map(|tool| tool.name.clone()).collect();
        let input = json!({
            "prompt": query.prompt, "systemPrompt": query.system_prompt, "tools": query.tools, "jobTools": query.job_tools,
            "ownTools": own_tools, "model": query.model, "bounds": query.bounds,
        });
        let answer = self.start_session(query);
        self.calls.note("agent.query", input, &answer, |_| Value::Null);
        answer
    }
}

impl OwnSessions {
    fn start_session(&self, query: Query) -> Result<QueryHandle, ToolError> {
        let parts = &self.parts;
        if let Some(tool) = query.tools.iter().find(|tool| !parts.granted.contains(tool)) {
            return Err(ToolError::NotGranted(no_tool(&parts.grants, tool)));
        }
        if let Some(bound) = used_up(&self.meter.left().map_err(ToolError::Unavailable)?) {
            return Err(ToolError::OverLimit(format!("the job has no {bound} left")));
        }
        let most = parts.limits.job_sessions;
        let turn = self.alive.clone().try_acquire_owned().map_err(|_| {
            ToolError::OverLimit(format!(
                "the job has {most} sessions, as many as limits.job_sessions allows; let one end before another begins"
            ))
        })?;
        let interrupt = parts.job.cancelled().child_token();
        let (texts, heard) = mpsc::channel(EVENTS);
        let number = parts.job.next_session();
        let of_job = query.job_tools.then(|| parts.of_sessions.clone());
        let sets = of_job.into_iter().chain([query.own_tools]);
        let meter = self.meter.for_session(query.bounds.min(session_limits(&parts.limits)));
        let session = Session {
            number,
            system_prompt: query.system_prompt,
            prompt: query.prompt,
            converses: false,
            conversation_chars: parts.limits.conversation_chars,
            model: query.model,
            tools: Arc::new(parts.tool_set(number, sets, &query.tools, &interrupt)?),
            files: parts.readable(&query.tools),
            meter: meter.clone(),
            cancel: interrupt.clone(),
            texts: Some(texts),
            journal: parts.job.clone(),
            history: Vec::new(),
        };
        let runtime = parts.runtime.clone();
        let session = async move {
            let end = run_session(&*runtime, session).await;
            drop(turn);
            (end, meter.account().usage)
        };
        let (handle, work) = QueryHandle::new(session, heard, interrupt);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).spawn_on(work, &self.host);
        Ok(handle)
    }
}
