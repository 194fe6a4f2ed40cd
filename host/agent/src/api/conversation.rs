//! Runs the loop of a session: the model answers and its calls are made, until an answer has no call.

use std::{collections::HashSet, ops::ControlFlow};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use guild_contract::Usage;
use guild_session::{
    meter::Ending,
    session::Session,
    tools::{ToolCall, ToolError},
    transcript::Entry,
};
use serde_json::Value;
use tracing::Instrument as _;

use super::{
    Api,
    chat::{Message, ModelAnswer, ModelCall, Stop},
    messages::{self, CONTINUE, Outcome, Recalled, call_id},
    request::{Completion, within},
};
use crate::trace;

/// The number of calls that run at a time in a turn whose calls all only read.
const PARALLEL_CALLS: usize = 8;

/// A running session.
pub(super) struct Conversation<'a> {
    api: &'a Api,
    session: &'a Session,
    model: &'a str,
    /// The messages so far, without the system prompt.
    messages: Vec<Message>,
    /// The last turn.
    turn: u32,
    /// The text that the session would end with: the text of the last turn, after the texts that it continues.
    pub(super) text: String,
    /// Whether the last turn was cut, so that the next one continues its text.
    cut: bool,
    /// Whether the provider did not count the tokens of the last turn.
    uncounted: bool,
}

impl<'a> Conversation<'a> {
    /// Makes a session that begins with `prompt`, unless it converses.
    pub(super) fn new(api: &'a Api, session: &'a Session, model: &'a str, prompt: String) -> Self {
        let messages = if session.converses { Vec::new() } else { vec![Message::User(prompt)] };
        Self { api, session, model, messages, turn: 0, text: String::new(), cut: false, uncounted: false }
    }

    /// Replays the turns before the host stopped, then runs to the end. The error has the reason that the session did
    /// not end by itself.
    pub(super) async fn run(&mut self, history: Vec<Entry>) -> Result<(), Ending> {
        if self.session.converses {
            self.recall_conversation(&history)?;
        } else if self.recall(history).await?.is_break() {
            return Ok(());
        }
        loop {
            let answer = self.next_turn().await?;
            if self.apply(&answer).await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Replays the turns before the host stopped. All calls are made again under their ids; the tool set answers a call
    /// from the transcript if its result is there.
    async fn recall(&mut self, history: Vec<Entry>) -> Result<ControlFlow<()>, Ending> {
        for entry in &history {
            let Entry::Turn { turn, content, usage, .. } = entry else { continue };
            let content =
                content.as_ref().ok_or_else(|| Ending::Error(format!("turn {turn} is not in the transcript")))?;
            let answer = ModelAnswer::restore(content).map_err(Ending::Error)?;
            self.turn = *turn;
            self.uncounted = usage.cost_usd.is_none() && usage.tokens() == 0;
            if self.apply(&answer).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Restores the earlier messages of a conversation. The last of them is the user's.
    fn recall_conversation(&mut self, history: &[Entry]) -> Result<(), Ending> {
        let options = &self.api.options;
        let recalled = messages::recall(self.session.number, history, self.max_chars(), options.max_output_tokens);
        let Recalled { messages, turn, uncounted } = recalled.map_err(Ending::Error)?;
        (self.messages, self.turn, self.uncounted) = (messages, turn, uncounted);
        Ok(())
    }

    /// The most characters of a conversation that the model is given.
    fn max_chars(&self) -> usize {
        usize::try_from(self.session.conversation_chars).unwrap_or(usize::MAX)
    }

    /// Leaves out the oldest messages of a conversation that does not fit.
    fn compact(&mut self) {
        let (session, max) = (self.session, self.max_chars());
        let left_out = if session.converses { messages::compact(&mut self.messages, max) } else { 0 };
        if left_out > 0 {
            let text = format!(
                "the conversation is longer than limits.conversation_chars = {max} characters: the model is no longer \
                 given its oldest messages ({left_out} of them)"
            );
            session.journal.write(&Entry::Compacted { session: session.number, text });
        }
    }

    /// Asks the model for an answer, within the bounds, and appends the answer to the transcript.
    async fn next_turn(&mut self) -> Result<ModelAnswer, Ending> {
        let Self { api, session, model, .. } = *self;
        if self.uncounted {
            return Err(Ending::Error(format!(
                "the provider does not report the usage of {model}, so that neither dollars nor tokens bound it; if \
                 it costs nothing, give it a price of 0 under [[prices]] in guild.toml"
            )));
        }
        api.check_bounds(session, model)?;
        session.meter.take_turn()?;
        self.compact();
        self.turn += 1;
        let span = trace::chat(api.options.provider.facts().name, model);
        let asked = api.ask(session, model, &self.messages).instrument(span.clone());
        let Completion { answer, tokens, cost } = asked.await?;
        let usage: Usage = api.options.prices.usage(model, tokens);
        trace::record_usage(&span, &usage);
        drop(span);
        let text = answer.text();
        session.journal.write(&Entry::Turn {
            session: session.number,
            turn: self.turn,
            model: Some(model.to_owned()),
            text: text.clone(),
            content: serde_json::to_value(&answer).ok(),
            usage,
        });
        match cost {
            Some(cost) => cost.resolve(usage, Some(model)),
            None => session.meter.book(usage, Some(model)),
        }
        self.uncounted = tokens.is_none() && usage.cost_usd.is_none();
        if !text.is_empty() {
            session.say(&text);
        }
        Ok(answer)
    }

    /// Makes the calls of an answer. Breaks if the session ends with the answer.
    async fn apply(&mut self, answer: &ModelAnswer) -> Result<ControlFlow<()>, Ending> {
        let calls: Vec<&ModelCall> = answer.calls().collect();
        let text = answer.text();
        if let Stop::Withheld(reason) = &answer.stop {
            return Err(Ending::Error(format!("the provider withheld the model's answer ({reason})")));
        }
        if calls.is_empty() {
            return self.say(answer, &text);
        }
        (self.text, self.cut) = (text, false);
        self.messages.push(answer.message());
        let outcomes = self.call_all(answer, &calls).await?;
        self.messages.push(messages::results_of(&calls, outcomes));
        Ok(ControlFlow::Continue(()))
    }

    /// Handles an answer without calls, which is the session's last unless it was cut.
    fn say(&mut self, answer: &ModelAnswer, text: &str) -> Result<ControlFlow<()>, Ending> {
        let tokens = self.api.options.max_output_tokens;
        if !self.cut {
            self.text.clear();
        }
        self.text.push_str(text);
        self.cut = answer.stop == Stop::Cut;
        match (&answer.stop, text.trim().is_empty()) {
            (Stop::Cut, true) => Err(Ending::Error(format!(
                "the model used up its {tokens} output tokens without an answer; set max_output_tokens under [api] in \
                 guild.toml higher"
            ))),
            (Stop::Cut, false) => {
                self.messages.push(answer.message());
                self.messages.push(Message::User(CONTINUE.to_owned()));
                Ok(ControlFlow::Continue(()))
            }
            (_, true) => Err(Ending::Error("the model's answer was empty".to_owned())),
            (_, false) => Ok(ControlFlow::Break(())),
        }
    }

    /// Calls the tools: in parallel if all of them only read, else one after the other. The outcomes are in the order
    /// of the calls.
    async fn call_all(&self, answer: &ModelAnswer, calls: &[&ModelCall]) -> Result<Vec<Outcome>, Ending> {
        let definitions = self.session.tools.definitions();
        let reading: HashSet<&str> =
            definitions.iter().filter(|tool| tool.read_only).map(|tool| tool.name.as_str()).collect();
        let at_once = if calls.iter().all(|call| reading.contains(call.name.as_str())) { PARALLEL_CALLS } else { 1 };
        let mut outcomes = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            outcomes.push(self.call(call_id(self.session.number, self.turn, index), answer, call));
        }
        within(self.session, Box::pin(stream::iter(outcomes).buffered(at_once).try_collect())).await?
    }

    async fn call(&self, id: String, answer: &ModelAnswer, call: &ModelCall) -> Result<Outcome, Ending> {
        let session = self.session;
        let name = call.name.clone();
        let input = match answer.input(call, self.api.options.max_output_tokens) {
            Ok(input) => input,
            Err(text) => {
                session.note(format!("{name} ({id}): {text}"));
                return Ok(Err(text));
            }
        };
        match session.tools.call(ToolCall { id, name, input }).await {
            Ok(Value::String(text)) => Ok(Ok(text)),
            Ok(output) => Ok(Ok(output.to_string())),
            Err(ToolError::JobEnded) => Err(Ending::Interrupted),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}
