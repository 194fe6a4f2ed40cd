//! Carrying a job out, from its plan to its end.

use std::sync::Arc;

use async_trait::async_trait;
use guild_agent::{Belt, Journal};
use guild_contract::Bounds;
use guild_jobs::{
    JobTools, RunningJob,
    activation::{Activation, Plan, SessionPlan},
    files::Files,
    session::{
        AgentRuntime, Ending, Meter, Query, QueryEvent, QueryHandle, Session, SessionEnd, Sessions, Usage,
        session_limits,
    },
    tools::{ToolError, Tools},
};
use guild_sandbox::{Plugin, RunScope};
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::sync::CancellationToken;

use crate::member::{Member, blocking};

/// Carries a job out and stores its end. Whatever happens on the way, the job does not stay `running`. What it `held`
/// meanwhile is dropped at the end.
pub(crate) async fn carry_out(
    member: Arc<Member>,
    plugin: Arc<Plugin>,
    job: Arc<RunningJob>,
    activation: Arc<Activation>,
    plan: Plan,
    held: impl Send,
) {
    let tools = Arc::new(JobTools::new(job.clone(), member.memory.clone()));
    let work = Work { member, job: job.clone(), tools, granted_tools: activation.granted_tools.clone() };
    let ceiling = activation.bounds;
    let outcome = tokio::spawn(async move {
        match plan {
            Plan::Session(plan) => {
                drop(activation);
                work.session(plan, ceiling).await
            }
            Plan::OwnRun(bounds) => work.own_run(&plugin, activation, bounds.min(ceiling)).await,
        }
    });
    let outcome = outcome.await.unwrap_or_else(|_| Err("the host failed while it carried the job out".to_owned()));
    let id = job.id().clone();
    let ended = blocking(move || {
        Ok(match outcome {
            Ok(text) => job.complete(text.as_deref())?,
            Err(reason) => job.fail(&reason)?,
        })
    });
    if let Err(e) = ended.await {
        tracing::error!(job = %id, "the end of the job could not be stored: {}", e.message);
    }
    drop(held);
}

/// A job's final text, where it has one beside what was submitted; or why it failed.
type Outcome = Result<Option<String>, String>;

/// A job under way.
struct Work {
    member: Arc<Member>,
    job: Arc<RunningJob>,
    tools: Arc<JobTools>,
    granted_tools: Vec<String>,
}

impl Work {
    /// The host runs the session that the component planned.
    async fn session(self, plan: SessionPlan, ceiling: Bounds) -> Outcome {
        let meter = Meter::for_job(plan.bounds.min(ceiling), &self.member.means.limits);
        let means = &self.member.means;
        let sets = [self.tools.clone() as Arc<dyn Tools>];
        let session = Session {
            system_prompt: plan.system_prompt,
            prompt: plan.prompt,
            model: plan.model,
            tools: belt(sets, means.files.as_ref(), &self.granted_tools, &plan.tools, &self.job),
            files: readable(means.files.as_ref(), &plan.tools),
            meter: meter.clone(),
            cancel: self.job.cancelled().clone(),
            texts: None,
        };
        let end = run(&*means.runtime, session).await;
        match end.ending.reason(meter.bounds()) {
            None => Ok(Some(end.text)),
            Some(reason) => Err(reason),
        }
    }

    /// The component carries the job out itself.
    async fn own_run(self, plugin: &Arc<Plugin>, activation: Arc<Activation>, bounds: Bounds) -> Outcome {
        let member = self.member.clone();
        let place = match plugin.place(&self.job).await {
            Ok(place) => place,
            Err(e) => return Err(e.to_string()),
        };
        // The time in which it waited for its place is not its own.
        let meter = Meter::for_run(bounds, &member.means.limits);
        let sessions: Arc<dyn Sessions> = Arc::new(OwnSessions {
            member: member.clone(),
            job: self.job.clone(),
            tools: self.tools.clone(),
            granted_tools: self.granted_tools,
            meter: meter.clone(),
            host: Handle::current(),
        });
        let no_dir = |e: std::io::Error| format!("the job's directory cannot be opened: {}", e.kind());
        let job_dir = member.store.job_dir(self.job.id()).map_err(no_dir)?;
        let scope = RunScope {
            tools: self.tools.clone(),
            artifacts_dir: job_dir.open_dir("artifacts").map_err(no_dir)?,
            job_dir,
            memory: member.memory.clone(),
            files: member.means.files.clone(),
            sessions: Some(sessions),
            seconds: meter.bounds().deadline_seconds.unwrap_or(u32::MAX),
        };
        match plugin.run(place, activation, scope).await {
            // Returning a text submits it; a plugin that submitted before and returns nothing has said it already.
            Ok(Ok(text)) if text.trim().is_empty() => Ok(None),
            Ok(Ok(text)) => {
                let tools = self.tools;
                let submitted = blocking(move || Ok(tools.submit_result(&text))).await;
                submitted.map_err(|e| e.message)?.map(|()| None).map_err(|e| e.to_string())
            }
            Ok(Err(text)) if text.trim().is_empty() => Err("the plugin gave up without a reason".to_owned()),
            Ok(Err(text)) => Err(text),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Runs a session until it ends, is cancelled, or is out of time.
async fn run(runtime: &dyn AgentRuntime, session: Session) -> SessionEnd {
    let (cancel, deadline) = (session.cancel.clone(), session.meter.deadline());
    let meter = session.meter.clone();
    let ended = |ending| SessionEnd {
        ending,
        text: String::new(),
        usage: Usage { turns: meter.turns(), ..Default::default() },
    };
    tokio::select! {
        end = runtime.run(session) => end,
        () = cancel.cancelled() => ended(Ending::Interrupted),
        () = tokio::time::sleep_until(deadline.into()) => ended(Ending::Deadline),
    }
}

/// All that a session may call: whole sets of tools, and the read-only ones that were granted and asked for. The
/// transcript begins with their names.
fn belt(
    sets: impl IntoIterator<Item = Arc<dyn Tools>>,
    files: Option<&Arc<dyn Files>>,
    granted: &[String],
    asked: &[String],
    job: &Arc<RunningJob>,
) -> Arc<dyn Tools> {
    let journal = Arc::new(Transcript(job.clone()));
    let belt = Belt::new(sets).with_read_only(files, granted, asked).with_journal(journal);
    let names: Vec<String> = belt.definitions().into_iter().map(|tool| tool.name).collect();
    job.transcript(&json!({"type": "session", "tools": names}));
    Arc::new(belt)
}

/// The read roots, for a session that has all three tools which read them.
fn readable(files: Option<&Arc<dyn Files>>, tools: &[String]) -> Option<Arc<dyn Files>> {
    let all = ["Read", "Grep", "Glob"].iter().all(|name| tools.iter().any(|tool| tool == name));
    files.filter(|_| all).cloned()
}

/// The job's `transcript.jsonl`.
struct Transcript(Arc<RunningJob>);

impl Journal for Transcript {
    fn entry(&self, value: &Value) {
        self.0.transcript(value);
    }
}

/// Sessions that a component starts while it carries its job out, on the job's account.
struct OwnSessions {
    member: Arc<Member>,
    job: Arc<RunningJob>,
    tools: Arc<JobTools>,
    granted_tools: Vec<String>,
    meter: Arc<Meter>,
    /// Sessions belong to the host's threads, not to those of the component that asks for them.
    host: Handle,
}

/// Texts of a session that wait for a component that does not read; then they are dropped.
const EVENTS: usize = 64;

#[async_trait]
impl Sessions for OwnSessions {
    async fn start(&self, query: Query) -> Result<QueryHandle, ToolError> {
        if let Some(tool) = query.tools.iter().find(|tool| !self.granted_tools.contains(tool)) {
            return Err(ToolError::NotGranted(format!(
                "the tool {tool:?}; add it to `component.tools` in guild-member.json"
            )));
        }
        let means = &self.member.means;
        let job_tools = query.job_tools.then(|| self.tools.clone() as Arc<dyn Tools>);
        let sets = job_tools.into_iter().chain([query.own_tools]);
        let interrupt = self.job.cancelled().child_token();
        let (texts, mut heard) = mpsc::channel(EVENTS);
        let session = Session {
            system_prompt: query.system_prompt,
            prompt: query.prompt,
            model: query.model,
            tools: belt(sets, means.files.as_ref(), &self.granted_tools, &query.tools, &self.job),
            files: readable(means.files.as_ref(), &query.tools),
            meter: self.meter.for_session(query.bounds.min(session_limits(&means.limits))),
            cancel: interrupt.clone(),
            texts: Some(texts),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        let runtime = means.runtime.clone();
        let gone = CancellationToken::new();
        let stop = interrupt.clone();
        let dropped = gone.clone();
        self.host.spawn(async move {
            let forward = async {
                while let Some(text) = heard.recv().await {
                    if sender.send(QueryEvent::Text(text)).await.is_err() {
                        stop.cancel();
                    }
                }
            };
            let session = run(&*runtime, session);
            let both = async { tokio::join!(session, forward).0 };
            tokio::select! {
                end = both => drop(sender.send(QueryEvent::Finished(end)).await),
                () = dropped.cancelled() => {}
            }
        });
        Ok(QueryHandle { events, interrupt, on_drop: gone.drop_guard() })
    }
}
