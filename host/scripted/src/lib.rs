//! Agent sessions whose model is a script: the runtime of tests.
//!
//! A session works in turns and through the same tools as a session with a model, within the same bounds. It takes its
//! answers from a [`SessionScript`] in place of a model's. The same script has the same calls under the same ids, so a
//! session that a host restart interrupted is run again, and each call has its effect once.

mod script;

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{Usage, text::one_line};
use guild_session::{
    meter::Ending,
    session::{AgentRuntime, Session, SessionEnd, Wanted},
    tools::{ToolCall, ToolError},
    transcript::Entry,
};

pub use script::{ScriptedCall, SessionScript, Turn, read};

/// The runtime's name, which is also that of its model.
const NAME: &str = "scripted";
/// Characters of a prompt that an error repeats.
const SHOWN_CHARS: usize = 200;

/// A runtime on the sessions of one script.
pub struct Scripted {
    sessions: Arc<[SessionScript]>,
}

impl Scripted {
    /// A runtime on these sessions. A session of a job takes the first script whose `when` is in its prompts; else, of
    /// those without `when`, the one at its number in the job.
    pub fn new(sessions: impl Into<Arc<[SessionScript]>>) -> Self {
        Self { sessions: sessions.into() }
    }

    fn script(&self, session: &Session) -> Result<&SessionScript, Ending> {
        let named = |script: &&SessionScript| {
            let part = script.when.as_deref();
            part.is_some_and(|part| session.prompt.contains(part) || session.system_prompt.contains(part))
        };
        let position = usize::try_from(session.number.saturating_sub(1)).unwrap_or(usize::MAX);
        let by_number = || self.sessions.iter().filter(|script| script.when.is_none()).nth(position);
        self.sessions.iter().find(named).or_else(by_number).ok_or_else(|| {
            let (number, prompt) = (session.number, one_line(&session.prompt, SHOWN_CHARS));
            Ending::Error(format!(
                "the script has nothing for session {number} of the job, whose prompt is {prompt:?}: add a session to it"
            ))
        })
    }

    /// Runs the session, or one turn of a conversation, from where its history ends.
    async fn play(&self, session: &Session) -> Result<String, Ending> {
        let script = self.script(session)?;
        let answered = session.history.iter().filter(|entry| matches!(entry, Entry::Turn { .. })).count();
        // The turns of earlier messages are over; those of a session that is resumed are repeated for their calls.
        let first = if session.converses { answered } else { 0 };
        let mut text = String::new();
        for (turn, number) in script.turns.iter().zip(1..).skip(first) {
            if number > u32::try_from(answered).unwrap_or(u32::MAX) {
                begin(session, turn, number)?;
            }
            if let Some(why) = &turn.fail {
                return Err(Ending::Error(why.clone()));
            }
            text.clone_from(&turn.text);
            if turn.calls.is_empty() {
                return Ok(text);
            }
            for (call, position) in turn.calls.iter().zip(0..) {
                let id = format!("{}.{number}.{position}", session.number);
                if is_answered(session, call) {
                    answer(session, call, id);
                    continue;
                }
                let call = ToolCall { id, name: call.tool.clone(), input: call.input.clone().into() };
                // A model is told the error of a call, and goes on.
                if let Err(ToolError::JobEnded) = session.tools.call(call).await {
                    return Err(Ending::Interrupted);
                }
            }
        }
        if session.converses && text.is_empty() {
            return Err(Ending::Error("the script has no further answer: add a turn to its session".to_owned()));
        }
        Ok(text)
    }
}

/// Begins a turn: it counts, and the transcript and the listener have its text.
fn begin(session: &Session, turn: &Turn, number: u32) -> Result<(), Ending> {
    session.meter.take_turn()?;
    let usage = Usage { turns: 1, cost_usd: Some(turn.cost_usd.unwrap_or_default()), ..Usage::default() };
    session.meter.book(usage, Some(NAME));
    session.say(&turn.text);
    session.piece(&turn.text);
    session.journal.write(&Entry::Turn {
        session: session.number,
        turn: number,
        model: Some(NAME.to_owned()),
        text: turn.text.clone(),
        content: None,
        usage,
    });
    Ok(())
}

/// Whether the script itself answers a call. A tool that the session does not have answers nothing, whatever the script
/// says.
fn is_answered(session: &Session, call: &ScriptedCall) -> bool {
    let is_scripted = call.answer.is_some() || call.error.is_some();
    is_scripted && session.tools.definitions().iter().any(|tool| tool.name == call.tool)
}

/// Answers a call as the script says. The transcript has it like any other call.
fn answer(session: &Session, call: &ScriptedCall, id: String) {
    let (number, tool, input) = (session.number, call.tool.clone(), call.input.clone().into());
    session.journal.write(&Entry::Call { session: number, call: id.clone(), tool, input });
    let (output, error) = (call.answer.clone().filter(|_| call.error.is_none()), call.error.clone());
    session.journal.write(&Entry::Result { session: number, call: id, ms: 0, output, error });
}

#[async_trait]
impl AgentRuntime for Scripted {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _wanted: &Wanted<'_>) -> Result<(), String> {
        Ok(())
    }

    /// A script stands for any model.
    fn check_model(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }

    fn can_resume(&self, _history: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        session.carry_out(self.play(&session)).await
    }
}
