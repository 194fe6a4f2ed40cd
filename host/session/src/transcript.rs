//! Defines the lines of `transcript.jsonl`, which records the sessions of a job exactly as the model saw them.
//!
//! People read it (`guild logs`), and the host resumes sessions from it after a restart.

use std::collections::BTreeMap;

use async_trait::async_trait;
use guild_contract::{JobUsage, Usage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{meter::Account, tools::ToolError};

/// The ending of a session that ended by itself.
pub const SUCCESS: &str = "success";

/// One line, without the moment at which it was written (`at`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Entry {
    /// A session begins. The entry has the whole input of the model's first turn.
    Session {
        /// The session's number in the job, from 1.
        session: u32,
        /// The runtime.
        agent: String,
        /// The model that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Who the agent is and how it works.
        system_prompt: String,
        /// The first message.
        prompt: String,
        /// The names of all its tools.
        tools: Vec<String>,
    },
    /// A host resumes the session after a restart.
    Resumed {
        /// The session's number.
        session: u32,
    },
    /// The runtime's own id of the session, by which it can resume the session.
    Handle {
        /// The session's number.
        session: u32,
        /// The runtime's own id.
        handle: String,
    },
    /// A message of the user, which begins a turn of a conversation.
    Message {
        /// The session's number.
        session: u32,
        /// The text.
        text: String,
    },
    /// A piece of the agent's answer in a conversation, written when it was received. The pieces of one answer together
    /// are the text of the following `turn`; an answer that was cut off has pieces, and no `turn`.
    Text {
        /// The session's number.
        session: u32,
        /// The piece.
        text: String,
    },
    /// From here on the model is no longer given the whole conversation, because it did not fit or was begun anew.
    Compacted {
        /// The session's number.
        session: u32,
        /// The omitted part, and the reason.
        text: String,
    },
    /// The model answered.
    Turn {
        /// The session's number.
        session: u32,
        /// The turn's number in the session, from 1.
        turn: u32,
        /// The model that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Its text.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The whole answer in the runtime's own form, if it needs that to resume.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Value>,
        /// The turn's usage, which counts one turn.
        usage: Usage,
    },
    /// A tool is called. Its effect, if it has one, comes after this line.
    Call {
        /// The session's number.
        session: u32,
        /// The call's id.
        call: String,
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// The result of a call: `output`, or the `error` that the model saw.
    Result {
        /// The session's number.
        session: u32,
        /// The call's id.
        call: String,
        /// The duration in milliseconds.
        ms: u64,
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// The error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A remark of the runtime, such as a retry or a warning.
    Note {
        /// The session's number.
        session: u32,
        /// The text.
        text: String,
    },
    /// The session ended; in a conversation, a turn ended, and the next begins with a `message`.
    End {
        /// The session's number.
        session: u32,
        /// The ending: [`SUCCESS`], or the reason.
        ending: String,
        /// Its final text.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The usage of the whole session; in a conversation, the turn's.
        usage: Usage,
    },
    /// The grants that the component itself used in one call.
    Used {
        /// The call: `activate` or `run`.
        #[serde(rename = "in")]
        call: String,
        /// The capabilities, as `guild.toml` spells them.
        capabilities: Vec<String>,
    },
    /// The transcript has reached its limit; nothing follows.
    Truncated {
        /// The limit.
        text: String,
    },
}

impl Entry {
    /// The session of the entry.
    pub fn session(&self) -> Option<u32> {
        match self {
            Self::Session { session, .. }
            | Self::Resumed { session }
            | Self::Handle { session, .. }
            | Self::Message { session, .. }
            | Self::Text { session, .. }
            | Self::Compacted { session, .. }
            | Self::Turn { session, .. }
            | Self::Call { session, .. }
            | Self::Result { session, .. }
            | Self::Note { session, .. }
            | Self::End { session, .. } => Some(*session),
            Self::Used { .. } | Self::Truncated { .. } => None,
        }
    }
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The time of writing: RFC 3339 in UTC.
    pub at: String,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The usage of these lines' sessions on this runtime, before their host stopped.
pub fn usage(lines: &[Line], agent: String) -> JobUsage {
    let Account { usage, models, .. } = account(lines);
    JobUsage { agent, models, usage, wall_seconds: seconds(lines), queued: false }
}

/// The account of these lines' sessions, with all turns. A session without an end likely had a request under way, whose
/// cost is unknown, except before its first turn, where a request leaves no trace.
pub fn account(lines: &[Line]) -> Account {
    let mut models: Vec<String> = Vec::new();
    let mut sessions: BTreeMap<u32, Usage> = BTreeMap::new();
    // The usage of ended turns of conversations.
    let mut usage = Usage::default();
    let mut ended: BTreeMap<u32, bool> = BTreeMap::new();
    let mut truncated = false;
    for line in lines {
        if let Some(session) = line.entry.session() {
            ended.insert(session, matches!(line.entry, Entry::End { .. }));
        }
        match &line.entry {
            Entry::Turn { session, model, usage, .. } => {
                sessions.entry(*session).or_default().add(usage);
                models.extend(model.clone().filter(|model| !models.contains(model)));
            }
            // The end's usage may include usage that was unknown during its turns.
            Entry::End { session, usage, .. } => drop(sessions.insert(*session, *usage)),
            // The new turn of the conversation has an end of its own.
            Entry::Message { session, .. } => usage.add(&sessions.remove(session).unwrap_or_default()),
            Entry::Truncated { .. } => truncated = true,
            _ => {}
        }
    }
    sessions.values().for_each(|session| usage.add(session));
    let under_way = ended.into_values().any(|ended| !ended);
    if truncated || (under_way && usage.tokens() > 0) {
        usage = usage.and_unknown();
    }
    Account { usage, models, open: 0 }
}

/// The seconds in which these sessions ran, without the time between hosts and between turns of a conversation.
pub fn seconds(lines: &[Line]) -> f64 {
    let time = |line: &Line| line.at.parse::<Timestamp>().ok();
    let mut sum = 0.0;
    let (mut first, mut last): (Option<Timestamp>, Option<Timestamp>) = (None, None);
    let span = |first: Option<Timestamp>, last: Option<Timestamp>| {
        first.zip(last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64().max(0.0))
    };
    for line in lines {
        if let Entry::Resumed { .. } | Entry::Message { .. } = line.entry {
            sum += span(first, last);
            first = time(line);
        }
        first = first.or_else(|| time(line));
        last = time(line).or(last);
    }
    sum + span(first, last)
}

/// A call without a result, which may or may not have had its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct DanglingCall {
    /// The session's number.
    pub session: u32,
    /// The call's id.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Value,
}

impl DanglingCall {
    /// The result to write for the call before a conversation continues, so that it is never made again automatically.
    pub fn result(&self, read_only: bool) -> Entry {
        let error = Some(interrupted(read_only).to_owned());
        Entry::Result { session: self.session, call: self.call.clone(), ms: 0, output: None, error }
    }
}

/// The text for the model about an interrupted call. A call of a tool that only reads can be made again.
pub const fn interrupted(read_only: bool) -> &'static str {
    if read_only {
        "interrupted before it was answered; the tool only reads, so you can call it again"
    } else {
        "interrupted before it was answered, and not made again: it may have had its effect, so check that before you \
         call it again"
    }
}

/// The calls of these lines without a result, in order.
pub fn dangling_calls(lines: &[Line]) -> Vec<DanglingCall> {
    let mut dangling: Vec<DanglingCall> = Vec::new();
    for line in lines {
        match &line.entry {
            Entry::Call { session, call, tool, input } => dangling.push(DanglingCall {
                session: *session,
                call: call.clone(),
                tool: tool.clone(),
                input: input.clone(),
            }),
            Entry::Result { session, call, .. } => {
                dangling.retain(|known| (known.session, &known.call) != (*session, call));
            }
            _ => {}
        }
    }
    dangling
}

/// Receives the entries of a session: they go to the job's `transcript.jsonl`, and denials also to its log.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes an entry. It is handed to the system when this returns. It must not wait for long.
    fn write(&self, entry: &Entry);

    /// Writes a line into the job's log.
    fn log(&self, line: &str);

    /// Waits until all entries are stored so that no other host can carry the job out without them. By default they are
    /// at once.
    ///
    /// # Errors
    ///
    /// Returns [`ToolError::JobEnded`] when the job is not this host's any more, and `Unavailable` when the entries
    /// cannot be stored now.
    async fn settled(&self) -> Result<(), ToolError> {
        Ok(())
    }

    /// Waits until the session may ask its model for a turn. By default it may at once.
    ///
    /// # Errors
    ///
    /// Returns [`ToolError::JobEnded`] when another host goes on with the job.
    async fn before_turn(&self) -> Result<(), ToolError> {
        Ok(())
    }
}

/// A journal that discards entries, for a session without a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn write(&self, _entry: &Entry) {}

    fn log(&self, _line: &str) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(second: u32, entry: Entry) -> Line {
        Line { at: format!("2026-01-01T00:00:{second:02}Z"), entry }
    }

    fn call(call: &str) -> Entry {
        Entry::Call { session: 1, call: call.to_owned(), tool: "act".to_owned(), input: json!({"n": 1}) }
    }

    fn message() -> Entry {
        Entry::Message { session: 1, text: "And?".to_owned() }
    }

    fn end(turns: u32) -> Entry {
        let usage = Usage { turns, cost_usd: Some(f64::from(turns)), ..Usage::default() };
        Entry::End { session: 1, ending: SUCCESS.to_owned(), text: String::new(), usage }
    }

    #[test]
    fn a_call_without_a_result_dangles_until_it_has_one() {
        let answered = Entry::Result { session: 1, call: "1".to_owned(), ms: 0, output: Some(json!(1)), error: None };
        let mut lines = vec![line(0, call("1")), line(0, call("2")), line(1, answered)];
        let dangling = dangling_calls(&lines);
        assert_eq!(dangling.iter().map(|call| call.call.as_str()).collect::<Vec<_>>(), ["2"]);
        for (read_only, part) in [(true, "you can call it again"), (false, "it may have had its effect")] {
            let Entry::Result { error: Some(text), .. } = dangling[0].result(read_only) else { panic!("no error") };
            assert!(text.contains(part), "{text}");
        }
        lines.push(line(2, dangling[0].result(false)));
        assert_eq!(dangling_calls(&lines), []);
    }

    #[test]
    fn the_time_between_the_turns_of_a_conversation_does_not_count() {
        let lines = [line(0, message()), line(2, end(1)), line(30, message()), line(33, end(2))];
        assert!((seconds(&lines) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn the_end_of_a_turn_of_a_conversation_counts_that_turn_and_is_added_to_those_before() {
        let turn = Entry::Turn {
            session: 1,
            turn: 3,
            model: Some("m".to_owned()),
            text: String::new(),
            content: None,
            usage: Usage { turns: 1, output_tokens: 5, cost_usd: Some(1.0), ..Usage::default() },
        };
        let mut lines = vec![line(0, message()), line(1, end(2)), line(2, message()), line(3, turn)];
        let under_way = account(&lines).usage;
        assert_eq!((under_way.turns, under_way.cost_usd, under_way.known_cost_usd), (3, None, Some(3.0)));
        lines.push(line(4, end(4)));
        assert_eq!((account(&lines).usage.turns, account(&lines).usage.cost_usd), (6, Some(6.0)));
    }
}
