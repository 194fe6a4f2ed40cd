//! Renders a meeting: its conversation, and the forms to talk in it.
//!
//! The conversation up to the user's last message is a part of the page. The answer to it is a part that a stream
//! renews, so that the form beside it keeps what the user types.

use guild_contract::hall::{Author, MeetingDetail, MeetingMessage, MeetingStatus, MeetingView, Role, TurnEvent};
use maud::{Markup, html};

use super::{artifacts, crumbs, meeting_path, meeting_status};
use crate::{
    frame::page,
    markdown,
    parts::{Viewer, csrf, text},
};

/// The most messages that are shown, and the most bytes of them.
const MESSAGES: usize = 200;
const BYTES: usize = 1 << 20;
/// The most bytes of a tool's answer.
const TOOL_BYTES: usize = 4096;

/// The data of a meeting's page.
#[derive(Debug)]
pub struct MeetingNow {
    /// The answer of `meeting/read`.
    pub detail: MeetingDetail,
    /// The page of the meeting's job.
    pub job: Option<String>,
}

/// The bytes of text, and the tools, of an answer that is shown while it comes.
const SHOWN_BYTES: usize = 256 * 1024;
const SHOWN_TOOLS: usize = 500;

/// The answer of a turn, as far as it has come.
#[derive(Debug, Default)]
pub struct TurnNow {
    /// The worker's text.
    text: String,
    /// The tools that were called, with the answers that have come.
    tools: Vec<Call>,
    /// The host's notes on the turn.
    notes: Vec<String>,
    /// Whether a tool was called since the last piece of text, which then begins a paragraph.
    is_behind_tool: bool,
    /// Whether text was left out.
    is_cut: bool,
}

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    output: Option<String>,
}

impl TurnNow {
    /// Adds the next event of the turn.
    pub fn add(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::TextDelta { text } => {
                if std::mem::take(&mut self.is_behind_tool) && !self.text.is_empty() {
                    self.text.push_str("\n\n");
                }
                if self.text.len() < SHOWN_BYTES {
                    self.text.push_str(&text);
                } else if !self.is_cut {
                    self.is_cut = true;
                    self.notes.push("The answer is long: the page shows all of it when it is complete.".to_owned());
                }
            }
            TurnEvent::ToolUse { .. } if self.tools.len() >= SHOWN_TOOLS => {}
            TurnEvent::ToolUse { id, name, .. } => self.tools.push(Call { id, name, output: None }),
            TurnEvent::ToolResult { tool_use_id, output, .. } => {
                self.is_behind_tool = true;
                let called = self.tools.iter_mut().rev().find(|call| call.id == tool_use_id);
                let mut shown = output.clone();
                // A little more than is shown, so that the cut is told.
                shown.truncate(shown.floor_char_boundary(TOOL_BYTES + 4));
                called.into_iter().for_each(|call| call.output = Some(shown.clone()));
            }
            TurnEvent::ContextCompacted { summary, .. } => self.notes.extend(summary),
            TurnEvent::Error { reason } => self.notes.push(format!("Error: {reason}")),
            TurnEvent::Session { cut, .. } => self.notes.extend(cut),
            TurnEvent::TurnEnd { .. } | TurnEvent::Unknown => {}
        }
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tools.is_empty() && self.notes.is_empty()
    }

    /// The answer in messages of a transcript.
    fn of(messages: &[MeetingMessage]) -> Self {
        let mut turn = Self::default();
        for message in messages {
            match message.role {
                Role::System => turn.notes.push(message.content.clone()),
                Role::User | Role::Assistant => turn.text.push_str(&message.content),
            }
            for tool in message.tool_uses.iter().flatten() {
                let output = Some(tool.output.clone().unwrap_or_default());
                turn.tools.push(Call { id: String::new(), name: tool.name.clone(), output });
            }
        }
        turn
    }
}

/// The whole page.
pub fn meeting(viewer: &Viewer, now: &MeetingNow) -> String {
    let MeetingDetail { meeting, parsed_messages, .. } = &now.detail;
    let path = meeting_path(&meeting.project_name, meeting.id.as_str());
    let title = if meeting.title.trim().is_empty() { meeting.id.as_str() } else { &meeting.title };
    let body = html! {
        (crumbs(&meeting.project_name))
        h1 { (text(title)) }
        p { (meeting_status(meeting.status)) " " (text(&meeting.date))
            @if !meeting.deferred_until.is_empty() { ", deferred to " (text(&meeting.deferred_until)) } }
        p.quiet {
            "Taking part: you, and " (text(&meeting.worker)) " (" (text(&meeting.worker_display_title)) ")"
            @match meeting.created_by {
                Author::User => {},
                Author::Manager => "; the manager asked for it",
                Author::Worker => "; a worker asked for it",
            }
            @if let Some(job) = &now.job { ". " a href=(job) { "Sessions, tokens, cost and log" } }
        }
        @if !meeting.agenda.trim().is_empty() {
            section aria-labelledby="agenda" { h2 id="agenda" { "Subject" } (markdown::render(&meeting.agenda)) }
        }
        @if !meeting.notes.trim().is_empty() {
            section.report aria-labelledby="notes" { h2 id="notes" { "Notes" } (markdown::render(&meeting.notes)) }
        }
        (artifacts(&meeting.project_name, &meeting.linked_artifacts))
        (conversation(meeting, parsed_messages, &path))
        (forms(viewer, meeting, &path))
    };
    page(title, Some(viewer), &body)
}

fn conversation(meeting: &MeetingView, messages: &[MeetingMessage], path: &str) -> Markup {
    let last = messages.iter().rposition(|message| message.role == Role::User).map_or(0, |last| last + 1);
    let (before, answer) = messages.split_at_checked(last).unwrap_or((messages, &[]));
    let mut bytes = 0;
    let shown = before.iter().rev().take(MESSAGES).take_while(|message| {
        bytes += message.content.len();
        bytes <= BYTES
    });
    let left = before.len().saturating_sub(shown.count());
    let answer = TurnNow::of(answer);
    html! {
        section aria-labelledby="conversation" {
            h2 id="conversation" { "Conversation" }
            @if left > 0 { p.quiet { (left) " earlier messages are left out; the transcript of the meeting's job has them." } }
            @for message in before.iter().skip(left) { (said(&meeting.worker, message)) }
            @if meeting.status == MeetingStatus::Open {
                div id="answer" hx-sse:connect={ (path) "?live&after=" (last) } hx-sse:close="done" hx-swap="innerMorph" {
                    (turn(&meeting.worker, &[], &answer, true))
                }
            } @else if !answer.is_empty() {
                (turn(&meeting.worker, &[], &answer, true))
            } @else if before.is_empty() {
                p.quiet { "Nothing was said, or the conversation is not stored any more." }
            }
        }
    }
}

fn said(worker: &str, message: &MeetingMessage) -> Markup {
    let who = match message.role {
        Role::User => "You",
        Role::Assistant => worker,
        Role::System => "The host",
    };
    let turn = TurnNow::of(std::slice::from_ref(message));
    html! {
        article.said.user[message.role == Role::User] {
            h3 { (text(who)) }
            (answer(&turn))
        }
    }
}

/// The answer of a turn, behind messages that the page did not have yet. Assistive technology reads it out once it is
/// complete.
pub fn turn(worker: &str, before: &[MeetingMessage], turn: &TurnNow, is_over: bool) -> Markup {
    html! {
        @for message in before { (said(worker, message)) }
        div.said role="log" aria-live="polite" aria-busy=(!is_over) aria-label={ "Answer of " (text(worker)) } {
            @if !is_over || !turn.is_empty() { h3 { (text(worker)) @if !is_over { " " span.quiet { "is answering…" } } } }
            (answer(turn))
        }
    }
}

fn answer(turn: &TurnNow) -> Markup {
    html! {
        (markdown::render(&turn.text))
        @for call in &turn.tools {
            @match &call.output {
                None => p.quiet { "calls " code { (text(&call.name)) } },
                Some(output) => details {
                    summary.quiet { "called " code { (text(&call.name)) } }
                    pre tabindex="0" { (text(output.get(..output.floor_char_boundary(TOOL_BYTES)).unwrap_or(output))) }
                    @if output.len() > TOOL_BYTES { p.quiet { "Cut after 4 KiB." } }
                }
            }
        }
        @for note in &turn.notes { p.quiet.summary { (text(note)) } }
    }
}

fn forms(viewer: &Viewer, meeting: &MeetingView, path: &str) -> Markup {
    let message = |required: bool, name: &str| {
        html! { p { label for="message" { (name) } br; textarea id="message" name="message" rows="4" required[required] {} } }
    };
    html! {
        @match meeting.status {
            MeetingStatus::Open => {
                form method="post" action=(path) {
                    (csrf(viewer))
                    (message(true, "Your message"))
                    p { button name="do" value="send" { "Send" } }
                }
                form.inline method="post" action=(path) {
                    (csrf(viewer))
                    button name="do" value="interrupt" { "Interrupt the answer" } " "
                    button name="do" value="close" { "Close the meeting" }
                }
            },
            MeetingStatus::Requested => {
                form method="post" action=(path) {
                    (csrf(viewer))
                    (message(false, "Your first message, if you have one"))
                    p { button name="do" value="accept" { "Accept" } " " button name="do" value="decline" { "Decline" } }
                }
                form method="post" action=(path) {
                    (csrf(viewer))
                    p {
                        label for="until" { "Put off to" } " " input id="until" name="until" type="date" required; " "
                        button name="do" value="defer" { "Put off" }
                    }
                }
            },
            MeetingStatus::Closed | MeetingStatus::Declined => {},
        }
    }
}
