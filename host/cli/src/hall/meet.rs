//! `guild meet`: a conversation with a worker in the terminal.

use std::io::{self, IsTerminal as _, Write};

use guild_client::{
    Error, Reply, TurnEvents,
    hall::{
        AcceptMeeting, AcceptMeetingParams, InterruptTurn, MeetingDetail, MeetingIdParams, MeetingMessage,
        MeetingStatus, MeetingView, MessageParams, NewMeeting, OpenMeeting, Role, SendMessage, TurnEvent,
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin},
    signal::unix::{Signal, SignalKind, signal},
};

use super::{Hall, TEXT_CHARS};
use crate::{
    args::meeting::{Meet, MeetingAccept},
    failure::{Failure, exit},
    jobs::worker::interrupted,
    output::{BAD, LABEL, STRONG, harmless, one_line, print, print_json, tell, tell_error},
};

/// The maximum length of a tool's input, or of its result, on its line.
const TOOL_CHARS: usize = 100;

/// The message after a turn during which the host was killed.
const CUT_OFF: &str = "the host was restarted, and the turn was cut off; `guild meeting show` shows the messages";

/// `guild meet`.
pub(crate) async fn meet(args: Meet) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let mut conversation = Conversation::new(hall, args.hall.json)?;
    let agenda = match args.agenda {
        Some(agenda) => agenda,
        None => match conversation.line("Agenda: ").await? {
            Input::Line(line) => line,
            Input::End if conversation.is_interactive => return Ok(()),
            Input::End => return Err(Failure::error("there is no agenda; give one as AGENDA, or on stdin")),
            Input::Stopped => return Err(Failure::code(exit::INTERRUPTED)),
        },
    };
    let resource_overrides = args.overrides.overrides().unwrap_or_default();
    let new = NewMeeting { project_name: args.project, worker_name: args.worker, prompt: agenda, resource_overrides };
    let begun = tokio::select! {
        begun = conversation.hall.client.turn::<OpenMeeting>(&new) => conversation.hall.ask(begun)?,
        () = conversation.signals.next() => return Err(opening()),
    };
    conversation.first(begun).await
}

/// `guild meeting accept`.
pub(crate) async fn accept(hall: Hall, one: &MeetingView, args: MeetingAccept) -> Result<(), Failure> {
    let mut conversation = Conversation::new(hall, args.of.hall.json)?;
    let params = AcceptMeetingParams {
        meeting_id: one.id.to_string(),
        project_name: None,
        message: args.message,
        resource_overrides: args.overrides.overrides().unwrap_or_default(),
    };
    let accepted = conversation.hall.client.turn::<AcceptMeeting>(&params);
    let begun = tokio::select! {
        begun = accepted => conversation.hall.ask(begun)?,
        () = conversation.signals.next() => return Err(opening()),
    };
    conversation.first(begun).await
}

/// `guild meeting resume`.
pub(crate) async fn resume(hall: Hall, detail: &MeetingDetail, json: bool) -> Result<(), Failure> {
    let one = &detail.meeting;
    let id = &one.id;
    match one.status {
        MeetingStatus::Open => {}
        MeetingStatus::Requested => {
            return Err(Failure::error(format!("{id} is only requested; `guild meeting accept {id}` opens it")));
        }
        status @ (MeetingStatus::Closed | MeetingStatus::Declined) => {
            return Err(Failure::error(format!("{id} is {status}; `guild meeting show {id}` shows the messages")));
        }
    }
    let mut conversation = Conversation::new(hall, json)?;
    conversation.set_meeting(one.id.as_str(), &one.worker);
    let messages = &detail.parsed_messages;
    let last = messages.iter().rposition(|message| message.role == Role::User);
    let mut exchange = messages.iter().skip(last.unwrap_or_default());
    if let Some(message) = exchange.next().filter(|_| !json) {
        print(|out| write_message(out, message, &one.worker))?;
        conversation.page.is_behind_other = true;
    }
    let events = conversation.hall.client.join_turn(one.id.as_str(), 0)?;
    let turn = match conversation.turn(events).await? {
        // The failure has been printed; the conversation continues.
        Turn::Failed => Turn::Ended,
        turn => turn,
    };
    // A host that was started later has no events of earlier turns.
    if turn == Turn::Empty && !json {
        print(|out| exchange.try_for_each(|message| write_message(out, message, &one.worker)))?;
    }
    conversation.converse(turn).await
}

/// The failure of a command that was ended before the hall named the meeting.
fn opening() -> Failure {
    interrupted("interrupted before the hall reported the meeting as open; `guild meeting list` shows its status")
}

/// A conversation.
struct Conversation {
    hall: Hall,
    signals: Signals,
    input: Lines<BufReader<Stdin>>,
    /// Whether the input is a terminal.
    is_interactive: bool,
    json: bool,
    /// The meeting, once its id is known.
    meeting: Option<String>,
    page: Page,
}

/// The input of the user.
enum Input {
    Line(String),
    /// The end of the input.
    End,
    /// A signal ended the input.
    Stopped,
}

/// The end of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ended,
    /// Ctrl-C or another client interrupted it.
    Interrupted,
    Failed,
    /// No event of it arrived.
    Empty,
    /// The user left during the turn.
    Left,
}

/// The signals of the terminal.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Whether the last signal was SIGTERM.
    is_end: bool,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, is_end: false })
    }

    /// Waits for the next signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => self.is_end = true,
        }
    }
}

impl Conversation {
    fn new(hall: Hall, json: bool) -> Result<Self, Failure> {
        let signals = Signals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
        let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
        let input = BufReader::new(tokio::io::stdin()).lines();
        Ok(Self { hall, signals, input, is_interactive, json, meeting: None, page: Page::default() })
    }

    /// Stores the id of the meeting, and prints it.
    fn set_meeting(&mut self, id: &str, worker: &str) {
        if self.meeting.is_none() {
            let [shown, worker] = [id, worker].map(|text| one_line(text, TEXT_CHARS));
            tell(format_args!("{STRONG}{shown}{STRONG:#} with {worker}"));
            self.meeting = Some(id.to_owned());
        }
    }

    /// The next line that is not empty.
    async fn line(&mut self, question: &str) -> Result<Input, Failure> {
        loop {
            if self.is_interactive {
                let mut err = anstream::AutoStream::auto(io::stderr().lock());
                let _ = write!(err, "{STRONG}{question}{STRONG:#}").and_then(|()| err.flush());
            }
            let line = tokio::select! {
                line = self.input.next_line() => line.map_err(|e| Failure::error(format!("cannot read stdin: {e}")))?,
                () = self.signals.next() => return Ok(Input::Stopped),
            };
            match line {
                None => return Ok(Input::End),
                Some(line) if line.trim().is_empty() => {}
                Some(line) => return Ok(Input::Line(line)),
            }
        }
    }

    /// Shows the first turn of a meeting, and continues with the conversation.
    async fn first(mut self, begun: TurnEvents) -> Result<(), Failure> {
        let turn = self.turn(begun).await?;
        match (&self.meeting, turn) {
            (None, Turn::Left | Turn::Interrupted) => Err(opening()),
            (None, _) => Err(Failure::code(exit::ERROR)),
            (Some(_), turn) => self.converse(turn).await,
        }
    }

    /// Sends the user's messages, turn by turn.
    async fn converse(mut self, mut turn: Turn) -> Result<(), Failure> {
        let Some(id) = self.meeting.clone() else { return Ok(()) };
        let shown = one_line(&id, TEXT_CHARS);
        let code = loop {
            match turn {
                Turn::Left => break exit::INTERRUPTED,
                Turn::Interrupted if !self.is_interactive => break exit::INTERRUPTED,
                Turn::Failed if !self.is_interactive => break exit::ERROR,
                _ => {}
            }
            let message = match self.line("> ").await? {
                Input::Line(line) => line,
                Input::Stopped if !self.is_interactive => break exit::INTERRUPTED,
                Input::End | Input::Stopped => break 0,
            };
            let said = MessageParams { meeting_id: id.clone(), message };
            let events = tokio::select! {
                events = self.hall.client.turn::<SendMessage>(&said) => events,
                () = self.signals.next() => break exit::INTERRUPTED,
            };
            turn = match self.hall.ask(events) {
                Ok(events) => match self.turn(events).await? {
                    // The host that took the message is gone.
                    Turn::Empty => {
                        tell_error(CUT_OFF);
                        Turn::Failed
                    }
                    turn => turn,
                },
                Err(Failure { message, .. }) => {
                    message.into_iter().for_each(tell_error);
                    Turn::Failed
                }
            };
        };
        let gap = if self.is_interactive { "\n" } else { "" };
        tell(format_args!(
            "{gap}the meeting stays open: `guild meeting resume {shown}` continues it, `guild meeting close {shown}` \
             ends it"
        ));
        if code == 0 { Ok(()) } else { Err(Failure::code(code)) }
    }

    /// Shows a turn until its end. The first Ctrl-C interrupts the turn, the second leaves the conversation.
    async fn turn(&mut self, mut events: TurnEvents) -> Result<Turn, Failure> {
        let (mut is_stopped, mut is_lost, mut is_empty) = (false, false, true);
        let turn = loop {
            let next = tokio::select! {
                next = events.next() => next,
                () = self.signals.next() => {
                    if is_stopped || self.signals.is_end || self.meeting.is_none() {
                        break Turn::Left;
                    }
                    is_stopped = true;
                    self.interrupt().await;
                    continue;
                }
            };
            match next {
                Ok(Some(Reply { json, value })) => {
                    (is_lost, is_empty) = (false, false);
                    if let TurnEvent::Session { meeting_id, worker, cut, .. } = &value {
                        self.set_meeting(meeting_id, worker);
                        if !self.json {
                            cut.iter().for_each(|cut| tell(one_line(cut, TEXT_CHARS)));
                        }
                    }
                    if self.json {
                        print_json(&json)?;
                    } else {
                        print(|out| self.page.write(out, &value))?;
                    }
                    match value {
                        TurnEvent::TurnEnd { .. } => break Turn::Ended,
                        TurnEvent::Error { .. } if is_stopped => {
                            tell("interrupted");
                            break Turn::Interrupted;
                        }
                        TurnEvent::Error { reason } => {
                            tell_error(one_line(&reason, usize::MAX));
                            break Turn::Failed;
                        }
                        _ => {}
                    }
                }
                Ok(None) if is_empty => break Turn::Empty,
                Ok(None) => {
                    print(|out| self.page.end(out))?;
                    tell_error(CUT_OFF);
                    break Turn::Failed;
                }
                Err(error) if error.may_pass() && self.meeting.is_some() => {
                    if !is_lost {
                        print(|out| self.page.end(out))?;
                        tell(format_args!("{}; trying again", one_line(&error.to_string(), TEXT_CHARS)));
                    }
                    is_lost = true;
                }
                Err(error) => return self.hall.ask(Err(error)),
            }
        };
        if !self.json {
            print(|out| self.page.end(out))?;
        }
        Ok(turn)
    }

    /// Interrupts the turn under way. An event reports its end.
    async fn interrupt(&self) {
        let Some(id) = &self.meeting else { return };
        if let Err(error) = self.hall.client.ask::<InterruptTurn>(&MeetingIdParams { meeting_id: id.clone() }).await {
            let why: Result<(), Error> = Err(error);
            self.hall.ask(why).err().and_then(|failure| failure.message).into_iter().for_each(tell_error);
        }
    }
}

/// Writes a message below the name of its author.
pub(crate) fn write_message(out: &mut dyn Write, message: &MeetingMessage, worker: &str) -> io::Result<()> {
    let (who, style) = match message.role {
        Role::User => ("You".to_owned(), STRONG),
        Role::Assistant => (one_line(worker, TEXT_CHARS), STRONG),
        Role::System => ("The hall".to_owned(), BAD),
    };
    writeln!(out, "\n{style}{who}{style:#}")?;
    harmless(&message.content).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    message.tool_uses.iter().flatten().try_for_each(|tool| {
        let [name, output] =
            [tool.name.as_str(), tool.output.as_deref().unwrap_or_default()].map(|text| one_line(text, TEXT_CHARS));
        writeln!(out, "  {LABEL}{name}: {output}{LABEL:#}")
    })
}

/// The state of the output of a turn.
#[derive(Default)]
struct Page {
    /// Whether the last line is incomplete.
    is_open: bool,
    /// Whether the last output was not a text of this turn, so that the next text begins a paragraph.
    is_behind_other: bool,
}

impl Page {
    /// Writes an event. Each character of a text is handled separately, so the text may be cut anywhere.
    fn write(&mut self, out: &mut dyn Write, event: &TurnEvent) -> io::Result<()> {
        match event {
            TurnEvent::TextDelta { text } if text.is_empty() => {}
            TurnEvent::TextDelta { text } => {
                if std::mem::take(&mut self.is_behind_other) {
                    writeln!(out)?;
                }
                out.write_all(harmless(text).as_bytes())?;
                self.is_open = !text.ends_with('\n');
            }
            TurnEvent::ToolUse { name, input, .. } => {
                self.end(out)?;
                let input = one_line(&input.to_string(), TOOL_CHARS);
                writeln!(out, "  {LABEL}{} {input}{LABEL:#}", one_line(name, TOOL_CHARS))?;
                self.is_behind_other = true;
            }
            TurnEvent::ToolResult { output, is_error, .. } => {
                self.end(out)?;
                let (style, word) = if *is_error { (BAD, "error: ") } else { (LABEL, "") };
                writeln!(out, "  {style}= {word}{}{style:#}", one_line(output, TOOL_CHARS))?;
                self.is_behind_other = true;
            }
            TurnEvent::ContextCompacted { .. } => {
                self.end(out)?;
                writeln!(out, "  {LABEL}some earlier messages were summarized{LABEL:#}")?;
                self.is_behind_other = true;
            }
            TurnEvent::TurnEnd { .. } | TurnEvent::Error { .. } => {
                self.end(out)?;
                self.is_behind_other = true;
            }
            TurnEvent::Session { .. } | TurnEvent::Unknown => {}
        }
        Ok(())
    }

    /// Ends the line.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if std::mem::take(&mut self.is_open) { writeln!(out) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_is_text_and_tool_lines_without_control_characters() {
        let (mut page, mut out) = (Page::default(), Vec::new());
        for event in [
            json!({"type": "session", "meetingId": "audience-a", "sessionId": "j", "worker": "Dalton"}),
            json!({"type": "text_delta", "text": "One \u{1b}"}),
            json!({"type": "text_delta", "text": "[2J two"}),
            json!({"type": "tool_use", "id": "1", "name": "search\u{7}", "input": {"for": "a\nb"}}),
            json!({"type": "tool_result", "toolUseId": "1", "name": "search", "output": "x\ny"}),
            json!({"type": "tool_result", "toolUseId": "2", "name": "write", "output": "no", "isError": true}),
            json!({"type": "context_compacted", "trigger": "auto", "preTokens": 1}),
            json!({"type": "text_delta", "text": "Three"}),
            json!({"type": "something_else"}),
            json!({"type": "turn_end", "cost": 0.5}),
            json!({"type": "text_delta", "text": "Four"}),
            json!({"type": "turn_end", "cost": 0.5}),
        ] {
            page.write(&mut out, &serde_json::from_value(event).unwrap()).unwrap();
        }
        let text = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        assert_eq!(
            text,
            "One \u{fffd}[2J two\n  search\u{fffd} {\"for\":\"a\\nb\"}\n  = x y\n  = error: no\n  some earlier \
             messages were summarized\n\nThree\n\nFour\n"
        );
    }
}
