//! The input of a component when it is activated, and its answer (REQ-WD-30, REQ-WKR-4a): the Rust
//! side of the WIT interface `dispatch`.

use std::sync::Arc;

use guild_contract::{Bounds, JobId, manifest::Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools::ToolDefinition;

/// The work that was asked for (REQ-WD-5).
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The short label.
    pub description: String,
    /// The whole prompt.
    pub task: String,
    /// What the plugin defines; `{}` where there is none.
    pub config: Value,
}

/// A memory that was chosen for an activation. It is a note, not an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNote {
    /// Whose memory it is.
    pub scope: Scope,
    /// The key that it was stored under.
    pub key: String,
    /// The whole text.
    pub content: String,
    /// When it was written: RFC 3339 in UTC.
    pub modified: String,
    /// The job that stored it, where that is known.
    pub origin: Option<JobId>,
}

/// An attempt at a commission of a project, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptAt {
    /// The commission's id.
    pub commission: String,
    /// Which attempt it is, from 1.
    pub number: u32,
    /// What the commission builds on.
    pub dependencies: Vec<String>,
}

/// A meeting with a user of a project, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingAt {
    /// The meeting's id.
    pub id: String,
    /// What it is about.
    pub agenda: String,
    /// Paths of artifacts that belong to it, below the read root of the project.
    pub artifacts: Vec<String>,
}

/// A project, as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRoot {
    /// Its name.
    pub name: String,
    /// The name of the read root that holds it.
    pub root: String,
}

/// All that the host knows when it activates a worker.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The job that this will be, if it is accepted.
    pub job: JobId,
    /// The work.
    pub request: Request,
    /// The commission that the work is an attempt at, where it is one.
    pub attempt: Option<AttemptAt>,
    /// The meeting that the worker takes part in, where it is one.
    pub meeting: Option<MeetingAt>,
    /// The project that the work belongs to, where it belongs to one.
    pub project: Option<ProjectRoot>,
    /// The member's `posture.md`.
    pub posture: String,
    /// Whose memories may be read.
    pub scopes: Vec<Scope>,
    /// Within the injection cap, newest first over all scopes (REQ-WD-28, REQ-WKR-22).
    pub memories: Vec<MemoryNote>,
    /// Built-in read-only tools that the worker's sessions may be given.
    pub granted_tools: Vec<String>,
    /// Tools of the toolboxes that were resolved for the worker.
    pub toolbox_tools: Vec<Arc<ToolDefinition>>,
    /// What the job may use at most: the smaller of manifest and operator.
    pub bounds: Bounds,
}

/// How an accepted job is carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Plan {
    /// The host runs this session.
    Session(SessionPlan),
    /// The plugin carries the job out itself, through its `run`.
    OwnRun(Bounds),
    /// The host runs this session in turns, each of which answers what a user said. The job runs nothing between them.
    Conversation(SessionPlan),
}

impl Plan {
    /// The session that the host runs, where it runs one.
    pub fn session(&self) -> Option<&SessionPlan> {
        match self {
            Self::Session(session) | Self::Conversation(session) => Some(session),
            Self::OwnRun(_) => None,
        }
    }
}

/// How the worker's agent session is to run. The internal tools are always part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPlan {
    /// Posture, task, memories and tool instructions (REQ-WD-34).
    pub system_prompt: String,
    /// The message that starts the session.
    pub prompt: String,
    /// Built-in tools, a subset of those that were granted.
    pub tools: Vec<String>,
    /// Names of toolbox tools, a subset of those that were resolved.
    pub toolbox_tools: Vec<String>,
    /// The model, where the plugin prefers one.
    pub model: Option<String>,
    /// The plugin's own bounds.
    pub bounds: Bounds,
}

/// Why a plugin does not accept a dispatch. The caller sees the text; no job exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The dispatch's `config` is not acceptable.
    #[error("{0}")]
    InvalidConfig(String),
    /// The plugin does not do such work.
    #[error("{0}")]
    Unsupported(String),
}
