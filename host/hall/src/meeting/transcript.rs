//! What was said in a meeting, as people and clients see it: made from the transcript of its job, and never read again.
//!
//! In the Markdown, a line of a message that looks like a heading of a turn, or like a tool's, has a backslash before it, so
//! that no message can pass for another's.

use std::collections::BTreeMap;

use guild_session::transcript::{Entry, Line, SUCCESS};
use serde::Serialize;

use super::{
    Meeting,
    event::{CONVERSATION, shown},
};

/// What the Markdown begins a turn or a tool with.
const HEADINGS: [&str; 5] = ["## User (", "## Assistant (", "## Context Compacted (", "## Error (", ">Tool:"];
/// Characters of each thing that plain notes quote.
const QUOTED: usize = 400;

/// Something that was said.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// `transcript-1` for the first.
    pub id: String,
    /// `user`, `assistant` or `system`.
    pub role: &'static str,
    /// What.
    pub content: String,
    /// The tools that the worker called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_uses: Option<Vec<ToolUse>>,
    /// When it began: RFC 3339 in UTC.
    #[serde(skip)]
    pub at: String,
    /// The heading in the Markdown.
    #[serde(skip)]
    heading: &'static str,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolUse {
    /// The tool.
    pub name: String,
    /// `complete`.
    pub status: &'static str,
    /// What it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// What the lines of a transcript say of the conversation, in order.
pub fn messages(lines: &[Line]) -> Vec<Message> {
    let mut all = Collector::default();
    for Line { at, entry } in lines {
        if entry.session() != Some(CONVERSATION) {
            continue;
        }
        match entry {
            Entry::Message { text, .. } => all.add("user", "User", text.clone(), at),
            Entry::Text { text, .. } => {
                all.has_pieces = true;
                all.say(text, at);
            }
            // Its pieces are its text.
            Entry::Turn { .. } if all.has_pieces => all.has_pieces = false,
            Entry::Turn { text, .. } => all.say(text, at),
            Entry::Call { call, tool, .. } => drop(all.calls.insert(call.clone(), tool.clone())),
            Entry::Result { call, output, error, .. } => {
                let name = all.calls.remove(call).unwrap_or_default();
                let output = Some(shown(output.clone(), error.clone())).filter(|output| !output.is_empty());
                all.in_answer(at, |answer| {
                    let tools = answer.tool_uses.get_or_insert_default();
                    tools.push(ToolUse { name, status: "complete", output });
                });
                all.is_behind_tool = true;
            }
            Entry::Compacted { text, .. } => all.add("system", "Context Compacted", text.clone(), at),
            Entry::End { ending, .. } => {
                all.has_pieces = false;
                if ending != SUCCESS {
                    all.add("system", "Error", format!("Error: {ending}"), at);
                }
            }
            _ => {}
        }
    }
    all.messages
}

#[derive(Default)]
struct Collector {
    messages: Vec<Message>,
    calls: BTreeMap<String, String>,
    has_pieces: bool,
    /// Whether the last that the worker did was a call, so that what it says next begins a paragraph.
    is_behind_tool: bool,
}

impl Collector {
    fn add(&mut self, role: &'static str, heading: &'static str, content: String, at: &str) {
        let id = format!("transcript-{}", self.messages.len() + 1);
        self.is_behind_tool = false;
        self.messages.push(Message { id, role, content, tool_uses: None, at: at.to_owned(), heading });
    }

    /// Changes the worker's answer in the turn: it goes on, also behind a note that it was cut off.
    fn in_answer(&mut self, at: &str, change: impl FnOnce(&mut Message)) {
        let of_turn = |message: &&mut Message| message.role != "user";
        let found = self.messages.iter_mut().rev().take_while(of_turn).find(|message| message.role == "assistant");
        if let Some(answer) = found {
            return change(answer);
        }
        self.add("assistant", "Assistant", String::new(), at);
        if let Some(added) = self.messages.last_mut() {
            change(added);
        }
    }

    fn say(&mut self, text: &str, at: &str) {
        if text.is_empty() {
            return;
        }
        let begins = std::mem::take(&mut self.is_behind_tool);
        self.in_answer(at, |answer| {
            if begins && !answer.content.is_empty() {
                answer.content.push_str("\n\n");
            }
            answer.content.push_str(text);
        });
    }
}

/// The transcript of a meeting for people, in the form of the original.
pub fn markdown(meeting: &Meeting, messages: &[Message]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = format!(
        "---\nmeetingId: {}\nworker: \"{}\"\nproject: \"{}\"\nstarted: {}\n---\n",
        meeting.meeting_id,
        quoted(&meeting.record.worker),
        quoted(&meeting.project_name),
        meeting.started(),
    );
    for Message { content, tool_uses, at, heading, .. } in messages {
        let content = content.strip_prefix("Error: ").filter(|_| *heading == "Error").unwrap_or(content);
        text.push_str(&format!("\n## {heading} ({at})\n\n"));
        if !content.trim().is_empty() {
            text.push_str(&format!("{}\n", escaped(content.trim())));
        }
        for tool in tool_uses.iter().flatten() {
            text.push_str(&format!("\n> Tool: {}\n", tool.name.replace(char::is_control, " ")));
            let output = tool.output.as_deref().map(|output| one_line_end(output.trim_end()));
            for line in output.iter().flat_map(|output| output.split('\n')) {
                let forged = line.trim_start().starts_with("Tool:") || is_forged(line);
                text.push_str(&format!("> {}{line}\n", if forged { "\\" } else { "" }));
            }
        }
    }
    text
}

/// A text in which no line passes for one of the transcript's own.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        if is_forged(line) { format!("\\{line}") } else { line.to_owned() }
    };
    one_line_end(text).split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Whether readers of Markdown take a line for one of the transcript's own, however it is spaced.
fn is_forged(line: &str) -> bool {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ").replace("> ", ">");
    HEADINGS.iter().any(|heading| line.starts_with(heading))
}

/// A text in which what readers take for the end of a line is one.
fn one_line_end(text: &str) -> String {
    text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n")
}

/// Notes that no model wrote: what the user said, and what the record has.
pub(crate) fn plain_notes(meeting: &Meeting, messages: &[Message], why: &str) -> String {
    let short = |text: &str| {
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = one_line.chars().take(QUOTED).collect();
        if cut.len() < one_line.len() { format!("{cut}…") } else { cut }
    };
    let mut notes = format!("These notes were not written by a model: {}.\n", why.trim_end_matches('.'));
    notes.push_str("\n## What the user said\n\n");
    messages.iter().filter(|said| said.role == "user").for_each(|said| {
        notes.push_str(&format!("- {}\n", short(&said.content)));
    });
    let log = &meeting.record.meeting_log;
    let progress: Vec<_> = log.iter().filter(|entry| entry.event == "progress_summary").collect();
    if !progress.is_empty() {
        notes.push_str("\n## Progress\n\n");
        progress.iter().for_each(|entry| notes.push_str(&format!("- {}\n", short(&entry.reason))));
    }
    if let Some(last) = messages.iter().rfind(|said| said.role == "assistant" && !said.content.trim().is_empty()) {
        notes.push_str("\n## The last answer\n\n");
        last.content.trim().lines().for_each(|line| notes.push_str(&format!("> {line}\n")));
    }
    if !meeting.record.linked_artifacts.is_empty() {
        notes.push_str("\n## Artifacts\n\n");
        meeting.record.linked_artifacts.iter().for_each(|path| notes.push_str(&format!("- {path}\n")));
    }
    notes.trim_end().to_owned()
}
