//! Builds the messages of a request; the messages of a conversation are rebuilt from its transcript, without any call.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use guild_session::transcript::{Entry, interrupted};

use super::chat::{CallResult, Message, ModelAnswer, ModelCall, Part, Stop, text_of};

/// The message to a model whose answer was cut.
pub(super) const CONTINUE: &str = "Your answer was cut off at the limit of output tokens. Continue exactly where it \
    stopped, without repeating anything.";
/// The message to a model whose answer broke off after some of it was shown.
const GO_ON: &str = "Your answer was cut off by a failure of the connection. Continue exactly where it stopped, \
    without repeating anything.";
/// The text in place of the messages that are left out.
const LEFT_OUT: &str = "(The beginning of this conversation is left out, since it became too long.)\n\n";
/// The result of a call that was never begun.
const NOT_MADE: &str = "not made: the turn was interrupted before the call";

/// The answer to a call: the tool's result as text, or the reason that the call failed.
pub(super) type Outcome = Result<String, String>;

/// The id that a session gives a call.
pub(super) fn call_id(session: u32, turn: u32, index: usize) -> String {
    format!("{session}.{turn}.{index}")
}

/// The message that answers calls.
pub(super) fn results_of(calls: &[&ModelCall], outcomes: impl IntoIterator<Item = Outcome>) -> Message {
    let result = |(call, outcome): (&&ModelCall, Outcome)| {
        let failed = outcome.is_err();
        let (Ok(text) | Err(text)) = outcome;
        CallResult { id: call.id.clone(), own_id: call.own_id, name: call.name.clone(), text, failed }
    };
    Message::Results(calls.iter().zip(outcomes).map(result).collect())
}

/// The messages with which a model continues an answer that broke off after the text `shown`.
pub(super) fn going_on(messages: &[Message], shown: &str) -> Vec<Message> {
    let mut messages = messages.to_vec();
    messages.extend([assistant(shown), user(GO_ON)]);
    messages
}

/// A conversation so far.
pub(super) struct Recalled {
    pub(super) messages: Vec<Message>,
    /// The number of the last turn.
    pub(super) turn: u32,
    /// Whether the provider did not count the tokens of the last turn.
    pub(super) uncounted: bool,
}

/// Rebuilds a conversation of session `number`. Messages that were left out before because they did not fit are left
/// out again, so that requests keep the same beginning for a provider's cache.
pub(super) fn recall(
    number: u32,
    history: &[Entry],
    max_chars: usize,
    max_output_tokens: u32,
) -> Result<Recalled, String> {
    let mut recalled = Recalled { messages: Vec::new(), turn: 0, uncounted: false };
    let (results, begun) = results(history);
    let mut pieces = String::new();
    // Whether the last answer was cut at the limit of tokens, so that the next one continues it.
    let mut cut = false;
    for entry in history {
        let messages = &mut recalled.messages;
        match entry {
            Entry::Text { text, .. } => pieces.push_str(text),
            Entry::Message { text, .. } => {
                push_answer(messages, &mem::take(&mut pieces), mem::take(&mut cut));
                push_user(messages, text);
            }
            Entry::Compacted { .. } => drop(compact(messages, max_chars)),
            Entry::Turn { turn, text, content, usage, .. } => {
                pieces.clear();
                recalled.turn = *turn;
                recalled.uncounted = usage.cost_usd.is_none() && usage.tokens() == 0;
                let continued = mem::take(&mut cut);
                let answer = content.as_ref().map(ModelAnswer::restore).transpose()?;
                let Some(answer) = answer.filter(|answer| answer.calls().next().is_some() || answer.stop == Stop::Cut)
                else {
                    push_answer(messages, text, continued);
                    continue;
                };
                let calls: Vec<&ModelCall> = answer.calls().collect();
                if calls.is_empty() {
                    push_answer(messages, text, continued);
                    cut = !text.trim().is_empty();
                    continue;
                }
                if continued {
                    messages.push(user(CONTINUE));
                }
                messages.push(answer.message());
                let outcomes = calls.iter().enumerate().map(|(index, call)| {
                    let id = call_id(number, *turn, index);
                    answer.input(call, max_output_tokens)?;
                    results.get(id.as_str()).cloned().unwrap_or_else(|| {
                        let was_begun = begun.contains(id.as_str());
                        Err(if was_begun { interrupted(false) } else { NOT_MADE }.to_owned())
                    })
                });
                messages.push(results_of(&calls, outcomes));
            }
            _ => {}
        }
    }
    Ok(recalled)
}

/// The results of calls by the calls' ids, and the ids of all calls that were begun.
fn results(history: &[Entry]) -> (HashMap<&str, Result<String, String>>, HashSet<&str>) {
    let (mut results, mut begun) = (HashMap::new(), HashSet::new());
    for entry in history {
        match entry {
            Entry::Call { call, .. } => drop(begun.insert(call.as_str())),
            Entry::Result { call, error: Some(text), .. } => drop(results.insert(call.as_str(), Err(text.clone()))),
            Entry::Result { call, output, .. } => {
                let output = output.clone().unwrap_or_default();
                let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                results.insert(call.as_str(), Ok(text));
            }
            _ => {}
        }
    }
    (results, begun)
}

/// Adds an answer without calls, or the pieces of an answer that was cut off. It may continue the answer before it.
/// Providers refuse messages without text.
fn push_answer(messages: &mut Vec<Message>, text: &str, continued: bool) {
    if text.trim().is_empty() {
        return;
    }
    if continued {
        messages.push(user(CONTINUE));
    }
    messages.push(assistant(text));
}

/// Adds a message of the user. If the message before it is the user's too, the two become one, since some models refuse
/// two of them in a row.
fn push_user(messages: &mut Vec<Message>, text: &str) {
    match messages.last_mut() {
        Some(Message::User(before)) => {
            before.push_str("\n\n");
            before.push_str(text);
        }
        _ => messages.push(user(text)),
    }
}

fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

fn assistant(text: &str) -> Message {
    Message::Assistant(vec![Part::text(text)])
}

/// Leaves out the oldest messages of a conversation of more than `max_chars` characters, and some more than necessary,
/// so that the next requests have the same beginning. An exchange begins with a message of the user; in the last
/// exchange, calls are left out together with their results. Returns the number of messages that are left out.
pub(super) fn compact(messages: &mut Vec<Message>, max_chars: usize) -> usize {
    let sizes: Vec<usize> = messages.iter().map(chars).collect();
    if sizes.iter().sum::<usize>() <= max_chars {
        return 0;
    }
    let target = max_chars / 4 * 3;
    let from = |index: usize| sizes.iter().skip(index).sum::<usize>();
    let exchanges: Vec<usize> = starts(messages, begins_exchange);
    let fits = exchanges.iter().copied().find(|start| from(*start) <= target);
    let first = fits.or(exchanges.last().copied()).unwrap_or(0);
    let mut kept = messages.split_off(first);
    let mut left_out = first;
    if from(first) > max_chars {
        // The user's last message stays, and the last answer with the results of its calls.
        let asked = sizes.get(first).copied().unwrap_or_default();
        let answers = starts(&kept, |message| matches!(message, Message::Assistant(_)));
        let fits = answers.iter().copied().find(|start| asked + from(first + start) <= target);
        if let Some(start) = fits.or(answers.last().copied()) {
            kept.drain(1..start);
            left_out += start - 1;
        }
    }
    if left_out > 0
        && let Some(first) = kept.first_mut()
    {
        let text = match first {
            Message::User(text) => mem::take(text),
            Message::Assistant(parts) => text_of(parts),
            Message::Results(_) => String::new(),
        };
        *first = Message::User(if text.starts_with(LEFT_OUT) { text } else { format!("{LEFT_OUT}{text}") });
    }
    *messages = kept;
    left_out
}

/// The positions of the messages that match, after the first message.
fn starts(messages: &[Message], is_start: impl Fn(&Message) -> bool) -> Vec<usize> {
    let found = messages.iter().enumerate().skip(1).filter(|(_, message)| is_start(message));
    found.map(|(index, _)| index).collect()
}

fn begins_exchange(message: &Message) -> bool {
    matches!(message, Message::User(text) if text != CONTINUE)
}

/// The characters of a message, with those of its calls and results.
fn chars(message: &Message) -> usize {
    let count = |text: &str| text.chars().count();
    match message {
        Message::User(text) => count(text),
        Message::Results(results) => results.iter().map(|result| count(&result.name) + count(&result.text)).sum(),
        Message::Assistant(parts) => {
            let of = |part: &Part| match part {
                Part::Text { text, .. } | Part::Reasoning { text, .. } => count(text),
                other => count(&serde_json::to_string(other).unwrap_or_default()),
            };
            parts.iter().map(of).sum()
        }
    }
}
