//! Speaks `streamGenerateContent`, Gemini's protocol.

use std::sync::Arc;

use guild_config::Tokens;
use guild_session::tools::ToolDefinition;
use serde_json::{Value, json};

use super::{Protocol, assembly::Assembly, count, finish, sent_input, set, text};
use crate::api::{
    chat::{CallResult, Message, ModelCall, Part, Request},
    failure::Failure,
};

/// The value that Gemini 3 accepts as the signature of a call without one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) static PROTOCOL: Protocol = Protocol {
    path: &["models", "{model}:streamGenerateContent"],
    query: Some("alt=sse"),
    key_header: "x-goog-api-key",
    headers: &[],
    caches_on_request: false,
    ends_with_body: true,
    body,
    read: |assembly, _, value| read(assembly, value),
};

fn body(request: &Request<'_>) -> Value {
    let contents: Vec<Value> = request.messages.iter().map(|message| content(message, request.model)).collect();
    let mut body = json!({"contents": contents, "generationConfig": {"maxOutputTokens": request.max_output_tokens}});
    if !request.system_prompt.is_empty() {
        set(&mut body, "systemInstruction", json!({"parts": [{"text": request.system_prompt}]}));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &Arc<ToolDefinition>| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema});
        set(&mut body, "tools", json!([{"functionDeclarations": request.tools.iter().map(tool).collect::<Vec<_>>()}]));
    }
    body
}

fn content(message: &Message, model: &str) -> Value {
    match message {
        Message::User(text) => json!({"role": "user", "parts": [{"text": text}]}),
        Message::Assistant(parts) => {
            let first = parts.iter().position(|part| matches!(part, Part::Call(_)));
            let part = |(at, part): (usize, &Part)| match part {
                Part::Text { text, signature } => Some(signed(json!({"text": text}), signature.as_deref())),
                Part::Call(call) => {
                    let needs_one = Some(at) == first && model.contains("gemini-3");
                    let signature = call.signature.as_deref().or(needs_one.then_some(NO_SIGNATURE));
                    Some(signed(json!({"functionCall": sent_call(call)}), signature))
                }
                Part::Reasoning { .. } | Part::Opaque(_) => None,
            };
            json!({"role": "model", "parts": parts.iter().enumerate().filter_map(part).collect::<Vec<_>>()})
        }
        Message::Results(results) => {
            json!({"role": "user", "parts": results.iter().map(response).collect::<Vec<_>>()})
        }
    }
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        set(&mut part, "thoughtSignature", signature);
    }
    part
}

fn sent_call(call: &ModelCall) -> Value {
    let mut sent = json!({"name": call.name, "args": sent_input(call)});
    // The provider refuses ids that are not its own.
    if !call.own_id {
        set(&mut sent, "id", call.id.as_str());
    }
    sent
}

fn response(result: &CallResult) -> Value {
    let mut response = json!({"name": result.name, "response": {"name": result.name, "content": result.text}});
    if !result.own_id {
        set(&mut response, "id", result.id.as_str());
    }
    json!({"functionResponse": response})
}

/// Takes a message of the stream, or a whole answer.
fn read(assembly: &mut Assembly, value: &Value) -> Result<(), Failure> {
    usage(assembly, value.get("usageMetadata"));
    if let Some(reason) = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        return Err(Failure::last(format!("the provider gave no answer to this prompt ({reason})")));
    }
    let Some(candidate) = value.get("candidates").and_then(|candidates| candidates.get(0)) else {
        if value.get("usageMetadata").is_none() {
            assembly
                .note(format!("the provider sent a message without candidates: {}", super::quoted(&value.to_string())));
        }
        return Ok(());
    };
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        let signature = part.get("thoughtSignature").and_then(Value::as_str).map(str::to_owned);
        if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
            add(assembly, call, signature)?;
        } else if let Some(piece) = part.get("text").and_then(Value::as_str) {
            match part.get("thought").and_then(Value::as_bool) {
                Some(true) => assembly.reasoning(piece, None)?,
                _ => assembly.text(piece, signature)?,
            }
        } else if signature.is_some() {
            assembly.text("", signature)?;
        } else {
            let kinds: Vec<&String> = part.as_object().into_iter().flat_map(|part| part.keys()).take(3).collect();
            assembly.note(format!("the provider sent an unknown part: {kinds:?}"));
        }
    }
    finish(assembly, candidate.get("finishReason"));
    Ok(())
}

/// Takes a call, which is always sent whole.
fn add(assembly: &mut Assembly, call: &Value, signature: Option<String>) -> Result<(), Failure> {
    if call.get("willContinue").and_then(Value::as_bool) == Some(true) {
        return Err(Failure::last("the provider sent the input of a call in pieces, which was not asked for"));
    }
    assembly.begin_call(None, text(call, "id"), text(call, "name"), signature)?;
    assembly.add_input(|_| true, call.get("args").unwrap_or(&Value::Null))?;
    assembly.close_call(|_| true);
    Ok(())
}

/// Counts tokens. Each message has the sum of all messages before it. Reasoning is counted beside the answer.
fn usage(assembly: &mut Assembly, usage: Option<&Value>) {
    let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
    let of = |field: &str| count(usage, field).unwrap_or_default();
    let tokens = Tokens {
        input: of("promptTokenCount").saturating_add(of("toolUsePromptTokenCount")),
        cached: of("cachedContentTokenCount"),
        cache_write: 0,
        output: of("candidatesTokenCount").saturating_add(of("thoughtsTokenCount")),
    };
    assembly.tokens = Some(tokens);
}
