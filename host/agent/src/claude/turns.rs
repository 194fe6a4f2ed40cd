//! Tracks the model's turns: the current message, its text and usage, and its entries in the meter and the transcript.

use std::{mem, sync::Arc};

use guild_contract::Usage;
use guild_session::{
    meter::{Ending, OpenCost},
    transcript::Entry,
};
use tracing::Span;

use super::{
    conversation::Conversation,
    protocol::{Message, Outcome, Tokens},
};
use crate::{shown::Shown, trace};

/// Counts turns, and records each when it is complete.
pub(super) struct Turns {
    conversation: Arc<Conversation>,
    /// The usage of earlier turns of the CLI's session, which is in the meter already.
    before: Usage,
    /// The open cost, from the CLI's start until it reports its cost.
    open_cost: Option<OpenCost>,
    taken: u32,
    current: Option<Turn>,
    /// The id of the last complete message. Further parts of it begin no new turn.
    last: String,
    /// The booked usage of this process's turns.
    booked: Usage,
    /// The shown part of the current answer, in a conversation.
    shown: Shown,
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
    /// Whether pieces of the current block of text were received.
    in_pieces: bool,
    /// Whether an earlier block of text has ended.
    has_block: bool,
    /// Its span in traces, until it is complete.
    span: Span,
}

impl Turns {
    pub(super) fn new(conversation: Arc<Conversation>) -> Self {
        let (mut before, mut run, mut taken, mut named) = (Usage::default(), Usage::default(), 0, None);
        for entry in &conversation.session.history {
            match entry {
                Entry::Turn { turn, usage, .. } => {
                    run.add(usage);
                    taken = *turn;
                }
                // The end's usage may include usage that was unknown during its turns.
                Entry::End { usage, .. } => run = *usage,
                Entry::Message { .. } => before.add(&mem::take(&mut run)),
                // A new session of the CLI counts from zero.
                Entry::Handle { handle, .. } if named != Some(handle) => {
                    (before, run, named) = (Usage::default(), Usage::default(), Some(handle));
                }
                _ => {}
            }
        }
        before.add(&run);
        Self {
            conversation,
            open_cost: None,
            taken,
            before,
            current: None,
            last: String::new(),
            booked: Usage::default(),
            shown: Shown::default(),
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
            in_pieces: false,
            has_block: false,
            span: trace::chat("anthropic", message.model.as_deref().unwrap_or("unknown")),
        });
        Ok(())
    }

    /// Shows a piece of a text at once, in a conversation.
    pub(super) fn piece(&mut self, text: &str) {
        let Self { conversation, current: Some(turn), shown, .. } = self else { return };
        if !conversation.session.converses {
            return;
        }
        if !mem::replace(&mut turn.in_pieces, true) && turn.has_block {
            conversation.session.piece(&shown.accept("\n"));
        }
        conversation.session.piece(&shown.accept(text));
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
        for text in message.texts() {
            // A text that was not streamed is received whole.
            if self.current.as_ref().is_some_and(|turn| !turn.in_pieces) {
                self.piece(text);
            }
            if let Some(turn) = &mut self.current {
                (turn.in_pieces, turn.has_block) = (false, true);
            }
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

    /// Ends the turn whose message is complete.
    pub(super) fn stopped(&mut self) {
        if let Some(turn) = &mut self.current {
            turn.streamed = false;
        }
        self.complete();
    }

    /// Ends the turn: writes it to the transcript, and books it at its price if that is known. In a conversation an
    /// answer that broke off does not count: its shown part is in the transcript, and is not shown again when it is
    /// repeated.
    pub(super) fn complete(&mut self) {
        let Some(mut turn) = self.current.take() else { return };
        let Conversation { session, options, .. } = &*self.conversation;
        let model = turn.model.as_deref();
        let usage = match model {
            Some(model) => options.prices.usage(model, Some(turn.tokens.counted())),
            None => Usage { turns: 1, ..turn.tokens.usage() },
        };
        trace::record_usage(&turn.span, &usage);
        let broke_off = session.converses && turn.streamed;
        if broke_off {
            self.shown.begin_again(false);
        } else {
            if session.converses {
                session.piece(&self.shown.finish());
                turn.text = mem::take(&mut self.shown).text().to_owned();
            }
            session.journal.write(&Entry::Turn {
                session: session.number,
                turn: self.taken,
                model: turn.model.clone(),
                text: turn.text,
                content: None,
                usage,
            });
        }
        // The CLI reports the cost of all turns at its end; until then, `open_cost` marks the sum as unknown.
        let usage = Usage { cost_usd: Some(usage.known_cost()), known_cost_usd: None, ..usage };
        self.booked.add(&usage);
        session.meter.book(usage, model);
        self.last = turn.id;
    }

    /// Books the session's usage beyond its turns, if it is known. Without an outcome that cost stays unknown, unless
    /// there can be none.
    pub(super) fn book_rest(&mut self, outcome: Option<&Outcome>) {
        let (Some(open_cost), Some(outcome)) = (self.open_cost.take(), outcome) else { return };
        let own = outcome.usage.map(Tokens::usage);
        let whole = outcome.tokens_of_all_models();
        let resumed = self.conversation.resumed.is_some();
        let all = if resumed { own } else { whole.or(own) }.unwrap_or_default();
        // The cost that the CLI reports starts from zero if the CLI was killed, and continues if it could end by
        // itself: then its tokens include the earlier ones.
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

    /// Adds a note to the transcript.
    pub(super) fn note(&self, text: String) {
        self.conversation.session.note(self.conversation.secrets.redact(text));
    }

    /// Notes in the transcript of a conversation that the CLI compacted it.
    pub(super) fn compacted(&self) {
        let session = &self.conversation.session;
        if session.converses {
            let text = "claude summarized the earlier conversation, which did not fit any more".to_owned();
            session.journal.write(&Entry::Compacted { session: session.number, text });
        }
    }

    /// Records the CLI's id of the session, if the session can be resumed by it and the id is new.
    pub(super) fn named(&self, handle: String) {
        let Conversation { session, options, resumed, .. } = &*self.conversation;
        if (!session.converses && !options.resume) || (session.converses && resumed.as_ref() == Some(&handle)) {
            return;
        }
        session.journal.write(&Entry::Handle { session: session.number, handle });
    }
}
