//! Drives the CLI: reads its lines, answers its requests, and runs its tool calls, from the first line to the result.

use std::{borrow::Cow, collections::VecDeque, process::ExitStatus, sync::Arc, time::Duration};

use guild_session::{
    meter::Ending,
    tools::{ToolCall, ToolDefinition, ToolError},
    transcript::Entry,
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::error::TrySendError,
    task::{AbortHandle, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use super::{
    conversation::Conversation,
    mcp::{self, SERVER},
    process::{Lines, Outbox, Process, Stderr},
    protocol::{self, Delta, Event, Line, Outcome, Request, Response, System},
    retold,
    turns::Turns,
};

/// The longest time for the CLI to begin the conversation.
const STARTUP: Duration = Duration::from_secs(60);
/// The longest time for the CLI to answer an interrupt with its result.
const INTERRUPT: Duration = Duration::from_secs(2);
/// The longest time for the CLI's last lines after its end.
const DRAIN: Duration = Duration::from_secs(1);
/// The longest wait of a call for the rest of the model's answer while none of it arrives.
const CALL_WAIT: Duration = Duration::from_secs(10);
/// The most calls at a time.
const MAX_CALLS: usize = 256;
/// The number of skipped lines that are noted, since a wrapper of the CLI may print any number.
const MAX_SKIP_NOTES: usize = 10;

/// The id of the host's first request.
const BEGIN: &str = "begin";
/// The id of the host's last request.
const STOP: &str = "stop";
/// The message to the agent after a restart.
const RESUMED: &str = "The host was restarted while you worked. A tool call without a result may or may not have taken \
    effect; everything that you submitted or recorded before counts. Continue your task.";

/// The reason that the session ended without the CLI's result.
pub(super) enum Stop {
    /// The host ends the session. The CLI is asked to stop, and may report its usage.
    Ask(Ending),
    /// The CLI broke the protocol; nothing more is sent to it.
    Broken(String),
    /// The CLI ended, or closed its stdout.
    Ended,
    /// The future that runs the session was dropped.
    Dropped,
}

/// A running session of the CLI.
pub(super) struct Driver {
    conversation: Arc<Conversation>,
    deadline: Instant,
    /// The tools that the host serves.
    served: Vec<Arc<ToolDefinition>>,
    process: Process,
    lines: Lines,
    outbox: Outbox,
    turns: Turns,
    /// The running calls. Each returns whether the job has ended.
    calls: JoinSet<bool>,
    running: Vec<(CallKey, AbortHandle)>,
    /// Calls that arrived before the model's answer that makes them was complete. They wait for its end, so that the
    /// turn precedes its calls in the transcript.
    waiting: Vec<(String, mcp::Call)>,
    /// Calls whose turn has not come, in the order in which the CLI made them.
    queued: VecDeque<QueuedCall>,
    /// Whether the running call has to run alone.
    exclusive: bool,
    /// Calls to which the CLI gave no name.
    unnamed: usize,
    begun: Instant,
    /// The time at which the CLI last sent a line, or a call was answered.
    last_activity: Instant,
    /// Whether the prompt was sent.
    asked: bool,
    /// Whether the CLI has described its session.
    initialized: bool,
    /// The time at which the process ended.
    ended: Option<Instant>,
    /// Lines that could not be read.
    skipped: usize,
    /// The error of the last of these lines.
    last_skipped: Option<String>,
}

/// Identifies a call that the CLI gives up: the id of its request, and the id of the JSON-RPC message in it.
type CallKey = (String, Value);

struct QueuedCall {
    key: CallKey,
    read_only: bool,
    call: ToolCall,
}

impl Driver {
    pub(super) fn new(
        conversation: Arc<Conversation>,
        process: Process,
        lines: Lines,
        outbox: Outbox,
        served: Vec<Arc<ToolDefinition>>,
    ) -> Self {
        let now = Instant::now();
        let session = &conversation.session;
        let calls_before = session.history.iter().filter(|entry| matches!(entry, Entry::Call { .. })).count();
        Self {
            turns: Turns::new(conversation.clone()),
            deadline: Instant::from_std(session.meter.deadline()),
            conversation,
            served,
            process,
            lines,
            outbox,
            calls: JoinSet::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            queued: VecDeque::new(),
            exclusive: false,
            unnamed: calls_before,
            begun: now,
            last_activity: now,
            asked: false,
            initialized: false,
            ended: None,
            skipped: 0,
            last_skipped: None,
        }
    }

    /// The last line of the CLI outside of the protocol, for the error of a session without a result.
    pub(super) fn last_skipped(&self) -> Option<String> {
        self.last_skipped.clone()
    }

    /// The CLI's stderr, also available after its end.
    pub(super) fn stderr(&self) -> Stderr {
        self.process.stderr()
    }

    /// Whether the CLI was to resume a session and has not confirmed it.
    pub(super) fn may_have_lost_session(&self) -> bool {
        self.conversation.resumed.is_some() && !self.initialized
    }

    /// Drives the session until the result.
    pub(super) async fn drive(&mut self) -> Result<Outcome, Stop> {
        let servers: &[&str] = if self.served.is_empty() { &[] } else { &[SERVER] };
        self.send(protocol::initialize(BEGIN, servers))?;
        loop {
            let quiet = self.quiet();
            tokio::select! {
                biased;
                () = self.conversation.dropped.cancelled() => return Err(Stop::Dropped),
                () = self.conversation.session.cancel.cancelled() => return Err(Stop::Ask(Ending::Interrupted)),
                () = sleep_until(self.deadline) => return Err(Stop::Ask(Ending::Deadline)),
                line = self.lines.next() => match line {
                    None => return Err(Stop::Ended),
                    Some(Err(what)) => return Err(broken(&what)),
                    Some(Ok(line)) => {
                        self.last_activity = Instant::now();
                        if let Some(outcome) = self.handle_line(&line)? {
                            return Ok(outcome);
                        }
                    }
                },
                Some(done) = self.calls.join_next() => self.call_done(done)?,
                _ = self.process.ended(), if self.ended.is_none() => self.ended = Some(Instant::now()),
                () = sleep_until(quiet) => self.silent()?,
            }
        }
    }

    /// The time until which the CLI may be silent.
    fn quiet(&self) -> Instant {
        let silence = self.conversation.options.silence;
        match self.ended {
            Some(ended) => ended + DRAIN,
            None if !self.asked => self.begun + silence.min(STARTUP),
            // The CLI waits for the host, so only the deadline bounds it.
            None if !self.calls.is_empty() => self.deadline,
            None if !self.waiting.is_empty() => self.last_activity + silence.min(CALL_WAIT),
            None => self.last_activity + silence,
        }
    }

    fn silent(&mut self) -> Result<(), Stop> {
        if self.ended.is_some() {
            return Err(Stop::Ended);
        }
        if !self.waiting.is_empty() {
            self.release();
            return Ok(());
        }
        if !self.asked {
            let seconds = self.begun.elapsed().as_secs_f32();
            let said = self.last_skipped.as_ref().map_or_else(String::new, |what| format!("; it sent {what}"));
            return Err(Stop::Broken(format!("claude did not begin the conversation within {seconds:.0} s{said}")));
        }
        let seconds = self.last_activity.elapsed().as_secs_f32();
        let text = format!("claude sent nothing for {seconds:.0} s ([claude] silence_seconds in guild.toml)");
        Err(Stop::Ask(Ending::Error(text)))
    }

    fn send(&self, line: String) -> Result<(), Stop> {
        match self.outbox.try_send(line) {
            // A closed channel means that the CLI has ended or is about to, which the reading side reports.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(broken("so many requests, without reading the answers")),
        }
    }

    /// Handles a line of the CLI; `Some` for the session's result.
    fn handle_line(&mut self, line: &str) -> Result<Option<Outcome>, Stop> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let line = match protocol::parse(line, &self.conversation.secrets) {
            Ok(line) => line,
            Err(unreadable) if unreadable.is_needed => return Err(broken(&unreadable.what)),
            Err(unreadable) => {
                self.skip(unreadable.what);
                return Ok(None);
            }
        };
        match line {
            Line::ControlRequest { request_id, request } => self.requested(request_id, request)?,
            Line::ControlResponse { response } => self.responded(response)?,
            Line::ControlCancelRequest { request_id } => {
                self.give_up(|given_up, _| *given_up == request_id);
            }
            Line::System(system) => self.system(system)?,
            Line::StreamEvent { event, parent_tool_use_id: None, abandoned_blocks } => match event {
                Event::MessageStart { message } => {
                    self.refuse_waiting()?;
                    self.turns.begin(&message, true).map_err(Stop::Ask)?;
                }
                Event::MessageDelta { usage } => self.turns.used(usage),
                Event::ContentBlockDelta { delta: Delta::TextDelta { text } } => self.turns.piece(&text),
                Event::MessageStop if abandoned_blocks.is_some() => {
                    self.refuse_waiting()?;
                    self.turns.complete();
                }
                Event::MessageStop => self.release(),
                Event::ContentBlockDelta { delta: Delta::Other } | Event::Other => {}
            },
            Line::Assistant { message, parent_tool_use_id: None } if !message.is_synthetic() => {
                self.turns.part(&message).map_err(Stop::Ask)?;
            }
            Line::Result(outcome) => {
                self.turns.complete();
                return Ok(Some(outcome));
            }
            Line::StreamEvent { .. } | Line::Assistant { .. } | Line::Other => {}
        }
        Ok(None)
    }

    /// Skips a line that cannot be read, and notes it.
    fn skip(&mut self, what: String) {
        self.skipped += 1;
        if self.skipped <= MAX_SKIP_NOTES {
            let further = if self.skipped == MAX_SKIP_NOTES { "; further ones are not noted" } else { "" };
            self.turns.note(format!("skipped from claude{further}: {what}"));
        }
        self.last_skipped = Some(what);
    }

    fn responded(&mut self, response: Response) -> Result<(), Stop> {
        if response.request_id != BEGIN || self.asked {
            return Ok(());
        }
        if response.subtype != "success" {
            let why = if response.error.is_empty() { response.subtype } else { response.error };
            return Err(Stop::Broken(format!("claude does not begin the conversation: {why}")));
        }
        self.asked = true;
        self.turns.start_cost();
        self.send(protocol::user(&self.prompt()))
    }

    /// The message to the agent.
    fn prompt(&self) -> Cow<'_, str> {
        let Conversation { session, resumed, .. } = &*self.conversation;
        let max_chars = usize::try_from(session.conversation_chars).unwrap_or(usize::MAX);
        match session.message() {
            Some(message) if resumed.is_some() => retold::with_notes(&session.history, message).into(),
            Some(message) if retold::is_begun(&session.history) => {
                retold::anew(&session.history, message, max_chars).into()
            }
            Some(message) => message.into(),
            None if resumed.is_some() => RESUMED.into(),
            None if retold::is_begun(&session.history) => {
                retold::anew(&session.history, &format!("{}\n\n{RESUMED}", session.prompt), max_chars).into()
            }
            None => session.prompt.as_str().into(),
        }
    }

    fn system(&mut self, system: System) -> Result<(), Stop> {
        match system {
            System::Init { session_id, mcp_servers } => {
                let status = mcp_servers.iter().find(|server| server.name == SERVER).map(|server| &*server.status);
                if !self.served.is_empty() && status != Some("connected") {
                    let status = status.unwrap_or("absent");
                    let text = format!("claude did not connect to the tools of the host ({SERVER} is {status})");
                    return Err(Stop::Ask(Ending::Error(text)));
                }
                self.initialized = true;
                self.turns.named(session_id);
            }
            System::ApiRetry { attempt, max_retries, error_status, error } => {
                let status = error_status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
                self.turns
                    .note(format!("the model's provider failed ({status} {error}): retry {attempt} of {max_retries}"));
            }
            System::PermissionDenied { tool_name } => {
                self.turns.note(format!("claude was denied the tool {tool_name:?}"));
            }
            System::CompactBoundary {} => self.turns.compacted(),
            System::Other => {}
        }
        Ok(())
    }

    fn requested(&mut self, request_id: String, request: Request) -> Result<(), Stop> {
        let message = match request {
            Request::McpMessage { server_name, message } if server_name == SERVER && !self.served.is_empty() => message,
            Request::McpMessage { server_name, .. } => {
                return self.send(protocol::refuse(&request_id, &format!("there is no server {server_name:?}")));
            }
            Request::CanUseTool => {
                let denied = json!({"behavior": "deny", "message": "the host allows only the tools that it offers"});
                return self.send(protocol::success(&request_id, &denied));
            }
            Request::Other => {
                return self.send(protocol::refuse(&request_id, "the host does not support this request"));
            }
        };
        match mcp::read(&message, &self.served) {
            mcp::Incoming::Answer(answer) => {
                self.send(protocol::success(&request_id, &json!({"mcp_response": answer})))
            }
            mcp::Incoming::GiveUp(rpc_id, answer) => {
                self.give_up(|_, given_up| *given_up == rpc_id);
                self.send(protocol::success(&request_id, &json!({"mcp_response": answer})))
            }
            mcp::Incoming::Call(_) if self.calls_in_hand() >= MAX_CALLS => {
                self.send(protocol::refuse(&request_id, &format!("more than {MAX_CALLS} calls at a time")))
            }
            mcp::Incoming::Call(call) if self.turns.is_streaming() => {
                self.waiting.push((request_id, call));
                Ok(())
            }
            mcp::Incoming::Call(call) => {
                self.turns.complete();
                self.call(request_id, call);
                Ok(())
            }
        }
    }

    /// Refuses the calls that waited for the rest of an answer that broke off, since the model does not wait for them.
    fn refuse_waiting(&mut self) -> Result<(), Stop> {
        for (request_id, _) in std::mem::take(&mut self.waiting) {
            self.send(protocol::refuse(&request_id, "not called: the answer that asked for it broke off"))?;
        }
        Ok(())
    }

    /// Makes the calls that waited for the end of the model's answer.
    fn release(&mut self) {
        self.turns.stopped();
        for (request_id, call) in std::mem::take(&mut self.waiting) {
            self.call(request_id, call);
        }
    }

    fn call(&mut self, request_id: String, call: mcp::Call) {
        let number = self.conversation.session.number;
        let id = call.tool_use_id.map_or_else(
            || {
                self.unnamed += 1;
                format!("{number}.call-{}", self.unnamed)
            },
            |id| format!("{number}.{id}"),
        );
        let read_only = self.served.iter().any(|tool| tool.name == call.name && tool.read_only);
        let tool_call = ToolCall { id, name: call.name, input: call.arguments };
        self.queued.push_back(QueuedCall { key: (request_id, call.id), read_only, call: tool_call });
        self.start_calls();
    }

    fn calls_in_hand(&self) -> usize {
        self.waiting.len() + self.queued.len() + self.running.len()
    }

    /// Starts queued calls in order: calls of tools that only read run in parallel, each other call runs alone.
    fn start_calls(&mut self) {
        while let Some(next) =
            self.queued.pop_front_if(|next| self.calls.is_empty() || (next.read_only && !self.exclusive))
        {
            let (tools, outbox) = (self.conversation.session.tools.clone(), self.outbox.clone());
            let (request_id, rpc_id) = next.key.clone();
            self.exclusive = !next.read_only;
            let abort = self.calls.spawn(async move {
                let answer = tools.call(next.call).await;
                let response = json!({"mcp_response": mcp::called(&rpc_id, &answer)});
                // An error says that the CLI has ended.
                let _ = outbox.send(protocol::success(&request_id, &response)).await;
                matches!(answer, Err(ToolError::JobEnded))
            });
            self.running.push((next.key, abort));
        }
    }

    fn call_done(&mut self, done: Result<bool, JoinError>) -> Result<(), Stop> {
        self.last_activity = Instant::now();
        self.running.retain(|(_, call)| !call.is_finished());
        match done {
            Ok(true) => return Err(Stop::Ask(Ending::Interrupted)),
            Err(e) if !e.is_cancelled() => return Err(Stop::Ask(Ending::Error(format!("a tool broke off: {e}")))),
            Ok(false) | Err(_) => {}
        }
        self.start_calls();
        Ok(())
    }

    /// Aborts calls that the CLI no longer waits for.
    fn give_up(&mut self, is_given_up: impl Fn(&String, &Value) -> bool) {
        let given_up = self.running.extract_if(.., |((request_id, rpc_id), _)| is_given_up(request_id, rpc_id));
        given_up.for_each(|(_, call)| call.abort());
        self.queued.retain(|QueuedCall { key: (request_id, rpc_id), .. }| !is_given_up(request_id, rpc_id));
        self.waiting.retain(|(request_id, call)| !is_given_up(request_id, &call.id));
        // The call that later calls waited for may be gone.
        self.start_calls();
    }

    /// Stops the session. Returns the CLI's own account of its usage, if it was asked and answered.
    pub(super) async fn stop(&mut self, why: &Stop) -> Option<Outcome> {
        self.calls.abort_all();
        if !matches!(why, Stop::Dropped) {
            // The transcript gets no further entries of a dropped session.
            self.turns.complete();
        }
        match why {
            Stop::Ask(_) | Stop::Dropped => self.interrupt().await,
            Stop::Broken(_) | Stop::Ended => None,
        }
    }

    /// Asks the CLI to stop, and waits a little for its result.
    async fn interrupt(&mut self) -> Option<Outcome> {
        if !self.asked || self.send(protocol::interrupt(STOP)).is_err() {
            return None;
        }
        let result = async {
            while let Some(Ok(line)) = self.lines.next().await {
                match protocol::parse(&line, &self.conversation.secrets) {
                    Ok(Line::Result(outcome)) => return Some(outcome),
                    Ok(Line::ControlRequest { request_id, .. }) => {
                        self.send(protocol::refuse(&request_id, "the session is being stopped")).ok()?;
                    }
                    Err(unreadable) if unreadable.is_needed => return None,
                    Ok(_) | Err(_) => {}
                }
            }
            None
        };
        timeout(INTERRUPT, result).await.ok().flatten()
    }

    /// Books the remaining usage, closes the CLI's stdin, and waits for its end.
    pub(super) async fn close(mut self, outcome: Option<&Outcome>, patience: Duration) -> (Option<ExitStatus>, String) {
        self.turns.book_rest(outcome);
        // Both keep the stdin open.
        drop((self.calls, self.outbox));
        // The CLI may still write lines, and must not wait for a reader.
        let mut lines = self.lines;
        let reader = tokio::spawn(async move { while let Some(Ok(_)) = lines.next().await {} });
        let status = self.process.finish(patience).await;
        reader.abort();
        (status, self.turns.said)
    }
}

fn broken(what: &str) -> Stop {
    Stop::Broken(format!("claude sent {what}"))
}
