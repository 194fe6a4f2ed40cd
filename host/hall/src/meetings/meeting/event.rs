//! Converts the lines of a job's transcript to the events of a turn, in the original's form.

use std::collections::BTreeMap;

use guild_contract::hall::{Trigger, TurnEvent};
use guild_session::transcript::{Entry, SUCCESS};
use serde_json::Value;

use super::Meeting;

/// The error of a turn without an end of its own, for its transcript and clients.
pub const INTERRUPTED: &str = "Turn interrupted";

/// Converts the lines of one meeting's transcript to events, in order.
pub(crate) struct Projection {
    meeting: String,
    session: String,
    worker: String,
    cut: Vec<String>,
    /// The tools of calls that have no result yet.
    calls: BTreeMap<String, String>,
}

impl Projection {
    pub(crate) fn of(meeting: &Meeting) -> Self {
        Self {
            meeting: meeting.meeting_id.to_string(),
            session: meeting.session.as_ref().map(|session| session.job.to_string()).unwrap_or_default(),
            worker: meeting.record.worker.clone(),
            cut: meeting.cut().map(str::to_owned).collect(),
            calls: BTreeMap::new(),
        }
    }

    /// The event of a line, if the line belongs to the conversation.
    pub(crate) fn event(&mut self, entry: Entry) -> Option<TurnEvent> {
        if let Entry::Truncated { text } = entry {
            return Some(TurnEvent::Error { reason: text });
        }
        if entry.session() != Some(CONVERSATION) {
            return None;
        }
        Some(match entry {
            Entry::Session { .. } => TurnEvent::Session {
                meeting_id: self.meeting.clone(),
                session_id: self.session.clone(),
                worker: self.worker.clone(),
                cut: self.cut.clone(),
            },
            Entry::Text { text, .. } => TurnEvent::TextDelta { text },
            Entry::Call { call, tool, input, .. } => {
                self.calls.insert(call.clone(), tool.clone());
                TurnEvent::ToolUse { id: call, name: tool, input }
            }
            Entry::Result { call, output, error, .. } => {
                // A result without its call belongs to an earlier turn, in which the host was killed.
                let name = self.calls.remove(&call)?;
                let is_error = error.is_some();
                TurnEvent::ToolResult { tool_use_id: call, name, output: shown(output, error), is_error }
            }
            Entry::Compacted { text, .. } => {
                TurnEvent::ContextCompacted { trigger: Trigger::Auto, pre_tokens: 0, summary: Some(text) }
            }
            Entry::End { ending, usage, .. } if ending == SUCCESS => TurnEvent::TurnEnd { cost: usage.cost_usd },
            Entry::End { ending, .. } => TurnEvent::Error { reason: ending },
            _ => return None,
        })
    }
}

/// The session of a meeting's job in which the user and the worker talk. Other sessions write notes.
pub const CONVERSATION: u32 = 1;

/// The text of a tool's result.
pub(crate) fn shown(output: Option<Value>, error: Option<String>) -> String {
    match (error, output) {
        (Some(error), _) => error,
        (None, Some(Value::String(text))) => text,
        (None, Some(value)) => value.to_string(),
        (None, None) => String::new(),
    }
}
