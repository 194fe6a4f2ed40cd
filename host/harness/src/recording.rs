//! Defines the recording of a scenario: the answer of the component, and its exchanges with the host.

use std::collections::{BTreeMap, HashMap};

use guild_contract::Decision;
use guild_session::{
    activation::Plan,
    transcript::{Entry, Line},
};
use serde::Serialize;
use serde_json::Value;

/// The recording of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The outcome.
    pub outcome: Outcome,
    /// The plan of an accepted dispatch.
    pub plan: Option<Plan>,
    /// The sessions, in the order in which they began.
    pub sessions: Vec<RecordedSession>,
    /// The calls of tools in all sessions, in the order in which they were made.
    pub calls: Vec<RecordedCall>,
    /// The calls of host functions by the component, in the order in which they were answered.
    pub host_calls: Vec<HostCall>,
    /// The last summary of the job.
    pub summary: Option<String>,
    /// The questions that were logged, in order.
    pub questions: Vec<String>,
    /// The decisions that were recorded, in order.
    pub decisions: Vec<Decision>,
    /// The artifacts by their paths. Bytes that are not UTF-8 are replaced.
    pub artifacts: BTreeMap<String, String>,
    /// The member's memories afterwards, by their keys.
    pub memory: BTreeMap<String, String>,
    /// The log of the job.
    pub log: String,
}

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The dispatch was accepted, and its job not carried out.
    Planned,
    /// The dispatch was refused, with this text for the caller.
    Refused(String),
    /// The job completed with this result.
    Completed(String),
    /// A tool of the component answered.
    Answered(Value),
    /// The component, its job or its tool failed, with this text.
    Failed(String),
}

/// A session, as its model would see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedSession {
    /// The role of the agent.
    pub system_prompt: String,
    /// The first message.
    pub prompt: String,
    /// The requested model.
    pub model: Option<String>,
    /// The names of all its tools.
    pub tools: Vec<String>,
    /// The ending: `success`, or the reason.
    pub ending: Option<String>,
}

/// A call of a tool in a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    /// The number of the session, from 1.
    #[serde(skip)]
    pub session: u32,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Value,
    /// The answer. A call that was cut off has neither an answer nor an error.
    pub answer: Option<Value>,
    /// The error that the model saw.
    pub error: Option<String>,
}

/// A call of a host function by the component.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCall {
    /// The interface and the function, as `files.read`.
    pub function: String,
    /// Its arguments by their names.
    pub input: Value,
    /// The answer; null for a function without one.
    pub answer: Option<Value>,
    /// The error.
    pub error: Option<String>,
}

impl Recording {
    /// A recording with this outcome and nothing else.
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            plan: None,
            sessions: Vec::new(),
            calls: Vec::new(),
            host_calls: Vec::new(),
            summary: None,
            questions: Vec::new(),
            decisions: Vec::new(),
            artifacts: BTreeMap::new(),
            memory: BTreeMap::new(),
            log: String::new(),
        }
    }
}

/// The sessions and the calls of a transcript.
pub(crate) fn transcript(lines: &[Line]) -> (Vec<RecordedSession>, Vec<RecordedCall>) {
    let (mut sessions, mut calls) = (Vec::new(), Vec::<RecordedCall>::new());
    let mut positions = HashMap::new();
    let mut numbers = HashMap::new();
    for line in lines {
        match &line.entry {
            Entry::Session { session, model, system_prompt, prompt, tools, .. } => {
                numbers.insert(*session, sessions.len());
                sessions.push(RecordedSession {
                    system_prompt: system_prompt.clone(),
                    prompt: prompt.clone(),
                    model: model.clone(),
                    tools: tools.clone(),
                    ending: None,
                });
            }
            Entry::Call { session, call, tool, input } => {
                positions.insert((*session, call.clone()), calls.len());
                let (session, tool, input) = (*session, tool.clone(), input.clone());
                calls.push(RecordedCall { session, tool, input, answer: None, error: None });
            }
            Entry::Result { session, call, output, error, .. } => {
                let position = positions.get(&(*session, call.clone()));
                if let Some(recorded) = position.and_then(|position| calls.get_mut(*position)) {
                    (recorded.answer, recorded.error) = (output.clone(), error.clone());
                }
            }
            Entry::End { session, ending, .. } => {
                let position = numbers.get(session);
                if let Some(recorded) = position.and_then(|position| sessions.get_mut(*position)) {
                    recorded.ending = Some(ending.clone());
                }
            }
            _ => {}
        }
    }
    (sessions, calls)
}
