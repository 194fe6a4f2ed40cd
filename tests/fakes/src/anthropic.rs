//! The Messages API of Anthropic.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{
    Provider,
    script::{Part, Received, Reply, Script, Tokens},
    server::{Form, Protocol, pieces, sse},
};

/// A server that speaks the Messages API, streamed and in one piece, at `/v1/messages`.
pub struct Anthropic;

impl Anthropic {
    /// Starts it on a loopback address.
    pub async fn start(script: impl Into<Script>) -> Provider {
        Provider::start(Self, script.into()).await
    }
}

impl Protocol for Anthropic {
    fn form(&self, request: &Received) -> Option<Form> {
        match request.path.split('?').next()? {
            "/v1/messages" if request.body["stream"] == true => Some(Form::Stream),
            "/v1/messages" => Some(Form::Whole),
            "/v1/messages/count_tokens" => Some(Form::Fixed(json!({"input_tokens": 100}))),
            _ => None,
        }
    }

    fn stream_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn events(&self, request: &Received, reply: &Reply) -> Vec<String> {
        let mut events = Vec::new();
        let mut send = |name: &str, mut data: Value| {
            data["type"] = name.into();
            events.push(sse(Some(name), &data));
        };
        let mut message = message(request);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        if let Some(used) = reply.used() {
            // The first count of the output is of what was there when the answer began.
            message["usage"] = usage(Tokens { output: 1, ..used });
        }
        send("message_start", json!({"message": message}));
        send("ping", json!({}));
        for (index, part) in reply.parts.iter().enumerate() {
            let (start, deltas, stops) = block(request, index, part);
            send("content_block_start", json!({"index": index, "content_block": start}));
            for delta in deltas {
                send("content_block_delta", json!({"index": index, "delta": delta}));
            }
            if stops {
                send("content_block_stop", json!({"index": index}));
            }
        }
        let mut end = json!({"delta": {"stop_reason": stop(reply), "stop_sequence": null}});
        if let Some(used) = reply.used() {
            end["usage"] = usage(used);
        }
        send("message_delta", end);
        send("message_stop", json!({}));
        events
    }

    fn failure(&self, kind: &str) -> String {
        sse(Some("error"), &json!({"type": "error", "error": {"type": kind, "message": "the fake failed"}}))
    }

    fn whole(&self, request: &Received, reply: &Reply) -> Value {
        let mut message = message(request);
        let content = reply.parts.iter().enumerate().map(|(index, part)| match part {
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Thinking { text, signature } => json!({"type": "thinking", "thinking": text, "signature": signature}),
            Part::Call { name, input } => call(request, index, name, input),
            Part::CutCall { name, .. } => call(request, index, name, &json!({})),
        });
        message["content"] = content.collect();
        message["stop_reason"] = stop(reply).into();
        message["usage"] = usage(reply.used().unwrap_or_default());
        message
    }

    fn error(&self, status: StatusCode, message: &str) -> Value {
        let kind = match status.as_u16() {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"})
    }
}

fn stop(reply: &Reply) -> String {
    reply.reason("tool_use", "end_turn")
}

fn message(request: &Received) -> Value {
    json!({
        "id": format!("msg_{:024}", request.number), "type": "message", "role": "assistant",
        "model": request.body["model"], "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn call(request: &Received, index: usize, name: &str, input: &Value) -> Value {
    let id = format!("toolu_{:020}{index:04}", request.number);
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// A block of the content: how it starts, what is added to it, and whether it is brought to its end.
fn block(request: &Received, index: usize, part: &Part) -> (Value, Vec<Value>, bool) {
    let input = |text: &str| pieces(text).into_iter().map(|p| json!({"type": "input_json_delta", "partial_json": p}));
    match part {
        Part::Text(text) => {
            let deltas = pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            (json!({"type": "text", "text": ""}), deltas.collect(), true)
        }
        Part::Thinking { text, signature } => {
            let texts = pieces(text).into_iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            let signature = json!({"type": "signature_delta", "signature": signature});
            (json!({"type": "thinking", "thinking": "", "signature": ""}), texts.chain([signature]).collect(), true)
        }
        Part::Call { name, input: whole } => {
            (call(request, index, name, &json!({})), input(&whole.to_string()).collect(), true)
        }
        Part::CutCall { name, input: start } => (call(request, index, name, &json!({})), input(start).collect(), false),
    }
}

/// Anthropic counts what is cached and what is written beside `input_tokens`, not in it.
fn usage(used: Tokens) -> Value {
    json!({
        "input_tokens": used.input.saturating_sub(used.cached).saturating_sub(used.cache_write),
        "cache_creation_input_tokens": used.cache_write, "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
    })
}
