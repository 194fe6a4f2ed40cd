//! Renders the conversation of a meeting for people and clients, from the transcript of its job. The result is never
//! read again.
//!
//! In the Markdown, a line of a message that looks like a heading of a turn or of a tool gets a backslash, HTML is
//! escaped, and a block of code ends with its message, so that no message can imitate or hide another one.

use std::{collections::BTreeMap, iter};

use guild_contract::hall::{MeetingMessage, Role, ToolUse, ToolUseStatus};
use guild_session::transcript::{Entry, Line, SUCCESS};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use super::{
    Meeting,
    event::{CONVERSATION, shown},
};

/// The beginnings of the lines with which the Markdown starts a turn or a tool.
const HEADINGS: [&str; 5] = ["## User (", "## Assistant (", "## Context Compacted (", "## Error (", ">Tool:"];
/// The beginnings of a turn's heading, letters only.
const TURNS: [&str; 4] = ["User(", "Assistant(", "ContextCompacted(", "Error("];
/// The most passes over a text, since each backslash can change the meaning of the rest. After them, the text is quoted
/// as a whole.
const LOOKS: usize = 8;
/// The most characters of each quotation in plain notes.
const QUOTED: usize = 400;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The message's id, such as `transcript-1` for the first.
    pub id: String,
    /// The speaker.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The tools that the worker called.
    pub tool_uses: Option<Vec<ToolUse>>,
    /// The time of its beginning: RFC 3339 in UTC.
    pub at: String,
    /// The heading in the Markdown.
    heading: &'static str,
}

impl From<Message> for MeetingMessage {
    fn from(Message { id, role, content, tool_uses, .. }: Message) -> Self {
        Self { id, role, content, tool_uses }
    }
}

/// The messages of the conversation in a transcript, in order.
pub fn messages(lines: &[Line]) -> Vec<Message> {
    let mut all = Collector::default();
    for Line { at, entry } in lines {
        if entry.session() != Some(CONVERSATION) {
            continue;
        }
        match entry {
            Entry::Message { text, .. } => all.add(Role::User, "User", text.clone(), at),
            Entry::Text { text, .. } => {
                all.has_pieces = true;
                all.say(text, at);
            }
            // The pieces of the turn are its text.
            Entry::Turn { .. } if all.has_pieces => all.has_pieces = false,
            Entry::Turn { text, .. } => all.say(text, at),
            Entry::Call { call, tool, .. } => drop(all.calls.insert(call.clone(), tool.clone())),
            Entry::Result { call, output, error, .. } => {
                let name = all.calls.remove(call).unwrap_or_default();
                let output = Some(shown(output.clone(), error.clone())).filter(|output| !output.is_empty());
                all.in_answer(at, |answer| {
                    let tools = answer.tool_uses.get_or_insert_default();
                    tools.push(ToolUse { name, status: ToolUseStatus::Complete, output });
                });
                all.is_behind_tool = true;
            }
            Entry::Compacted { text, .. } => all.add(Role::System, "Context Compacted", text.clone(), at),
            Entry::End { ending, .. } => {
                all.has_pieces = false;
                if ending != SUCCESS {
                    all.add(Role::System, "Error", format!("Error: {ending}"), at);
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
    /// Whether the worker's last action was a call, so that its next text begins a paragraph.
    is_behind_tool: bool,
}

impl Collector {
    fn add(&mut self, role: Role, heading: &'static str, content: String, at: &str) {
        let id = format!("transcript-{}", self.messages.len() + 1);
        self.is_behind_tool = false;
        self.messages.push(Message { id, role, content, tool_uses: None, at: at.to_owned(), heading });
    }

    /// Changes the worker's answer in the current turn. The answer continues after a note that it was cut off.
    fn in_answer(&mut self, at: &str, change: impl FnOnce(&mut Message)) {
        let of_turn = |message: &&mut Message| message.role != Role::User;
        let found = self.messages.iter_mut().rev().take_while(of_turn).find(|message| message.role == Role::Assistant);
        if let Some(answer) = found {
            return change(answer);
        }
        self.add(Role::Assistant, "Assistant", String::new(), at);
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

/// Escapes a text so that none of its lines imitates a line of the transcript, and the following lines keep their
/// meaning.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        if is_forged(line) { format!("\\{line}") } else { line.to_owned() }
    };
    let mut text = one_line_end(text).split('\n').map(line).collect::<Vec<_>>().join("\n");
    for _ in 0..LOOKS {
        let Found { mut marks, fence } = look(&text);
        if marks.is_empty() {
            let open = fence.filter(|_| hides_what_follows(&text));
            return open.map_or_else(|| text.clone(), |fence| format!("{text}\n{fence}"));
        }
        marks.sort_unstable();
        marks.dedup();
        let ends = marks.iter().copied().chain([text.len()]);
        let parts = iter::once(0).chain(marks.iter().copied()).zip(ends).map(|(from, to)| text.get(from..to));
        text = parts.map(Option::unwrap_or_default).collect::<Vec<_>>().join("\\");
    }
    text.split('\n').map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// The parts of a text that a transcript must not contain.
struct Found {
    /// The positions that need a backslash: each `<` of HTML, and each heading that looks like a turn's.
    marks: Vec<usize>,
    /// The fence of the last block of code.
    fence: Option<String>,
}

fn look(text: &str) -> Found {
    let (mut marks, mut fence, mut heading) = (Vec::new(), None, None::<(usize, String)>);
    for (event, range) in Parser::new(text).into_offset_iter() {
        let of_event = text.get(range.clone()).unwrap_or_default();
        match event {
            Event::Html(_) | Event::InlineHtml(_) => {
                marks.extend(of_event.match_indices('<').map(|(at, _)| range.start + at));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some((range.start, String::new())),
            Event::End(TagEnd::Heading(_)) => {
                marks.extend(heading.take().filter(|(_, text)| is_turn(text)).map(|(at, _)| at));
            }
            Event::Text(part) | Event::Code(part) => heading.iter_mut().for_each(|(_, text)| text.push_str(&part)),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                let mark = of_event.chars().next();
                fence = Some(of_event.chars().take_while(|c| Some(*c) == mark).collect());
            }
            _ => {}
        }
    }
    Found { marks, fence }
}

/// Whether a heading, as it is displayed, reads like a turn's heading.
fn is_turn(heading: &str) -> bool {
    let shown: String = heading.chars().filter(|c| c.is_alphanumeric() || ['(', '\\'].contains(c)).collect();
    TURNS.iter().any(|turn| shown.starts_with(turn))
}

/// Whether a heading after a text would become a part of it.
fn hides_what_follows(text: &str) -> bool {
    let (follows, at) = (format!("{text}\n\n## x"), text.len() + 2);
    !Parser::new(&follows)
        .into_offset_iter()
        .any(|(event, range)| matches!(event, Event::Start(Tag::Heading { .. })) && range.start == at)
}

/// Whether readers of Markdown take a line for one of the transcript's own, regardless of its spacing.
fn is_forged(line: &str) -> bool {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ").replace("> ", ">");
    HEADINGS.iter().any(|heading| line.starts_with(heading))
}

/// The text with one kind of line end in place of all characters that readers take for one.
fn one_line_end(text: &str) -> String {
    text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n")
}

/// Writes notes without a model: from the user's messages and the record.
pub(crate) fn plain_notes(meeting: &Meeting, messages: &[Message], why: &str) -> String {
    let short = |text: &str| {
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = one_line.chars().take(QUOTED).collect();
        if cut.len() < one_line.len() { format!("{cut}…") } else { cut }
    };
    let mut notes = format!("These notes were not written by a model: {}.\n", why.trim_end_matches('.'));
    notes.push_str("\n## The user's messages\n\n");
    messages.iter().filter(|said| said.role == Role::User).for_each(|said| {
        notes.push_str(&format!("- {}\n", short(&said.content)));
    });
    let log = &meeting.record.meeting_log;
    let progress: Vec<_> = log.iter().filter(|entry| entry.event == "progress_summary").collect();
    if !progress.is_empty() {
        notes.push_str("\n## Progress\n\n");
        progress.iter().for_each(|entry| notes.push_str(&format!("- {}\n", short(&entry.reason))));
    }
    if let Some(last) = messages.iter().rfind(|said| said.role == Role::Assistant && !said.content.trim().is_empty()) {
        notes.push_str("\n## The last answer\n\n");
        last.content.trim().lines().for_each(|line| notes.push_str(&format!("> {line}\n")));
    }
    if !meeting.record.linked_artifacts.is_empty() {
        notes.push_str("\n## Artifacts\n\n");
        meeting.record.linked_artifacts.iter().for_each(|path| notes.push_str(&format!("- {path}\n")));
    }
    notes.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headings of a text and of what follows it, as they are shown, and whether any HTML is in it.
    fn shown(text: &str) -> (Vec<String>, bool) {
        let follows = format!("{}\n\n## User (now)\n", escaped(text));
        let (mut headings, mut has_html, mut is_in) = (Vec::new(), false, false);
        for event in Parser::new(&follows) {
            match event {
                Event::Start(Tag::Heading { .. }) => {
                    is_in = true;
                    headings.push(String::new());
                }
                Event::End(TagEnd::Heading(_)) => is_in = false,
                Event::Text(part) if is_in => headings.last_mut().unwrap().push_str(&part),
                Event::Html(_) | Event::InlineHtml(_) => has_html = true,
                _ => {}
            }
        }
        (headings, has_html)
    }

    #[test]
    fn a_message_neither_has_the_heading_of_a_turn_nor_hides_the_next() {
        for text in [
            "## User (2026)",
            "User (2026)\n---",
            "User\n(2026)\n===",
            "## User&#32;(2026)",
            "## \u{200b}User (2026)",
            "## **User** (2026)",
            "- ## Assistant (2026)",
            "> # `User` (2026)",
            "<h2>User (2026)</h2>",
            "so <h2>User (2026)</h2>",
            "<div>\n\n<h2>User (2026)</h2>\n## U&#115;er (2026)\n",
            "<!--",
            "<pre>\n## User (2026)",
            "```\nfn main() {",
            "~~~~ rust\nlet x = 1;\n~~~",
            "- a\n  ```\n## User (2026)",
            "- a\n\n      ```\n",
            "<div>\n```\n</div>",
        ] {
            let (headings, has_html) = shown(text);
            let turns = headings.iter().filter(|heading| is_turn(heading)).count();
            assert!(turns == 1 && !has_html, "{text:?} became {:?}: {headings:?}", escaped(text));
        }
        let plain = "# Plan\n\n1 < 2\n\n```html\n<b>User (x)</b>\n```\n\nUser (who asked)";
        assert_eq!(escaped(plain), plain);
    }
}
