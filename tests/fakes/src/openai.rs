//! The chat completions of OpenAI, as vLLM, llama.cpp and others speak them too.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{
    Provider,
    script::{Part, Received, Reply, Script, Tokens},
    server::{Form, Protocol, pieces, sse},
};

/// A server that speaks chat completions, streamed and in one piece, at `/v1/chat/completions`.
pub struct OpenAi;

impl OpenAi {
    /// Starts it on a loopback address. Its base URL for clients is [`Provider::url`] and `/v1`.
    pub async fn start(script: impl Into<Script>) -> Provider {
        Provider::start(Self, script.into()).await
    }
}

impl Protocol for OpenAi {
    fn form(&self, request: &Received) -> Option<Form> {
        match request.path.split('?').next()? {
            "/v1/chat/completions" if request.body["stream"] == true => Some(Form::Stream),
            "/v1/chat/completions" => Some(Form::Whole),
            _ => None,
        }
    }

    fn stream_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn events(&self, request: &Received, reply: &Reply) -> Vec<String> {
        let chunk = |delta: Value, finish: Option<String>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            frame(request, "chat.completion.chunk", &json!([choice]), None)
        };
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
        let mut calls = 0;
        for part in &reply.parts {
            match part {
                Part::Text(text) => {
                    events.extend(pieces(text).into_iter().map(|piece| chunk(json!({"content": piece}), None)));
                }
                Part::Thinking { text, .. } => {
                    let pieces = pieces(text).into_iter();
                    events.extend(pieces.map(|piece| chunk(json!({"reasoning_content": piece}), None)));
                }
                Part::Call { name, input } => {
                    let start = call(request, calls, name, String::new());
                    events.push(chunk(json!({"tool_calls": [start]}), None));
                    for piece in pieces(&input.to_string()) {
                        let more = json!({"index": calls, "function": {"arguments": piece}});
                        events.push(chunk(json!({"tool_calls": [more]}), None));
                    }
                    calls += 1;
                }
                Part::CutCall { name, input } => {
                    events.push(chunk(json!({"tool_calls": [call(request, calls, name, input.clone())]}), None));
                    calls += 1;
                }
            }
        }
        events.push(chunk(json!({}), Some(stop(reply))));
        if let Some(used) = reply.used()
            && request.body["stream_options"]["include_usage"] == true
        {
            events.push(frame(request, "chat.completion.chunk", &json!([]), Some(used)));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn failure(&self, kind: &str) -> String {
        sse(None, &json!({"error": {"message": "the fake failed", "type": kind, "param": null, "code": null}}))
    }

    fn whole(&self, request: &Received, reply: &Reply) -> Value {
        let mut message = json!({"role": "assistant", "content": null});
        let mut calls = Vec::new();
        for part in &reply.parts {
            match part {
                Part::Text(text) => message["content"] = text.as_str().into(),
                Part::Thinking { text, .. } => message["reasoning_content"] = text.as_str().into(),
                Part::Call { name, input } => calls.push(call(request, calls.len(), name, input.to_string())),
                Part::CutCall { name, input } => calls.push(call(request, calls.len(), name, input.clone())),
            }
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        json!({
            "id": format!("chatcmpl-{}", request.number), "object": "chat.completion", "created": 0,
            "model": request.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": stop(reply)}],
            "usage": usage(reply.used().unwrap_or_default()),
        })
    }

    fn error(&self, status: StatusCode, message: &str) -> Value {
        let kind = match status.as_u16() {
            401 => "authentication_error",
            429 => "rate_limit_exceeded",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        };
        json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
    }
}

fn stop(reply: &Reply) -> String {
    reply.reason("tool_calls", "stop")
}

fn frame(request: &Received, object: &str, choices: &Value, used: Option<Tokens>) -> String {
    let id = format!("chatcmpl-{}", request.number);
    let model = &request.body["model"];
    let mut data = json!({"id": id, "object": object, "created": 0, "model": model, "choices": choices});
    if let Some(used) = used {
        data["usage"] = usage(used);
    }
    sse(None, &data)
}

fn call(request: &Received, index: usize, name: &str, arguments: String) -> Value {
    let id = format!("call_{}_{index}", request.number);
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// What is cached counts as input too.
fn usage(used: Tokens) -> Value {
    json!({
        "prompt_tokens": used.input, "completion_tokens": used.output, "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    })
}
