//! The model's turns: the message under way, what it said and used, and its entries in the meter and the transcript.

use std::sync::Arc;

use guild_contract::Usage;
use guild_session::{
    meter::{Ending, OpenCost},
    transcript::Entry,
};

use super::{
    conversation::Conversation,
    protocol::{Message, Outcome, Tokens},
};

/// Counts turns, and writes each down when it is complete.
pub(super) struct Turns {
    conversation: Arc<Conversation>,
    /// What the session's turns used before its host stopped; it is in the meter already.
    before: Usage,
    /// From the moment at which the CLI is asked, until it has said what that cost.
    open_cost: Option<OpenCost>,
    taken: u32,
    current: Option<Turn>,
    /// The last complete message: further parts of it are no new turn.
    last: String,
    /// What was booked of this process's turns.
    booked: Usage,
    /// The last text of the model.
    pub(super) said: String,
}

struct Turn {
    id: String,
    model: Option<String>,
    text: String,
    tokens: Tokens,
    /// Whether the end of the message will be announced.
    streamed: bool,
}

impl Turns {
    pub(super) fn new(conversation: Arc<Conversation>) -> Self {
        let mut before = Usage::default();
        for entry in &conversation.session.history {
            if let Entry::Turn { usage, .. } = entry {
                before.add(usage);
            }
        }
        Self {
            conversation,
            open_cost: None,
            taken: before.turns,
            before,
            current: None,
            last: String::new(),
            booked: Usage::default(),
            said: String::new(),
        }
    }

    /// Whether the model is in the middle of a message whose end will be announced.
    pub(super) fn is_streaming(&self) -> bool {
        self.current.as_ref().is_some_and(|turn| turn.streamed)
    }

    /// Opens the cost of the CLI, until its result.
    pub(super) fn start_cost(&mut self) {
        self.open_cost = Some(self.conversation.session.meter.open_cost());
    }

    /// Begins a turn with its message; `streamed` is whether the end of the message will be announced.
    pub(super) fn begin(&mut self, message: &Message, streamed: bool) -> Result<(), Ending> {
        self.complete();
        self.conversation.session.meter.take_turn()?;
        self.taken = self.taken.saturating_add(1);
        self.current = Some(Turn {
            id: message.id.clone(),
            model: message.model.clone(),
            text: String::new(),
            tokens: message.usage.unwrap_or_default(),
            streamed,
        });
        Ok(())
    }

    /// Adds a part of a message.
    pub(super) fn part(&mut self, message: &Message) -> Result<(), Ending> {
        for text in message.texts() {
            self.conversation.session.say(text);
            text.clone_into(&mut self.said);
        }
        if message.id == self.last {
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|turn| turn.id != message.id) {
            self.begin(message, false)?;
        }
        let Some(turn) = &mut self.current else { return Ok(()) };
        for text in message.texts() {
            if !turn.text.is_empty() {
                turn.text.push('\n');
            }
            turn.text.push_str(text);
        }
        if let (false, Some(tokens)) = (turn.streamed, message.usage) {
            turn.tokens.update(tokens);
        }
        Ok(())
    }

    /// Updates the message's usage.
    pub(super) fn used(&mut self, tokens: Option<Tokens>) {
        if let (Some(turn), Some(tokens)) = (&mut self.current, tokens) {
            turn.tokens.update(tokens);
        }
    }

    /// Ends the turn: writes it to the transcript, and books it at its price where that is known.
    pub(super) fn complete(&mut self) {
        let Some(turn) = self.current.take() else { return };
        let Conversation { session, options, .. } = &*self.conversation;
        let model = turn.model.as_deref();
        let usage = match model {
            Some(model) => options.prices.usage(model, Some(turn.tokens.counted())),
            None => Usage { turns: 1, ..turn.tokens.usage() },
        };
        session.journal.write(&Entry::Turn {
            session: session.number,
            turn: self.taken,
            model: turn.model.clone(),
            text: turn.text,
            content: None,
            usage,
        });
        // The CLI says at the end what all turns cost; until then, `open_cost` marks the sum as unknown.
        let usage = Usage { cost_usd: Some(usage.known_cost()), known_cost_usd: None, ..usage };
        self.booked.add(&usage);
        session.meter.book(usage, model);
        self.last = turn.id;
    }

    /// Books what the session used beyond its turns, once that is known. Without an outcome, that cost stays unknown, if
    /// there can be any.
    pub(super) fn book_rest(&mut self, outcome: Option<&Outcome>) {
        let (Some(open_cost), Some(outcome)) = (self.open_cost.take(), outcome) else { return };
        let own = outcome.usage.map(Tokens::usage);
        let whole = outcome.tokens_of_all_models();
        let resumed = !self.conversation.session.history.is_empty();
        let all = if resumed { own } else { whole.or(own) }.unwrap_or_default();
        // The cost that the CLI reports starts from zero if the CLI was killed, and continues if it could end by itself:
        // then the tokens it reports include those of before.
        let continues = whole
            .zip(own)
            .is_some_and(|(whole, own)| resumed && whole.tokens() >= own.tokens().saturating_add(self.before.tokens()));
        let booked = self.booked.known_cost() + if continues { self.before.known_cost() } else { 0.0 };
        let rest = Usage {
            turns: 0,
            input_tokens: all.input_tokens.saturating_sub(self.booked.input_tokens),
            cached_tokens: all.cached_tokens.saturating_sub(self.booked.cached_tokens),
            output_tokens: all.output_tokens.saturating_sub(self.booked.output_tokens),
            cost_usd: outcome.total_cost_usd.map(|total| (total - booked).max(0.0)),
            known_cost_usd: None,
        };
        open_cost.resolve(rest, None);
    }

    /// Notes something in the transcript.
    pub(super) fn note(&self, text: String) {
        self.conversation.session.note(self.conversation.secrets.redact(text));
    }

    /// Writes down what the CLI calls the session.
    pub(super) fn named(&self, handle: String) {
        let session = &self.conversation.session;
        session.journal.write(&Entry::Handle { session: session.number, handle });
    }
}
