//! A model's answer: as it was received, as the transcript stores it, and as it is sent back to the model.

use genai::chat::{ChatMessage, ContentPart, MessageContent, StopReason, StreamEnd, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::prices::Tokens;

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stop {
    /// It was done, or calls tools.
    Done,
    /// It reached the limit of output tokens.
    Cut,
    /// The provider withheld the answer, or the rest of it; the provider's own reason.
    Withheld(String),
}

/// An answer. The transcript stores it, so that the session can be resumed after a restart.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ModelAnswer {
    /// What the model said and called, in order, with what the provider needs to get back.
    parts: Vec<ContentPart>,
    /// Why it stopped.
    pub(crate) stop: Stop,
}

impl ModelAnswer {
    pub(crate) fn new(end: StreamEnd) -> Self {
        let stop = match end.captured_stop_reason {
            Some(StopReason::MaxTokens(_)) => Stop::Cut,
            Some(StopReason::ContentFilter(reason)) => Stop::Withheld(reason),
            _ => Stop::Done,
        };
        let mut parts = end.captured_content.map(MessageContent::into_parts).unwrap_or_default();
        // Reasoning that is not among the parts is put before them: a model that calls tools needs it in the next
        // request.
        let has_reasoning = parts.iter().any(|part| matches!(part, ContentPart::ReasoningContent(_)));
        let calls = parts.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
        if let Some(reasoning) = end.captured_reasoning_content
            && calls
            && !has_reasoning
        {
            parts.insert(0, ContentPart::ReasoningContent(reasoning));
        }
        for part in &mut parts {
            if let ContentPart::Custom(custom) = part {
                custom.model_iden = None;
            }
        }
        Self { parts, stop }
    }

    /// An answer out of a transcript.
    pub(crate) fn restore(content: &Value) -> Result<Self, String> {
        Self::deserialize(content).map_err(|e| format!("a turn in the transcript cannot be read: {e}"))
    }

    /// The answer with this as all of its text: what was shown of it before it broke off, and what it went on with.
    pub(crate) fn with_text(mut self, text: &str) -> Self {
        let is_said = |part: &ContentPart| part.as_text().is_some() || part.as_tool_call().is_some();
        let at = self.parts.iter().position(is_said).unwrap_or(self.parts.len());
        self.parts.retain(|part| part.as_text().is_none());
        if !text.is_empty() {
            self.parts.insert(at, ContentPart::from_text(text));
        }
        self
    }

    /// What the model said.
    pub(crate) fn text(&self) -> String {
        self.parts.iter().filter_map(ContentPart::as_text).collect()
    }

    /// What it calls, in order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(ContentPart::as_tool_call)
    }

    /// The input of one of its calls, or the error for the model: a call that broke off is not made.
    pub(crate) fn input(&self, call: &ToolCall, max_output_tokens: u32) -> Result<Value, String> {
        match &call.fn_arguments {
            Value::Object(_) => Ok(call.fn_arguments.clone()),
            _ if self.stop == Stop::Cut => Err(format!(
                "the call was not made: it broke off at the limit of {max_output_tokens} output tokens. Call again \
                 with less input, or in several calls."
            )),
            Value::Null => Ok(Value::Object(Map::new())),
            // Some servers send an empty text for a call without input.
            Value::String(text) if text.trim().is_empty() => Ok(Value::Object(Map::new())),
            _ => Err("the call was not made: its input is no JSON object".to_owned()),
        }
    }

    /// The message that repeats the answer to the model. Providers want objects as the input of calls.
    pub(crate) fn message(&self) -> ChatMessage {
        let part = |part: &ContentPart| match part {
            ContentPart::ToolCall(call) if !call.fn_arguments.is_object() => {
                ContentPart::ToolCall(ToolCall { fn_arguments: Value::Object(Map::new()), ..call.clone() })
            }
            part => part.clone(),
        };
        ChatMessage::assistant(MessageContent::from_parts(self.parts.iter().map(part).collect::<Vec<_>>()))
    }
}

/// What a request used, as the provider counted it; `None` where it did not.
pub(crate) fn tokens(end: &StreamEnd) -> Option<Tokens> {
    let usage = end.captured_usage.as_ref()?;
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or_default()).unwrap_or_default();
    let cache = usage.prompt_tokens_details.as_ref();
    let reasoning = usage.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
    let tokens = Tokens {
        // genai counts what was cached and written in, for every provider.
        input: count(usage.prompt_tokens),
        cached: count(cache.and_then(|cache| cache.cached_tokens)),
        cache_write: count(cache.and_then(|cache| cache.cache_creation_tokens)),
        // For an answer of reasoning only, Gemini counts the reasoning and no completion.
        output: count(usage.completion_tokens.or(reasoning)),
    };
    (tokens != Tokens::default()).then_some(tokens)
}
