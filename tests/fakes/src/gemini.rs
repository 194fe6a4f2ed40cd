//! `generateContent` of Gemini.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{
    Provider,
    script::{Part, Received, Reply, Script},
    server::{Form, Protocol, pieces, sse},
};

/// A server that speaks `streamGenerateContent` and `generateContent` under `/v1beta/models/`.
pub struct Gemini;

impl Gemini {
    /// Starts it on a loopback address. Its base URL for clients is [`Provider::url`] and `/v1beta`.
    pub async fn start(script: impl Into<Script>) -> Provider {
        Provider::start(Self, script.into()).await
    }
}

impl Protocol for Gemini {
    fn form(&self, request: &Received) -> Option<Form> {
        let method = request.path.split('?').next()?.strip_prefix("/v1beta/models/")?.rsplit_once(':')?.1;
        match method {
            "streamGenerateContent" => Some(Form::Stream),
            "generateContent" => Some(Form::Whole),
            _ => None,
        }
    }

    fn stream_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn events(&self, request: &Received, reply: &Reply) -> Vec<String> {
        let mut contents = Vec::new();
        for part in &reply.parts {
            match part {
                // A text comes in pieces; everything else comes whole.
                Part::Text(text) => contents.extend(pieces(text).into_iter().map(|piece| json!({"text": piece}))),
                part => contents.push(content(part)),
            }
        }
        let last = contents.pop();
        let mut events: Vec<String> =
            contents.into_iter().map(|part| sse(None, &answer(request, reply, vec![part], false))).collect();
        events.push(sse(None, &answer(request, reply, last.into_iter().collect(), true)));
        events
    }

    fn failure(&self, kind: &str) -> String {
        sse(None, &json!({"error": {"code": 503, "message": "the fake failed", "status": kind}}))
    }

    fn whole(&self, request: &Received, reply: &Reply) -> Value {
        answer(request, reply, reply.parts.iter().map(content).collect(), true)
    }

    fn error(&self, status: StatusCode, message: &str) -> Value {
        let name = match status.as_u16() {
            400 => "INVALID_ARGUMENT",
            401 | 403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        json!({"error": {"code": status.as_u16(), "message": message, "status": name}})
    }
}

fn content(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::Thinking { text, signature } => json!({"text": text, "thought": true, "thoughtSignature": signature}),
        Part::Call { name, input } => json!({"functionCall": {"name": name, "args": input}}),
        Part::CutCall { name, input } => json!({"functionCall": {"name": name, "args": input}}),
    }
}

fn answer(request: &Received, reply: &Reply, parts: Vec<Value>, last: bool) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if last {
        candidate["finishReason"] = reply.reason("STOP", "STOP").into();
    }
    let mut answer = json!({"candidates": [candidate], "responseId": format!("r{}", request.number)});
    if let Some(used) = reply.used() {
        answer["usageMetadata"] = json!({
            "promptTokenCount": used.input, "candidatesTokenCount": used.output,
            "totalTokenCount": used.input + used.output, "cachedContentTokenCount": used.cached,
        });
    }
    answer
}
