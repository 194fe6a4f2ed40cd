//! Implements the protocols of the providers: they write requests and read answers.
//!
//! An answer is untrusted input. A deviation from a protocol is understood as widely used servers mean it
//! (`docs/reference/configuration.md` has the table), or it is an error that quotes the provider. A call is made only
//! if its input was received whole. Calls, indexes and sizes are bounded before anything is allocated for them.

use guild_config::Provider;
use serde_json::{Value, json};

mod anthropic;
mod assembly;
mod frames;
mod gemini;
mod ollama;
mod openai;
mod surrogates;

use assembly::{Assembly, word};
use frames::{Frame, Frames, quoted};

use super::{
    chat::{Message, Received, Request, Stop},
    failure::Failure,
};

/// The most bytes of one answer: its text, its reasoning and all of its calls together. The constant also bounds each
/// line of the answer.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// The most parts of one answer: texts, blocks of reasoning, calls.
const MAX_PARTS: usize = 4096;
/// The most calls in one answer. Models make a few dozen at most.
const MAX_CALLS: usize = 128;
/// The most bytes of memory that the inputs of an answer's calls may take together.
const MAX_INPUT_BYTES: u64 = 96 * 1024 * 1024;
/// The most notes about ignored data in one answer.
const MAX_NOTES: usize = 8;

/// A protocol: the address of a request, its format, and the format of an answer.
pub(super) struct Protocol {
    /// The path below the base URL; `{model}` stands for the name of the model.
    pub(super) path: &'static [&'static str],
    pub(super) query: Option<&'static str>,
    /// The header of the key. In `authorization` the key is a bearer token.
    pub(super) key_header: &'static str,
    /// Headers that every request has.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// Whether the provider caches the beginning of a request only if the request asks for it.
    pub(super) caches_on_request: bool,
    /// Whether only the end of the body ends an answer, since some servers send a reason to stop with each piece.
    ends_with_body: bool,
    body: fn(&Request<'_>) -> Value,
    /// Takes a message of the answer, with the name of its event.
    read: fn(&mut Assembly, &str, &Value) -> Result<(), Failure>,
}

impl Protocol {
    /// The protocol that a provider speaks.
    pub(super) fn of(provider: Provider) -> &'static Self {
        match provider {
            Provider::Anthropic => &anthropic::PROTOCOL,
            Provider::OpenAi => &openai::PROTOCOL,
            Provider::Gemini => &gemini::PROTOCOL,
            Provider::Ollama => &ollama::PROTOCOL,
        }
    }

    /// The body of a request.
    pub(super) fn body(&self, request: &Request<'_>) -> Value {
        (self.body)(request)
    }
}

/// The messages of a request in protocols whose first one is the system prompt; `push` writes one.
fn chat_messages(request: &Request<'_>, push: fn(&mut Vec<Value>, &Message)) -> Vec<Value> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system_prompt.is_empty() {
        messages.push(json!({"role": "system", "content": request.system_prompt}));
    }
    request.messages.iter().for_each(|message| push(&mut messages, message));
    messages
}

/// Writes the tools of a request as functions, in the form of OpenAI and Ollama.
fn set_functions(body: &mut Value, request: &Request<'_>) {
    if request.tools.is_empty() {
        return;
    }
    let tools = request.tools.iter().map(|tool| {
        let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
        json!({"type": "function", "function": function})
    });
    set(body, "tools", tools.collect::<Vec<_>>());
}

/// Reads one answer.
pub(super) struct Reader {
    protocol: &'static Protocol,
    frames: Frames,
    assembly: Assembly,
}

impl Reader {
    pub(super) fn new(protocol: &'static Protocol) -> Self {
        Self { protocol, frames: Frames::default(), assembly: Assembly::default() }
    }

    /// Reads the next bytes of the body. Returns the text that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<String, Failure> {
        let Self { protocol, frames, assembly } = self;
        let read = frames.push(bytes, &mut |frame| take(protocol, assembly, frame));
        // Data after the end has no meaning.
        read.or_else(|failure| if assembly.ended { Ok(()) } else { Err(failure) })?;
        Ok(assembly.take_fresh())
    }

    /// Whether the provider announced the end of the answer.
    pub(super) fn is_ended(&self) -> bool {
        self.assembly.ended
    }

    /// Whether the answer is whole even without its end marker: the provider has sent the model's reason to stop.
    pub(super) fn may_end(&self) -> bool {
        self.is_ended() || (!self.protocol.ends_with_body && self.assembly.finish.is_some())
    }

    /// The answer, after the end of its body or its end marker, and the text that was not returned before.
    pub(super) fn finish(mut self) -> Result<(Received, String), Failure> {
        let may_end = self.may_end();
        let Self { protocol, frames, assembly } = &mut self;
        if !assembly.ended {
            let rest = frames.finish(&mut |frame| take(protocol, assembly, frame));
            // The rest of a whole answer may be cut.
            rest.or_else(|failure| if may_end { Ok(()) } else { Err(failure) })?;
        }
        if !assembly.ended && assembly.finish.is_none() {
            let unread = frames.unread().map(|text| format!("; it began with {}", quoted(text)));
            let unread = unread.or(assembly.first_note().map(|note| format!("; {note}"))).unwrap_or_default();
            return Err(Failure::passing(format!("the answer broke off before its end{unread}")));
        }
        let stop = self.stop()?;
        self.assembly.finish(stop)
    }

    /// Translates the provider's reason to stop.
    fn stop(&mut self) -> Result<Stop, Failure> {
        if !self.assembly.refusal.is_empty() {
            return Ok(Stop::Withheld(format!("refusal: {}", word(&self.assembly.refusal))));
        }
        let Some(reason) = self.assembly.finish.clone() else { return Ok(Stop::Done) };
        Ok(match reason.as_str() {
            "stop" | "end_turn" | "stop_sequence" | "tool_calls" | "tool_use" | "function_call" | "eos"
            | "eos_token" | "STOP" => Stop::Done,
            "length" | "max_tokens" | "model_context_window_exceeded" | "model_length" | "MAX_TOKENS" => Stop::Cut,
            "content_filter" | "refusal" | "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST"
            | "PROHIBITED_CONTENT" | "SPII" => Stop::Withheld(reason),
            // The server stopped, and not the model.
            "error"
            | "abort"
            | "cancelled"
            | "insufficient_system_resource"
            | "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "MALFORMED_RESPONSE"
            | "MISSING_THOUGHT_SIGNATURE"
            | "TOO_MANY_TOOL_CALLS"
            | "OTHER" => {
                return Err(Failure::passing(format!("the provider broke off its answer ({reason})")));
            }
            _ => {
                self.assembly.note(format!("the provider's reason to stop is unknown: {reason:?}"));
                Stop::Done
            }
        })
    }
}

/// Takes a frame of the body.
fn take(protocol: &Protocol, assembly: &mut Assembly, frame: Frame) -> Result<(), Failure> {
    let (event, value) = match frame {
        // Nothing counts after the end.
        _ if assembly.ended => return Ok(()),
        Frame::End => {
            assembly.ended = true;
            return Ok(());
        }
        Frame::Message { event, value, has_halves } => {
            assembly.has_halves = has_halves;
            (event, value)
        }
    };
    if let Some(failure) = reported_failure(&event, &value) {
        return Err(failure);
    }
    if value.is_null() {
        return Ok(());
    }
    if !value.is_object() {
        return Err(Failure::passing(format!(
            "a message of the answer is not a JSON object: {}",
            quoted(&value.to_string())
        )));
    }
    (protocol.read)(assembly, &event, &value)
}

/// The failure that a message reports in place of an answer. A field such as `"error": null` reports none.
fn reported_failure(event: &str, value: &Value) -> Option<Failure> {
    let is_said = |error: &&Value| match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    let is_error = |field: &str| value.get(field).and_then(Value::as_str) == Some("error");
    match value.get("error").filter(is_said) {
        Some(error) => Some(Failure::of_event(error)),
        // vLLM and others send the error without a field around it.
        None if event == "error" || is_error("type") || is_error("object") => Some(Failure::of_event(value)),
        None => None,
    }
}

fn too_large() -> Failure {
    Failure::last(format!("the answer is larger than {MAX_ANSWER_BYTES} bytes"))
}

/// Sets a field of an object that is being written.
fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
}

/// A text field; empty if it is missing.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field with a number of tokens, which some servers send as a fraction or as text.
fn count(value: &Value, field: &str) -> Option<u64> {
    match value.get(field)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            let fraction = number.as_f64().filter(|number| (0.0..1e15).contains(number))?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to 1e15")]
            Some(fraction as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A provider's label of a call or a block. It is only compared, and never used as a position or a size.
fn label(value: &Value, field: &str) -> Option<String> {
    match value.get(field)? {
        Value::Null => None,
        Value::String(text) => Some(word(text)),
        number => Some(word(&number.to_string())),
    }
}

/// Records the reason to stop of a message that has one.
fn finish(assembly: &mut Assembly, reason: Option<&Value>) {
    if let Some(reason) = reason.and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
        assembly.finish = Some(word(reason));
    }
}

/// The input of a call in an answer that is sent back: providers want an object.
fn sent_input(call: &super::chat::ModelCall) -> Value {
    call.input.clone().map_or_else(|| json!({}), Value::Object)
}
