//! The model's turns: which message is under way, what it said and used, and what the meter and the transcript are told.

use std::sync::Arc;

use guild_contract::Usage;
use guild_session::{
    meter::{Ending, Meter, Paid},
    transcript::{Entry, Journal},
};
use tokio::sync::mpsc;

use super::{
    ClaudeOptions,
    conversation::Conversation,
    protocol::{Message, Outcome, Tokens},
    redact::Secrets,
};

/// Counts turns, and writes each down when it is complete.
pub(super) struct Turns {
    session: u32,
    /// Whether the session did something before its host stopped.
    resumed: bool,
    /// What its turns used then; it is in the meter already.
    before: Usage,
    meter: Arc<Meter>,
    journal: Arc<dyn Journal>,
    texts: Option<mpsc::Sender<String>>,
    options: Arc<ClaudeOptions>,
    secrets: Secrets,
    /// From the moment at which the CLI is asked, until it has said what that cost.
    paid: Option<Paid>,
    taken: u32,
    current: Option<Turn>,
    /// The message that was last complete: what still comes of it is no new turn.
    last: String,
    /// What was booked of this process's turns.
    booked: Usage,
    said: String,
}

struct Turn {
    id: String,
    model: Option<String>,
    text: String,
    tokens: Tokens,
    /// Whether the end of the message will be told.
    streamed: bool,
}

impl Turns {
    pub(super) fn new(conversation: &Conversation) -> Self {
        let session = &conversation.session;
        let mut before = Usage::default();
        for entry in &session.history {
            if let Entry::Turn { usage, .. } = entry {
                before.add(usage);
            }
        }
        Self {
            session: session.number,
            resumed: !session.history.is_empty(),
            meter: session.meter.clone(),
            journal: session.journal.clone(),
            texts: session.texts.clone(),
            options: conversation.options.clone(),
            secrets: conversation.secrets.clone(),
            paid: None,
            taken: before.turns,
            before,
            current: None,
            last: String::new(),
            booked: Usage::default(),
            said: String::new(),
        }
    }

    /// Whether the model is in the middle of a message whose end will be told.
    pub(super) fn is_streaming(&self) -> bool {
        self.current.as_ref().is_some_and(|turn| turn.streamed)
    }

    /// From now on the CLI costs.
    pub(super) fn pay(&mut self) {
        self.paid = Some(self.meter.paid());
    }

    /// A message begins to be streamed.
    pub(super) fn begin(&mut self, message: &Message) -> Result<(), Ending> {
        self.take(message, true)
    }

    fn take(&mut self, message: &Message, streamed: bool) -> Result<(), Ending> {
        self.complete();
        self.meter.take_turn()?;
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

    /// A part of a message is there.
    pub(super) fn part(&mut self, message: &Message) -> Result<(), Ending> {
        for text in message.texts() {
            if let Some(texts) = &self.texts {
                // Whoever listens too slowly misses some.
                let _ = texts.try_send(text.to_owned());
            }
            text.clone_into(&mut self.said);
        }
        if message.id == self.last {
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|turn| turn.id != message.id) {
            self.take(message, false)?;
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

    /// The message's usage, as it is known by now.
    pub(super) fn used(&mut self, tokens: Option<Tokens>) {
        if let (Some(turn), Some(tokens)) = (&mut self.current, tokens) {
            turn.tokens.update(tokens);
        }
    }

    /// The message is complete, as far as will be known: it is written down and booked, at its price where that is known.
    pub(super) fn complete(&mut self) {
        let Some(turn) = self.current.take() else { return };
        let model = turn.model.as_deref();
        let usage = match model {
            Some(model) => self.options.prices.usage(model, Some(turn.tokens.priced())),
            None => Usage { turns: 1, ..turn.tokens.usage() },
        };
        self.journal.write(&Entry::Turn {
            session: self.session,
            turn: self.taken,
            model: turn.model.clone(),
            text: turn.text,
            content: None,
            usage,
        });
        // The CLI says at the end what all turns cost; that it is open until then says [`Self::paid`].
        let usage = Usage { cost_usd: Some(usage.known_cost()), known_cost_usd: None, ..usage };
        self.booked.add(&usage);
        self.meter.book(usage, model);
        self.last = turn.id;
    }

    /// Books what the session used besides, once that is known. Without an outcome, what it cost beyond its turns stays
    /// unknown, if there can be anything.
    pub(super) fn book_rest(&mut self, outcome: Option<&Outcome>) {
        let (Some(paid), Some(outcome)) = (self.paid.take(), outcome) else { return };
        let own = outcome.usage.map(Tokens::usage);
        let whole = outcome.tokens_of_all_models();
        let all = if self.resumed { own } else { whole.or(own) }.unwrap_or_default();
        // What the CLI says of the cost begins anew if it was killed, and goes on where it could end by itself: then the
        // tokens of before are among those that it says next to it.
        let goes_on = whole.zip(own).is_some_and(|(whole, own)| {
            self.resumed && whole.tokens() >= own.tokens().saturating_add(self.before.tokens())
        });
        let booked = self.booked.known_cost() + if goes_on { self.before.known_cost() } else { 0.0 };
        let rest = Usage {
            turns: 0,
            input_tokens: all.input_tokens.saturating_sub(self.booked.input_tokens),
            cached_tokens: all.cached_tokens.saturating_sub(self.booked.cached_tokens),
            output_tokens: all.output_tokens.saturating_sub(self.booked.output_tokens),
            cost_usd: outcome.total_cost_usd.map(|total| (total - booked).max(0.0)),
            known_cost_usd: None,
        };
        paid.settle(rest, None);
    }

    /// Notes something in the transcript.
    pub(super) fn note(&self, text: String) {
        self.journal.write(&Entry::Note { session: self.session, text: self.secrets.redact(text) });
    }

    /// Writes down what the CLI calls the session.
    pub(super) fn named(&self, handle: String) {
        self.journal.write(&Entry::Handle { session: self.session, handle });
    }

    /// The last text of the model.
    pub(super) fn said(&self) -> String {
        self.said.clone()
    }
}
