//! Renders the transcript of a job: as a picture of its sessions on a time axis, and as a list whose entries unfold.

use std::collections::HashMap;

use guild_contract::text::one_line;
use guild_session::transcript::{Entry, Line};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::parts::{number, seconds, text};

/// The most characters of a title.
const TITLE_CHARS: usize = 120;
/// The most bytes of a text that an entry unfolds to. `guild logs` has whole texts.
const DETAIL_BYTES: usize = 32 * 1024;
/// The width of the picture, and of its labels.
const WIDTH: f64 = 1000.0;
const LABELS: f64 = 110.0;
/// The height of a session's two lanes: turns of the model above, calls of tools below.
const SESSION: usize = 52;
/// The height of the axis.
const AXIS: usize = 24;
/// The number of sections of the axis.
const TICKS: u32 = 5;

/// An entry of the list, and its mark in the picture.
struct Mark {
    kind: Kind,
    session: u32,
    from: Timestamp,
    /// The end, if it is known; the same as `from` for what takes no time.
    to: Option<Timestamp>,
    title: String,
    /// The texts that it unfolds to, each with a heading.
    details: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Session,
    Turn,
    Tool,
    Question,
    Decision,
    Message,
    Note,
    Failed,
    End,
}

impl Kind {
    fn of_tool(tool: &str) -> Self {
        // The CLI's names of tools begin with that of their server.
        match tool.rsplit("__").next().unwrap_or(tool) {
            "log_question" => Self::Question,
            "record_decision" => Self::Decision,
            _ => Self::Tool,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Turn => "turn",
            Self::Tool => "tool",
            Self::Question => "question",
            Self::Decision => "decision",
            Self::Message => "message",
            Self::Note => "note",
            Self::Failed => "failed",
            Self::End => "end",
        }
    }

    /// Whether it belongs to the lane of tools.
    fn is_below(self) -> bool {
        matches!(self, Self::Tool | Self::Question | Self::Decision | Self::Failed)
    }
}

/// The timeline of a job that began at `began`, from lines of its transcript. What still runs lasts until `now`.
pub(crate) fn timeline(began: &str, now: Timestamp, transcript: &[String]) -> Markup {
    let marks = marks(transcript);
    let Some(first) = marks.first() else { return html! { p.quiet { "No session has begun." } } };
    let began = began.parse().unwrap_or(first.from);
    html! {
        (picture(began, now, &marks))
        ol.timeline {
            @for (index, mark) in marks.iter().enumerate() {
                li id={ "e" (index) } class=(mark.kind.word()) { (entry(began, mark)) }
            }
        }
    }
}

/// One entry of the list.
fn entry(began: Timestamp, mark: &Mark) -> Markup {
    let lasted = mark.to.filter(|to| *to > mark.from).map(|to| seconds(between(mark.from, to)));
    let head = html! {
        span.offset { "+" (seconds(between(began, mark.from))) } " "
        span.kind { (mark.kind.word()) } " "
        (text(&mark.title))
        @if let Some(lasted) = lasted { " " span.quiet { (lasted) } }
        @if mark.to.is_none() { " " span.quiet { "under way" } }
    };
    html! {
        @if mark.details.is_empty() { div { (head) } } @else {
            details {
                summary { (head) }
                @for (name, detail) in &mark.details {
                    h4 { (name) }
                    pre { (text(cut(detail))) }
                    @if detail.len() > DETAIL_BYTES { p.quiet { "Cut after 32 KiB." } }
                }
            }
        }
    }
}

fn cut(detail: &str) -> &str {
    detail.get(..detail.floor_char_boundary(DETAIL_BYTES)).unwrap_or(detail)
}

/// The sessions on a time axis.
fn picture(began: Timestamp, now: Timestamp, marks: &[Mark]) -> Markup {
    let last = marks.iter().map(|mark| mark.to.unwrap_or(now)).max().unwrap_or(now);
    let whole = between(began, last).max(0.001);
    let x = |at: Timestamp| LABELS + between(began, at) / whole * (WIDTH - LABELS - 10.0);
    let mut sessions: Vec<u32> = marks.iter().map(|mark| mark.session).collect();
    sessions.sort_unstable();
    sessions.dedup();
    let row = |session: u32| sessions.iter().position(|other| *other == session).unwrap_or_default() * SESSION + 8;
    let height = sessions.len() * SESSION + AXIS;
    html! {
        svg.timeline viewBox=(format!("0 0 {WIDTH} {height}")) role="group" aria-label="sessions on a time axis" {
            @for tick in 0..=TICKS {
                @let offset = whole * f64::from(tick) / f64::from(TICKS);
                @let at = format!("{:.1}", LABELS + offset / whole * (WIDTH - LABELS - 10.0));
                line.axis x1=(at) x2=(at) y1="0" y2=(height - AXIS) {}
                text x=(at) y=(height - 8) text-anchor=(if tick == TICKS { "end" } else { "middle" }) { (seconds(offset)) }
            }
            @for session in &sessions {
                text x="0" y=(row(*session) + 22) { "session " (session) }
            }
            @for (index, mark) in marks.iter().enumerate() {
                @let (from, to) = (x(mark.from), x(mark.to.unwrap_or(now)));
                @let y = row(mark.session) + if mark.kind.is_below() { 20 } else { 0 };
                a href={ "#e" (index) } {
                    rect class=(mark.kind.word()) x=(format!("{from:.1}")) y=(y) height="16" rx="2"
                        width=(format!("{:.1}", (to - from).max(4.0))) {
                        title { (mark.kind.word()) " " (text(&mark.title)) }
                    }
                }
            }
        }
    }
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// The marks of a transcript, in the order of their beginnings. Lines that are not from this version are left out.
fn marks(transcript: &[String]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    // The calls without a result, and the end of each session's last entry.
    let (mut calls, mut ends) = (HashMap::<(u32, String), usize>::new(), HashMap::<u32, Timestamp>::new());
    for line in transcript {
        let Ok(Line { at, entry }) = serde_json::from_str(line) else { continue };
        let (Ok(at), Some(session)) = (at.parse::<Timestamp>(), entry.session()) else { continue };
        let before = ends.insert(session, at);
        let point = |kind, title: String, details| Mark { kind, session, from: at, to: Some(at), title, details };
        let mark = match entry {
            Entry::Session { agent, model, system_prompt, prompt, tools, .. } => {
                let title = format!("{agent} {}", model.unwrap_or_default());
                let details = vec![("System prompt", system_prompt), ("Prompt", prompt), ("Tools", tools.join(", "))];
                Some(point(Kind::Session, title, details))
            }
            Entry::Turn { turn, model, text, usage, .. } => {
                let tokens = number(usage.tokens());
                let title = format!("{turn} · {} · {tokens} tokens", model.as_deref().unwrap_or("model unknown"));
                let details = if text.is_empty() { Vec::new() } else { vec![("Answer", text)] };
                Some(Mark { from: before.unwrap_or(at), ..point(Kind::Turn, title, details) })
            }
            Entry::Call { call, tool, input, .. } => {
                calls.insert((session, call), marks.len());
                let title = format!("{tool} {}", one_line(&input.to_string(), TITLE_CHARS));
                Some(Mark { to: None, ..point(Kind::of_tool(&tool), title, vec![("Input", pretty(&input))]) })
            }
            Entry::Result { call, output, error, .. } => {
                let called = calls.remove(&(session, call)).and_then(|index| marks.get_mut(index));
                if let Some(mark) = called {
                    mark.to = Some(at);
                    match (error, output) {
                        (Some(error), _) => {
                            mark.kind = Kind::Failed;
                            mark.details.push(("Error", error));
                        }
                        (None, output) => mark.details.push(("Answer", pretty(&output.unwrap_or_default()))),
                    }
                }
                None
            }
            Entry::Message { text, .. } => {
                Some(point(Kind::Message, one_line(&text, TITLE_CHARS), vec![("Message", text)]))
            }
            Entry::Note { text, .. } | Entry::Compacted { text, .. } => Some(point(Kind::Note, text, Vec::new())),
            Entry::Resumed { .. } => {
                Some(point(Kind::Note, "resumed after a restart of the host".to_owned(), Vec::new()))
            }
            Entry::End { ending, text, .. } => {
                let details = if text.is_empty() { Vec::new() } else { vec![("Final text", text)] };
                Some(point(Kind::End, ending, details))
            }
            // The pieces of an answer are in its turn.
            Entry::Text { .. } | Entry::Handle { .. } | Entry::Used { .. } | Entry::Truncated { .. } => None,
        };
        marks.extend(mark);
    }
    marks
}

/// A text as it is, and other values as indented JSON.
fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSCRIPT: [&str; 8] = [
        r#"{"at":"2026-01-01T00:00:02Z","type":"session","session":1,"agent":"api","model":"m","systemPrompt":"be brief","prompt":"<b>go</b>","tools":["Read"]}"#,
        r#"{"at":"2026-01-01T00:00:05Z","type":"turn","session":1,"turn":1,"model":"m","usage":{"turns":1,"inputTokens":1000,"cachedTokens":0,"outputTokens":20,"costUsd":0.1}}"#,
        r#"{"at":"2026-01-01T00:00:05Z","type":"call","session":1,"call":"c1","tool":"Read","input":{"file":"<script>"}}"#,
        r#"{"at":"2026-01-01T00:00:05Z","type":"call","session":1,"call":"c2","tool":"mcp__job__log_question","input":{"question":"why?"}}"#,
        r#"{"at":"2026-01-01T00:00:06Z","type":"result","session":1,"call":"c2","ms":2,"output":"logged"}"#,
        r#"{"at":"2026-01-01T00:00:07Z","type":"result","session":1,"call":"c1","ms":2000,"error":"no such file"}"#,
        "not a line",
        r#"{"at":"2026-01-01T00:00:07Z","type":"call","session":1,"call":"c3","tool":"Grep","input":{}}"#,
    ];

    #[test]
    fn turns_and_calls_have_their_place_on_the_axis_and_unfold_to_input_and_answer() {
        let transcript = TRANSCRIPT.map(str::to_owned);
        let marks = marks(&transcript);
        let shown = |mark: &Mark| {
            let lasted = mark.to.map(|to| between(mark.from, to));
            (mark.kind.word(), lasted, mark.details.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        assert_eq!(
            marks.iter().map(shown).collect::<Vec<_>>(),
            [
                ("session", Some(0.0), vec!["System prompt", "Prompt", "Tools"]),
                ("turn", Some(3.0), vec![]),
                ("failed", Some(2.0), vec!["Input", "Error"]),
                ("question", Some(1.0), vec!["Input", "Answer"]),
                ("tool", None, vec!["Input"]),
            ]
        );
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let html = timeline("2026-01-01T00:00:00Z", now, &transcript).into_string();
        assert!(html.contains("1\u{202f}020 tokens") && html.contains("under way"), "{html}");
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        // The turn takes the seconds from the second to the fifth, of ten.
        assert!(html.contains(r#"<rect class="turn" x="286.0" y="8" height="16" rx="2" width="264.0">"#), "{html}");
    }
}
