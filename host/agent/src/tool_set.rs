//! Serves the tool set of a session: all tools that it can call (REQ-WD-31).
//!
//! All runtimes call their tools through it. It writes each call into the transcript before the call is made and after
//! it was answered, bounds each result, and answers a call of a resumed session from the transcript if its result is
//! there, or if it was interrupted and must not be made again. Before it makes such a call, it waits until all hosts
//! that could resume the job know of the call.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use async_trait::async_trait;
use futures::FutureExt as _;
use guild_contract::{
    Limits,
    text::{nearest::either, one_line},
};
use guild_session::{
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::{Entry, Journal, NoJournal, interrupted},
    web::Web,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::readonly::{Broker, ReadOnly};

/// Names that no tool of a session can have, in any case: agents know tools with these names that write files or run
/// commands, and would mistake another tool for one of them.
const FORBIDDEN: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit", "Bash", "PowerShell"];
/// Bytes of a cut result that are reserved for the line that marks the cut.
const CUT_LINE_BYTES: usize = 200;
/// Characters of a text that the host's log repeats.
const LOGGED_CHARS: usize = 300;

/// The implementation of one tool.
enum Target {
    /// A set of tools.
    Set(Arc<dyn Tools>),
    /// A read-only tool, over the read roots or the web.
    ReadOnly(ReadOnly),
}

/// The tools of one session: given sets of tools, and the read-only tools that were both granted and asked for.
pub struct ToolSet {
    session: u32,
    tools: Vec<(Arc<ToolDefinition>, Target)>,
    journal: Arc<dyn Journal>,
    /// Calls from before the host restarted, by id, with their results if these are known.
    past_calls: HashMap<String, (ToolCall, Option<Result<Value, ToolError>>)>,
    /// Whether no call of the history is made again, even without a known result.
    converses: bool,
    result_bytes: usize,
    cancel: CancellationToken,
    /// The span of the job, for the log.
    span: Span,
}

impl ToolSet {
    /// A tool set made of whole sets: the job's internal tools, and the tools that a component answers itself. Of two
    /// tools with the same name, the first set's is used. `session` is the session's number in its job.
    ///
    /// # Errors
    ///
    /// `InvalidInput` names a tool whose name is that of a tool that writes files or runs commands.
    pub fn new(session: u32, sets: impl IntoIterator<Item = Arc<dyn Tools>>) -> Result<Self, ToolError> {
        let mut tools = Self {
            session,
            tools: Vec::new(),
            journal: Arc::new(NoJournal),
            past_calls: HashMap::new(),
            converses: false,
            result_bytes: size(Limits::default().tool_result_bytes),
            cancel: CancellationToken::new(),
            span: Span::current(),
        };
        for set in sets {
            for definition in set.definitions() {
                if FORBIDDEN.iter().any(|name| name.eq_ignore_ascii_case(&definition.name)) {
                    return Err(ToolError::InvalidInput(format!(
                        "a session cannot have a tool {:?}: agents take a tool of this name for one that writes files \
                         or runs commands; rename it",
                        definition.name
                    )));
                }
                tools.add(definition, Target::Set(set.clone()));
            }
        }
        Ok(tools)
    }

    /// Adds the read-only tools that were both asked for and granted. Tools without sources are left out: Read, Grep
    /// and Glob without read roots, WebSearch and WebFetch without the half of the web that they need.
    #[must_use]
    pub fn with_read_only(mut self, broker: &Broker, web: &Web, granted: &[String], asked: &[String]) -> Self {
        for name in asked.iter().filter(|name| granted.contains(name)) {
            if let Some((definition, tool)) = broker.tool(name, web) {
                self.add(definition, Target::ReadOnly(tool));
            }
        }
        self
    }

    /// Records every call and its result in the transcript, and denials in the job's log too.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = journal;
        self
    }

    /// Answers calls of `history`, the session's entries from before its host stopped. One that has a result there is
    /// answered with it, and neither made nor recorded again. One without a result is made again if it only reads or
    /// [`Tools::repeats_safely`]; any other is answered as interrupted, since it may have had its effect. A different
    /// call under the same id, as a session with changed sources makes it, is made.
    #[must_use]
    pub fn with_history(mut self, history: &[Entry]) -> Self {
        for entry in history {
            match entry {
                Entry::Call { call, tool, input, .. } => {
                    let made = ToolCall { id: call.clone(), name: tool.clone(), input: input.clone() };
                    self.past_calls.insert(call.clone(), (made, None));
                }
                Entry::Result { call, output, error, .. } => {
                    let Some((_, result)) = self.past_calls.get_mut(call) else { continue };
                    *result = Some(match error {
                        // The text of `Unavailable` is shown unchanged.
                        Some(text) => Err(ToolError::Unavailable(text.clone())),
                        None => Ok(output.clone().unwrap_or_default()),
                    });
                }
                _ => {}
            }
        }
        self
    }

    /// Answers calls from the history like [`Self::with_history`], for a conversation: none of its calls is ever made
    /// again, even if it only reads or has another input.
    #[must_use]
    pub fn with_conversation(mut self, history: &[Entry]) -> Self {
        self.converses = true;
        self.with_history(history)
    }

    /// Sets the length at which results are cut (`limits.tool_result_bytes`), in place of the default one.
    #[must_use]
    pub fn with_result_bytes(mut self, bytes: u64) -> Self {
        self.result_bytes = size(bytes);
        self
    }

    /// Sets the token of the session's end. It stops running searches, like dropping their call, and a call that has
    /// failed by then counts as not answered.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    fn add(&mut self, definition: Arc<ToolDefinition>, target: Target) {
        if !self.tools.iter().any(|(known, _)| known.name == definition.name) {
            self.tools.push((definition, target));
        }
    }

    /// Whether a second call of a tool does no harm: it only reads, or [`Tools::repeats_safely`].
    fn can_repeat(&self, name: &str) -> bool {
        let tool = self.tools.iter().find(|(definition, _)| definition.name == name);
        tool.is_some_and(|(definition, target)| {
            definition.read_only || matches!(target, Target::Set(set) if set.repeats_safely(name))
        })
    }

    /// The answer of a call that is not made, since the history has it.
    fn answer_from_history(&self, call: &ToolCall) -> Option<Result<Value, ToolError>> {
        let (past, result) = self.past_calls.get(&call.id)?;
        if past != call {
            let error = || ToolError::InvalidInput(format!("another call with the id {:?} was made before", call.id));
            return self.converses.then(|| Err(error()));
        }
        if let Some(result) = result {
            return Some(result.clone());
        }
        if !self.converses && self.can_repeat(&call.name) {
            return None;
        }
        let tool = self.tools.iter().find(|(definition, _)| definition.name == call.name);
        let error = interrupted(tool.is_some_and(|(definition, _)| definition.read_only)).to_owned();
        let (session, id) = (self.session, call.id.clone());
        self.journal.write(&Entry::Result { session, call: id, ms: 0, output: None, error: Some(error.clone()) });
        Some(Err(ToolError::Unavailable(error)))
    }

    async fn dispatch(&self, call: ToolCall) -> Result<Value, ToolError> {
        let Some((_, target)) = self.tools.iter().find(|(definition, _)| definition.name == call.name) else {
            let names: Vec<&str> = self.tools.iter().map(|(definition, _)| definition.name.as_str()).collect();
            let tools = if names.is_empty() { "none are known".to_owned() } else { either(&call.name, names) };
            return Err(ToolError::InvalidInput(format!("there is no tool {:?}; {tools}", call.name)));
        };
        let name = call.name.clone();
        let answer = async {
            match target {
                Target::Set(set) => set.call(call).await,
                Target::ReadOnly(tool) => {
                    let cancel = self.cancel.child_token();
                    // A dropped call stops its work on another thread.
                    let _stop = cancel.clone().drop_guard();
                    tool.call(call.input, self.result_bytes, cancel).await.map(Value::String)
                }
            }
        };
        let caught = AssertUnwindSafe(answer).catch_unwind().await;
        caught.unwrap_or_else(|_| Err(ToolError::Unavailable(format!("the tool {name} failed"))))
    }
}

#[async_trait]
impl Tools for ToolSet {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.tools.iter().map(|(definition, _)| definition.clone()).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        if let Some(answer) = self.answer_from_history(&call) {
            return answer;
        }
        let (session, id, tool) = (self.session, call.id.clone(), call.name.clone());
        self.journal.write(&Entry::Call { session, call: id.clone(), tool: tool.clone(), input: call.input.clone() });
        if !self.can_repeat(&tool) {
            // Another host must not make a call again that may have had its effect.
            match self.journal.settled().await {
                Ok(()) => {}
                Err(ToolError::JobEnded) => return Err(ToolError::JobEnded),
                Err(error) => {
                    self.journal.write(&Entry::Result {
                        session,
                        call: id,
                        ms: 0,
                        output: None,
                        error: Some(error.to_string()),
                    });
                    return Err(error);
                }
            }
        }
        let started = Instant::now();
        let span = tracing::debug_span!(
            "tool",
            otel.name = %format_args!("execute_tool {tool}"),
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = &*tool,
            gen_ai.tool.call.id = &*id,
        );
        let result = bounded(self.dispatch(call).instrument(span).await, self.result_bytes);
        let over = matches!(result, Err(ToolError::JobEnded)) || result.is_err() && self.cancel.is_cancelled();
        if over {
            // The session ended during the call, so the call counts as not answered.
            return result;
        }
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = &result {
            let denied = matches!(error, ToolError::NotGranted(_));
            tracing::debug!(
                parent: &self.span,
                session,
                tool = one_line(&tool, LOGGED_CHARS),
                denied,
                ms,
                why = one_line(&error.to_string(), LOGGED_CHARS),
                "a session's tool call failed"
            );
        }
        if let Err(denied @ ToolError::NotGranted(_)) = &result {
            self.journal.log(&format!("session {session}: {tool}: {denied}"));
        }
        let (output, error) = match &result {
            Ok(output) => (Some(output.clone()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.journal.write(&Entry::Result { session, call: id, ms, output, error });
        // The model's next turn begins with this answer.
        self.journal.before_turn().await?;
        result
    }
}

/// A limit in bytes as a size in memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Bounds a result to `max` bytes. A longer result becomes a text: its beginning, and a line that marks the cut.
fn bounded(result: Result<Value, ToolError>, max: usize) -> Result<Value, ToolError> {
    match result {
        Ok(Value::String(text)) => Ok(Value::String(cut(text, max))),
        Ok(value) => {
            let text = value.to_string();
            Ok(if text.len() > max { Value::String(cut(text, max)) } else { value })
        }
        Err(ToolError::InvalidInput(text)) => Err(ToolError::InvalidInput(cut(text, max))),
        Err(ToolError::NotGranted(text)) => Err(ToolError::NotGranted(cut(text, max))),
        Err(ToolError::OverLimit(text)) => Err(ToolError::OverLimit(cut(text, max))),
        Err(ToolError::Unavailable(text)) => Err(ToolError::Unavailable(cut(text, max))),
        Err(error @ (ToolError::NoJob | ToolError::JobEnded)) => Err(error),
    }
}

fn cut(mut text: String, max: usize) -> String {
    let all = text.len();
    if all > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub(CUT_LINE_BYTES)));
        let left_out = all - text.len();
        text.push_str(&format!(
            "\n(cut here: {left_out} of {all} bytes are left out, the limit is {max}; request less at a time: a \
             narrower search, or a part)"
        ));
    }
    text
}
