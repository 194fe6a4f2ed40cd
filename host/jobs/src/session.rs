//! Agent sessions: the trait that every runtime implements, and what a session is given and gives back.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use guild_contract::{Bounds, Limits};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    activation::MemoryNote,
    files::Files,
    tools::{ToolDefinition, ToolError, Tools},
};

/// What runs agent sessions: the built-in extractive runtime, a command line agent, a model provider.
#[async_trait]
pub trait AgentRuntime: Send + Sync {
    /// The name by which it is chosen (`--agent`).
    fn name(&self) -> &'static str;

    /// Whether a session could start, given what there is to read. The error tells the caller of a dispatch
    /// what to set or install; no job exists then.
    fn check(&self, files: Option<&dyn Files>) -> Result<(), String>;

    /// Runs a session to its end. It ends promptly once `session.cancel` is cancelled; the caller may also drop
    /// the future. A failure is an [`Ending`], never a panic.
    async fn run(&self, session: Session) -> SessionEnd;

    /// Condenses memories into one text of at most `max_chars` characters (REQ-WD-26): one turn, no tools.
    async fn condense(&self, memories: Vec<MemoryNote>, max_chars: usize) -> Result<String, String>;
}

/// One session, ready to run.
#[derive(Clone)]
pub struct Session {
    /// Who the agent is and how it works.
    pub system_prompt: String,
    /// What it is asked.
    pub prompt: String,
    /// The model, where one was asked for.
    pub model: Option<String>,
    /// All that it may call; nothing else exists for it.
    pub tools: Arc<dyn Tools>,
    /// The granted read roots, where the session has the tools Read, Grep and Glob.
    pub files: Option<Arc<dyn Files>>,
    /// What it may use.
    pub meter: Arc<Meter>,
    /// Cancelled when the session is to stop.
    pub cancel: CancellationToken,
    /// Where the agent's texts go as they come, if somebody listens. Never waited for.
    pub texts: Option<mpsc::Sender<String>>,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// By itself.
    Success,
    /// Out of turns.
    MaxTurns,
    /// Out of dollars.
    MaxBudget,
    /// Out of time.
    Deadline,
    /// Cancelled.
    Interrupted,
    /// It could not go on; the text says why.
    Error(String),
}

impl Ending {
    /// The reason for `meta.json` where the session did not end by itself.
    pub fn reason(&self, bounds: &Bounds) -> Option<String> {
        match self {
            Self::Success => None,
            Self::MaxTurns => Some(format!("the session reached its limit of {} turns", bounds.max_turns?)),
            Self::MaxBudget => Some(format!("the session reached its budget of {} USD", bounds.max_budget_usd?)),
            Self::Deadline => Some(format!("the session reached its deadline of {} s", bounds.deadline_seconds?)),
            Self::Interrupted => Some("the session was interrupted".to_owned()),
            Self::Error(text) => Some(text.clone()),
        }
    }
}

/// What a session, or all sessions of a job, used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Turns.
    pub turns: u32,
    /// Tokens that were sent.
    pub input_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
    /// US dollars; unknown for a model whose price is not known.
    pub cost_usd: Option<f64>,
}

/// A session's end.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEnd {
    /// How.
    pub ending: Ending,
    /// The final text. It serves as the result only where none was submitted.
    pub text: String,
    /// What it used.
    pub usage: Usage,
}

/// Counts what a session uses, and says when a bound is reached. A session's meter has the job's as parent,
/// so that turns and dollars are summed over all sessions of a job.
#[derive(Debug)]
pub struct Meter {
    bounds: Bounds,
    deadline: Instant,
    turns: AtomicU32,
    dollars: Mutex<f64>,
    parent: Option<Arc<Meter>>,
}

impl Meter {
    /// A job's meter. What the operator allows sessions bounds what is not set; its time begins now.
    pub fn for_job(bounds: Bounds, limits: &Limits) -> Arc<Self> {
        Self::new(bounds.min(session_limits(limits)), None)
    }

    /// The meter of a job that its plugin carries out: its time is that of `run`, not of a session.
    pub fn for_run(bounds: Bounds, limits: &Limits) -> Arc<Self> {
        let own = Bounds { deadline_seconds: Some(limits.run_seconds), ..session_limits(limits) };
        Self::new(bounds.min(own), None)
    }

    /// A meter for one session of a job.
    pub fn for_session(self: &Arc<Self>, bounds: Bounds) -> Arc<Self> {
        Self::new(bounds.min(self.bounds), Some(self.clone()))
    }

    fn new(bounds: Bounds, parent: Option<Arc<Self>>) -> Arc<Self> {
        let seconds = bounds.deadline_seconds.unwrap_or(u32::MAX);
        let own = Instant::now() + Duration::from_secs(seconds.into());
        let deadline = parent.as_ref().map_or(own, |parent| own.min(parent.deadline));
        Arc::new(Self { bounds, deadline, turns: AtomicU32::new(0), dollars: Mutex::new(0.0), parent })
    }

    /// The bounds that hold.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// When the time is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Turns that were taken.
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Dollars that were spent.
    pub fn dollars(&self) -> f64 {
        *self.spent()
    }

    /// Asks for one more turn, before it is taken. The error is the bound that is reached.
    pub fn take_turn(&self) -> Result<(), Ending> {
        if Instant::now() >= self.deadline {
            return Err(Ending::Deadline);
        }
        if self.bounds.max_budget_usd.is_some_and(|max| *self.spent() >= max) {
            return Err(Ending::MaxBudget);
        }
        let max = self.bounds.max_turns.unwrap_or(u32::MAX);
        let taken = self.turns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |turns| {
            (turns < max).then_some(turns.saturating_add(1))
        });
        taken.map_err(|_| Ending::MaxTurns)?;
        let charged = self.parent.as_ref().map_or(Ok(()), |parent| parent.take_turn());
        if charged.is_err() {
            self.turns.fetch_sub(1, Ordering::Relaxed);
        }
        charged
    }

    /// Books dollars that were spent. What is no amount is not booked.
    pub fn spend(&self, usd: f64) {
        if !usd.is_finite() || usd < 0.0 {
            return;
        }
        *self.spent() += usd;
        if let Some(parent) = &self.parent {
            parent.spend(usd);
        }
    }

    fn spent(&self) -> MutexGuard<'_, f64> {
        self.dollars.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the operator allows the sessions of a job.
pub fn session_limits(limits: &Limits) -> Bounds {
    Bounds {
        max_turns: Some(limits.session_turns),
        max_budget_usd: Some(limits.session_budget_usd),
        deadline_seconds: Some(limits.session_seconds),
    }
}

/// What a component asks for when it starts a session of its own (`agent.query`).
pub struct Query {
    /// What the agent is asked.
    pub prompt: String,
    /// Who it is and how it works.
    pub system_prompt: String,
    /// Built-in tools, a subset of those that were granted.
    pub tools: Vec<String>,
    /// Whether the session may call the internal tools on this job.
    pub job_tools: bool,
    /// Tools that the component answers itself: their definitions, and where calls go.
    pub own_tools: Arc<dyn Tools>,
    /// The model, where one is preferred.
    pub model: Option<String>,
    /// The component's own bounds.
    pub bounds: Bounds,
}

/// A session that a component started. Dropping it cancels the session.
pub struct QueryHandle {
    /// The agent's texts, then the end. Bounded: a component that does not read holds its session up.
    pub events: mpsc::Receiver<QueryEvent>,
    /// Ends the session; its end still comes as an event.
    pub interrupt: CancellationToken,
    /// Ends the session with the handle.
    pub on_drop: tokio_util::sync::DropGuard,
}

/// What a component sees of its session, besides calls to its own tools.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryEvent {
    /// A text of the agent.
    Text(String),
    /// The end; nothing follows.
    Finished(SessionEnd),
}

/// Starts sessions for the component that carries a job out.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Starts a session on this job's account.
    async fn start(&self, query: Query) -> Result<QueryHandle, ToolError>;
}

/// No tools at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

#[async_trait]
impl Tools for NoTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        Vec::new()
    }

    async fn call(&self, name: &str, _input: serde_json::Value) -> Result<serde_json::Value, ToolError> {
        Err(ToolError::InvalidInput(format!("there is no tool {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_summed_over_the_sessions_of_a_job() {
        let bounds = Bounds { max_turns: Some(3), ..Bounds::default() };
        let job = Meter::for_job(bounds, &Limits::default());
        let first = job.for_session(Bounds { max_turns: Some(2), ..Bounds::default() });
        assert!(first.take_turn().is_ok() && first.take_turn().is_ok());
        assert_eq!(first.take_turn(), Err(Ending::MaxTurns));
        let second = job.for_session(Bounds::default());
        assert_eq!((second.take_turn(), second.take_turn()), (Ok(()), Err(Ending::MaxTurns)));
    }

    #[test]
    fn a_spent_budget_and_a_passed_deadline_refuse_the_next_turn() {
        let job = Meter::for_job(Bounds { max_budget_usd: Some(0.5), ..Bounds::default() }, &Limits::default());
        job.for_session(Bounds::default()).spend(0.5);
        assert_eq!(job.take_turn(), Err(Ending::MaxBudget));
        let late = Meter::new(Bounds { deadline_seconds: Some(0), ..Bounds::default() }, None);
        assert_eq!(late.take_turn(), Err(Ending::Deadline));
    }
}
