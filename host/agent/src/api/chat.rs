//! Defines messages of a request to a model, and parts of its answer, in the terms of no provider.

use std::sync::Arc;

use guild_config::Tokens;
use guild_contract::secret::Secret;
use guild_session::tools::ToolDefinition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request for the next answer, in the terms of no particular provider.
pub(crate) struct Request<'a> {
    /// The model's name, as the provider knows it.
    pub(crate) model: &'a str,
    pub(crate) system_prompt: &'a str,
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [Arc<ToolDefinition>],
    pub(crate) max_output_tokens: u32,
    /// Whether later requests begin with this one, so that the provider is asked to cache it.
    pub(crate) cache: bool,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) enum Message {
    /// A message of the user, or of the host in the user's place.
    User(String),
    /// An answer of the model.
    Assistant(Vec<Part>),
    /// The results of the calls in the message before.
    Results(Vec<CallResult>),
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CallResult {
    /// The id of the call.
    pub(crate) id: String,
    /// Whether the host chose the id.
    pub(crate) own_id: bool,
    /// The tool that was called.
    pub(crate) name: String,
    /// The tool's result as text, or the reason that the call failed.
    pub(crate) text: String,
    pub(crate) failed: bool,
}

/// A part of a model's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Text. Gemini may sign it.
    Text {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// The model's reasoning. Anthropic signs it, and takes it back only with its signature.
    Reasoning {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A block that the provider wants back unchanged.
    Opaque(Value),
    /// A tool call.
    Call(ModelCall),
}

impl Part {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A text without a signature.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), signature: None }
    }
}

/// A tool call of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    /// The provider's id of the call, or an id that the host chose because the provider sent none.
    pub(crate) id: String,
    /// Whether the host chose the id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own_id: bool,
    pub(crate) name: String,
    /// The input. `None` where the input that was received is not one whole JSON object: such a call is not made.
    pub(crate) input: Option<Map<String, Value>>,
    /// Gemini's signature of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
}

/// The reason that a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stop {
    /// The model was done, or calls tools.
    Done,
    /// The answer reached the limit of output tokens.
    Cut,
    /// The provider withheld the answer, or the rest of it, for this reason of its own.
    Withheld(String),
}

/// An answer. The transcript stores it, so that the session can be resumed after a restart.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelAnswer {
    /// The texts and calls of the model, in order.
    pub(crate) parts: Vec<Part>,
    /// The reason that the model stopped.
    pub(crate) stop: Stop,
}

impl ModelAnswer {
    /// Restores an answer from a transcript.
    pub(crate) fn restore(content: &Value) -> Result<Self, String> {
        Self::deserialize(content).map_err(|e| format!("a turn in the transcript cannot be read: {e}"))
    }

    /// The answer with `text` as its whole text: the part that was shown before the answer broke off, and its
    /// continuation.
    pub(crate) fn with_text(mut self, text: &str) -> Self {
        let is_said = |part: &Part| matches!(part, Part::Text { .. } | Part::Call(_));
        let at = self.parts.iter().position(is_said).unwrap_or(self.parts.len());
        self.parts.retain(|part| !matches!(part, Part::Text { .. }));
        if !text.is_empty() {
            self.parts.insert(at, Part::text(text));
        }
        self
    }

    /// The text of the answer.
    pub(crate) fn text(&self) -> String {
        text_of(&self.parts)
    }

    /// The calls of the answer, in order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ModelCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The input of a call, or the error for the model: a call whose input was not received whole is not made.
    pub(crate) fn input(&self, call: &ModelCall, max_output_tokens: u32) -> Result<Value, String> {
        match &call.input {
            Some(input) => Ok(Value::Object(input.clone())),
            None if self.stop == Stop::Cut => Err(format!(
                "the call was not made: it was cut off at the limit of {max_output_tokens} output tokens. Call again \
                 with less input, or in several calls."
            )),
            None => Err("the call was not made: its input is not a JSON object".to_owned()),
        }
    }

    /// The message that repeats the answer to the model.
    pub(crate) fn message(&self) -> Message {
        Message::Assistant(self.parts.clone())
    }
}

/// The text of an answer's parts.
pub(crate) fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

/// An answer that was received whole.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) answer: ModelAnswer,
    /// The tokens that the provider counted; `None` if it counted none.
    pub(crate) tokens: Option<Tokens>,
    /// A sentence about each part of the answer that was ignored.
    pub(crate) notes: Vec<String>,
}

impl Received {
    /// Removes the key from the answer, wherever the provider quotes it outside of the model's own words.
    pub(crate) fn without(mut self, key: &Secret) -> Self {
        let hide = |text: &mut String| *text = text.replace(key.expose(), "***");
        self.notes.iter_mut().for_each(hide);
        if let Stop::Withheld(reason) = &mut self.answer.stop {
            hide(reason);
        }
        self
    }
}
