//! The chat of Ollama.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::{
    Provider,
    script::{Part, Received, Reply, Script},
    server::{Form, Protocol, pieces},
};

/// A server that speaks Ollama's own chat, streamed and in one piece, at `/api/chat`.
pub struct Ollama;

impl Ollama {
    /// Starts it on a loopback address.
    pub async fn start(script: impl Into<Script>) -> Provider {
        Provider::start(Self, script.into()).await
    }
}

impl Protocol for Ollama {
    fn form(&self, request: &Received) -> Option<Form> {
        match request.path.as_str() {
            "/api/chat" if request.body["stream"] == false => Some(Form::Whole),
            "/api/chat" => Some(Form::Stream),
            _ => None,
        }
    }

    fn stream_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn events(&self, request: &Received, reply: &Reply) -> Vec<String> {
        let mut messages = Vec::new();
        for part in &reply.parts {
            match part {
                Part::Text(text) => messages.extend(pieces(text).into_iter().map(|piece| json!({"content": piece}))),
                Part::Thinking { text, .. } => messages.push(json!({"content": "", "thinking": text})),
                Part::Call { name, input } => messages.push(json!({"content": "", "tool_calls": [call(name, input)]})),
                Part::CutCall { name, input } => {
                    messages.push(json!({"content": "", "tool_calls": [call(name, &json!(input))]}));
                }
            }
        }
        let lines = messages.into_iter().map(|message| line(request, message, None));
        let end = line(request, json!({"content": ""}), Some(reply));
        lines.chain([end]).map(|line| format!("{line}\n")).collect()
    }

    fn failure(&self, kind: &str) -> String {
        format!("{}\n", json!({"error": kind}))
    }

    fn whole(&self, request: &Received, reply: &Reply) -> Value {
        let mut message = json!({"content": ""});
        let mut calls = Vec::new();
        for part in &reply.parts {
            match part {
                Part::Text(text) => message["content"] = text.as_str().into(),
                Part::Thinking { text, .. } => message["thinking"] = text.as_str().into(),
                Part::Call { name, input } => calls.push(call(name, input)),
                Part::CutCall { name, input } => calls.push(call(name, &json!(input))),
            }
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        line(request, message, Some(reply))
    }

    fn error(&self, _status: StatusCode, message: &str) -> Value {
        json!({"error": message})
    }
}

fn call(name: &str, input: &Value) -> Value {
    json!({"function": {"name": name, "arguments": input}})
}

fn line(request: &Received, mut message: Value, ended: Option<&Reply>) -> Value {
    message["role"] = "assistant".into();
    let mut line = json!({"model": request.body["model"], "created_at": "2026-01-01T00:00:00Z", "message": message});
    line["done"] = ended.is_some().into();
    if let Some(reply) = ended {
        line["done_reason"] = reply.reason("stop", "stop").into();
        if let Some(used) = reply.used() {
            line["prompt_eval_count"] = used.input.into();
            line["eval_count"] = used.output.into();
        }
    }
    line
}
