//! Records what a member does in one run, step by step.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use guild_contract::manifest::Scope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of one text that are recorded.
const TEXT_BYTES: usize = 128 << 10;
/// Bytes of all texts of a run.
const RUN_BYTES: usize = 16 << 20;

/// A place where the probe sees texts. The order is that of reach, the widest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A request to the web.
    Request,
    /// A pull request: its title, its text, and what was pushed for it.
    PullRequest,
    /// A commit of a project, with its changes.
    Commit,
    /// A commission for another worker.
    Commission,
    /// A note in a memory for all projects.
    GlobalMemory,
    /// A note in the memory of a project.
    ProjectMemory,
    /// A note in the member's own memory.
    OwnMemory,
    /// The description or the schema of a tool.
    ToolDefinition,
    /// The answer of the member's tool.
    ToolAnswer,
    /// The system prompt of a session.
    SystemPrompt,
    /// The first message of a session.
    Prompt,
    /// A call that the model made, with its input.
    ModelCall,
    /// An artifact of a job.
    Artifact,
    /// The result of a job.
    Result,
    /// A report of a job: its summary, its questions and its decisions.
    Report,
    /// A line of a job's log.
    Log,
    /// The reason that a dispatch was refused, or that a job failed: also a panic.
    Failure,
}

impl Place {
    /// The scope whose memories the place is.
    pub fn scope(self) -> Option<Scope> {
        match self {
            Self::GlobalMemory => Some(Scope::Global),
            Self::ProjectMemory => Some(Scope::Project),
            Self::OwnMemory => Some(Scope::Worker),
            _ => None,
        }
    }

    /// The place in words, as the end of a sentence.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Request => "a request to the web",
            Self::PullRequest => "a pull request",
            Self::Commit => "a commit",
            Self::Commission => "a commission for another worker",
            Self::GlobalMemory => "the memory for all projects",
            Self::ProjectMemory => "the memory of a project",
            Self::OwnMemory => "its own memory",
            Self::ToolDefinition => "the description of a tool",
            Self::ToolAnswer => "the answer of a tool",
            Self::SystemPrompt => "a system prompt",
            Self::Prompt => "a prompt",
            Self::ModelCall => "a call of the model",
            Self::Artifact => "an artifact",
            Self::Result => "the result of a job",
            Self::Report => "the report of a job",
            Self::Log => "the log of a job",
            Self::Failure => "a failure",
        }
    }

    /// Whether texts there enter the context of a model.
    pub fn is_for_models(self) -> bool {
        matches!(
            self,
            Self::ToolDefinition
                | Self::ToolAnswer
                | Self::SystemPrompt
                | Self::Prompt
                | Self::Commission
                | Self::GlobalMemory
                | Self::ProjectMemory
                | Self::OwnMemory
        )
    }
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The step of the run, from 1.
    pub step: u32,
    /// The place.
    pub place: Place,
    /// The name at that place: a tool, an address, a file.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether the scripted model did it, rather than the member's component.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_model: bool,
}

/// A tool's answer as a model reads it.
pub(crate) fn shown(answer: &Value) -> String {
    answer.as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// The record of a run.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Recorded>);

/// What was recorded.
#[derive(Default)]
pub(crate) struct Recorded {
    step: u32,
    pub(crate) events: Vec<Event>,
    bytes: usize,
    /// The number of texts that were left out.
    pub(crate) left_out: usize,
    /// Names of tools that were called, with whether each answered.
    pub(crate) called: Vec<(String, bool)>,
    /// Addresses that models asked for, with the name of such a request.
    asked: Vec<(String, &'static str)>,
    pub(crate) sessions: usize,
    /// The capabilities that the component used.
    pub(crate) used: BTreeSet<String>,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn now(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the next step.
    pub(crate) fn begin(&self) {
        self.now().step += 1;
    }

    pub(crate) fn see(&self, place: Place, name: impl Into<String>, text: impl Into<String>) {
        self.add(place, name.into(), text.into(), false);
    }

    /// Records what the scripted model did.
    pub(crate) fn see_model(&self, name: &str, text: impl Into<String>) {
        self.add(Place::ModelCall, name.to_owned(), text.into(), true);
    }

    fn add(&self, place: Place, name: String, mut text: String, by_model: bool) {
        let mut now = self.now();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        if now.bytes + text.len() > RUN_BYTES {
            now.left_out += 1;
            return;
        }
        now.bytes += text.len() + name.len();
        let step = now.step;
        now.events.push(Event { step, place, name, text, by_model });
    }

    /// Counts a call of one of the member's tools.
    pub(crate) fn called(&self, tool: &str, answered: bool) {
        self.now().called.push((tool.to_owned(), answered));
    }

    /// Notes that a model asks for an address. Its request has this name.
    pub(crate) fn asked(&self, address: &str, request: &'static str) {
        self.now().asked.push((address.to_owned(), request));
    }

    /// The name of the request that a model makes for an address; none if no model asked for it.
    pub(crate) fn has_asked(&self, address: &str) -> Option<&'static str> {
        self.now().asked.iter().rev().find(|(asked, _)| asked == address).map(|(_, request)| *request)
    }

    /// Counts a session.
    pub(crate) fn session(&self) {
        self.now().sessions += 1;
    }

    /// Notes capabilities that the component used.
    pub(crate) fn used(&self, capabilities: impl IntoIterator<Item = String>) {
        self.now().used.extend(capabilities);
    }

    /// All that was recorded.
    pub(crate) fn take(&self) -> Recorded {
        std::mem::take(&mut *self.now())
    }
}
