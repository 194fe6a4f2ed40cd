//! Carries out the job of a scenario: the session that the host runs, or the component's own `run` with its sessions.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use guild_contract::Bounds;
use guild_jobs::{JobStore, JobTools, RunningJob};
use guild_roster::{
    jobs::own_sessions::{OwnSession, OwnSessions, SessionResources, returned},
    run_session,
    trial::Trial,
};
use guild_sandbox::{CallError, Environment, RunScope};
use guild_scripted::{Scripted, SessionScript};
use guild_session::{
    activation::{Activation, Plan, SessionPlan},
    meter::{Account, Meter, Observer},
    session::{Query, QueryHandle, Session, Sessions},
    tools::{ToolError, Tools},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    task::{JoinSet, spawn_blocking},
};

use crate::{
    observed::{HostCalls, Observed},
    surroundings::{Surroundings, failed},
};

/// A job under way.
pub(crate) struct Work<'a> {
    pub(crate) tools: Arc<JobTools>,
    pub(crate) job: Arc<RunningJob>,
    pub(crate) trial: &'a Trial,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) environment: Environment,
    /// The scripts of the sessions.
    pub(crate) sessions: Arc<[SessionScript]>,
}

/// Observes no account: a test shows no usage while it runs.
struct Unobserved;

impl Observer for Unobserved {
    fn changed(&self, _account: &Account) {}
}

impl Work<'_> {
    /// Carries the job out, and stores its end.
    ///
    /// # Errors
    ///
    /// Returns an error of the harness. The failure of the job is no error.
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

    fn runtime(&self) -> Scripted {
        Scripted::new(self.sessions.clone())
    }

    /// The resources of the job's sessions.
    fn session_resources(&self, granted_tools: &[String]) -> SessionResources {
        SessionResources {
            job: self.job.clone(),
            grants: self.trial.grants.clone(),
            limits: self.trial.limits.clone(),
            granted_tools: granted_tools.to_vec(),
            broker: self.surroundings.broker.clone(),
            web: self.surroundings.web.clone(),
            files: self.surroundings.files.clone(),
        }
    }

    /// Runs the session that the component planned.
    async fn session(self, plan: SessionPlan, activation: &Activation) -> Result<Option<String>, String> {
        let (runtime, resources) = (self.runtime(), self.session_resources(&activation.granted_tools));
        let bounds = plan.bounds.min(activation.bounds);
        let meter = Meter::for_job(bounds, &resources.limits, Account::default(), 0.0, Arc::new(Unobserved));
        let toolbox = self.surroundings.toolbox.only(&plan.toolbox_tools);
        let number = self.job.next_session();
        let cancel = self.job.cancelled().clone();
        let sets = [self.tools.clone() as Arc<dyn Tools>, toolbox];
        let tools = resources.tool_set(number, sets, &plan.tools, &cancel).map_err(|e| e.to_string())?;
        let session = Session {
            number,
            system_prompt: plan.system_prompt,
            prompt: plan.prompt,
            converses: false,
            conversation_chars: resources.limits.conversation_chars,
            model: plan.model,
            tools: Arc::new(tools),
            files: resources.readable(&plan.tools),
            meter: meter.clone(),
            cancel,
            texts: None,
            journal: self.job.clone(),
            history: Vec::new(),
        };
        let end = run_session(&runtime, session).await;
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
        let resources = self.session_resources(&activation.granted_tools);
        let sessions = Arc::new(SessionStarter {
            own: OwnSessions::new(
                resources,
                activation.clone(),
                vec![self.tools.clone() as Arc<dyn Tools>],
                meter.clone(),
            ),
            runtime: Arc::new(self.runtime()),
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
        let answer = match outcome {
            Ok(answer) => answer,
            Err(CallError::Cancelled) => Err("the job was cancelled".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Ok(match returned(answer) {
            Ok(Some(text)) => {
                let job = self.job.clone();
                let submitted = spawn_blocking(move || job.submit_result(&text, None)).await.map_err(failed)?;
                submitted.map(|()| None).map_err(|e| e.to_string())
            }
            other => other,
        })
    }
}

/// Starts the sessions of a component, and records that it did.
struct SessionStarter {
    own: OwnSessions,
    runtime: Arc<Scripted>,
    host: Handle,
    calls: Arc<HostCalls>,
    running: Mutex<JoinSet<()>>,
}

impl SessionStarter {
    /// Waits until all sessions have ended, so that the transcript has their ends.
    async fn ended(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        running.join_all().await;
    }

    async fn start_session(&self, query: Query) -> Result<QueryHandle, ToolError> {
        self.own.check_tools(&query)?;
        let permit = self.own.permit().await?;
        let OwnSession { session, bounds, texts } = self.own.session(query)?;
        let (runtime, interrupt) = (self.runtime.clone(), session.cancel.clone());
        let meter = session.meter.for_session(bounds);
        let session = async move {
            let end = run_session(&*runtime, Session { meter: meter.clone(), ..session }).await;
            drop(permit);
            (end, meter.account().usage)
        };
        let (handle, work) = QueryHandle::new(session, texts, interrupt);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).spawn_on(work, &self.host);
        Ok(handle)
    }
}

#[async_trait]
impl Sessions for SessionStarter {
    async fn start(&self, query: Query) -> Result<QueryHandle, ToolError> {
        let own_tools: Vec<String> = query.own_tools.definitions().iter().map(|tool| tool.name.clone()).collect();
        let input = json!({
            "prompt": query.prompt, "systemPrompt": query.system_prompt, "tools": query.tools, "jobTools": query.job_tools,
            "ownTools": own_tools, "model": query.model, "bounds": query.bounds,
        });
        let answer = self.start_session(query).await;
        self.calls.record("agent.query", input, &answer, |_| Value::Null);
        answer
    }
}
