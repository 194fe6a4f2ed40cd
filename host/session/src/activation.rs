//! Defines the input of a component's activation, and its answer (REQ-WD-30, REQ-WKR-4a): the Rust side of the WIT
//! interface `dispatch`.

use std::sync::Arc;

use guild_contract::{Bounds, JobId, manifest::Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools::ToolDefinition;

/// The requested work (REQ-WD-5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The short label.
    pub description: String,
    /// The whole prompt.
    pub task: String,
    /// The plugin's own configuration; `{}` if the dispatch has none.
    pub config: Value,
}

/// A memory that was chosen for an activation. It is a note, not an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryNote {
    /// The scope of the memory.
    pub scope: Scope,
    /// The key that it was stored under.
    pub key: String,
    /// The whole text.
    pub content: String,
    /// The time of writing: RFC 3339 in UTC.
    pub modified: String,
    /// The job that stored it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<JobId>,
}

/// An attempt at a commission of a project, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptAt {
    /// The commission's id.
    pub commission: String,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The commissions that it depends on.
    pub dependencies: Vec<String>,
}

/// A meeting with a user of a project, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeetingAt {
    /// The meeting's id.
    pub id: String,
    /// The agenda.
    pub agenda: String,
    /// Paths of the meeting's artifacts, below the read root of the project.
    pub artifacts: Vec<String>,
}

/// A project, as its workers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectRoot {
    /// Its name.
    pub name: String,
    /// The name of the read root that holds it.
    pub root: String,
}

/// The input of an activation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activation {
    /// The job that the accepted work becomes.
    pub job: JobId,
    /// The work.
    pub request: Request,
    /// The attempt at a commission, if the work is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptAt>,
    /// The meeting that the worker takes part in, if the work is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<MeetingAt>,
    /// The project of the work, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectRoot>,
    /// The member's `posture.md`.
    pub posture: String,
    /// The scopes whose memories may be read.
    pub scopes: Vec<Scope>,
    /// The memories within the injection cap, newest first over all scopes (REQ-WD-28, REQ-WKR-22).
    pub memories: Vec<MemoryNote>,
    /// Built-in read-only tools that the worker's sessions may be given.
    pub granted_tools: Vec<String>,
    /// Tools of the toolboxes that were resolved for the worker.
    pub toolbox_tools: Vec<Arc<ToolDefinition>>,
    /// The bounds of the job: the smaller of the manifest's and the operator's.
    pub bounds: Bounds,
}

/// The way in which an accepted job is carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Plan {
    /// The host runs this session.
    Session(SessionPlan),
    /// The plugin carries the job out itself, through its `run`.
    OwnRun(Bounds),
    /// The host runs this session in turns, each of which answers a message of a user. The job runs nothing between
    /// them.
    Conversation(SessionPlan),
}

impl Plan {
    /// The session that the host runs, if it runs one.
    pub fn session(&self) -> Option<&SessionPlan> {
        match self {
            Self::Session(session) | Self::Conversation(session) => Some(session),
            Self::OwnRun(_) => None,
        }
    }
}

/// The plan of the worker's agent session. The internal tools are always part of it.
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
    /// The model, if the plugin prefers one.
    pub model: Option<String>,
    /// The plugin's own bounds.
    pub bounds: Bounds,
}

/// The reason that a plugin does not accept a dispatch. The caller sees the text; no job exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The dispatch's `config` is not acceptable.
    #[error("{0}")]
    InvalidConfig(String),
    /// The plugin does not do such work.
    #[error("{0}")]
    Unsupported(String),
}
