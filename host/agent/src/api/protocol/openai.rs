//! Speaks OpenAI's chat completions, which llama.cpp, vLLM, TGI, LiteLLM, Ollama and many gateways speak too.

use guild_config::Tokens;
use serde_json::{Value, json};

use super::{
    Protocol,
    assembly::{Assembly, CallDraft},
    chat_messages, count, finish, label, sent_input, set, set_functions, text,
};
use crate::api::{
    chat::{Message, Part, Request, text_of},
    failure::Failure,
};

/// Prefixes of the names of OpenAI's models that accept the limit of tokens only as `max_completion_tokens`. Other
/// servers know only `max_tokens`.
const REASONING_MODELS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

pub(super) static PROTOCOL: Protocol = Protocol {
    path: &["chat", "completions"],
    query: None,
    key_header: "authorization",
    headers: &[],
    caches_on_request: false,
    ends_with_body: false,
    body,
    read: |assembly, _, value| read(assembly, value),
};

fn body(request: &Request<'_>) -> Value {
    let mut body = json!({
        "model": request.model, "stream": true, "stream_options": {"include_usage": true}, "messages": chat_messages(request, push),
    });
    let is_reasoning = REASONING_MODELS.iter().any(|start| request.model.starts_with(start));
    let limit = if is_reasoning { "max_completion_tokens" } else { "max_tokens" };
    set(&mut body, limit, request.max_output_tokens);
    set_functions(&mut body, request);
    body
}

fn push(messages: &mut Vec<Value>, message: &Message) {
    match message {
        Message::User(text) => messages.push(json!({"role": "user", "content": text})),
        Message::Assistant(parts) => {
            let mut message = json!({"role": "assistant", "content": text_of(parts)});
            let mut reasoning = String::new();
            let (mut details, mut calls) = (Vec::new(), Vec::new());
            for part in parts {
                match part {
                    Part::Text { .. } => {}
                    Part::Reasoning { text, .. } => reasoning.push_str(text),
                    Part::Opaque(detail) => details.push(detail.clone()),
                    Part::Call(call) => calls.push(json!({
                        "id": call.id, "type": "function",
                        "function": {"name": call.name, "arguments": sent_input(call).to_string()},
                    })),
                }
            }
            // Kimi and DeepSeek want the reasoning before a call back, OpenRouter its details.
            if !reasoning.is_empty() {
                set(&mut message, "reasoning_content", reasoning);
            }
            if !details.is_empty() {
                set(&mut message, "reasoning_details", details);
            }
            if !calls.is_empty() {
                set(&mut message, "tool_calls", calls);
            }
            messages.push(message);
        }
        Message::Results(results) => messages.extend(
            results.iter().map(|result| json!({"role": "tool", "tool_call_id": result.id, "content": result.text})),
        ),
    }
}

/// Takes a chunk of the stream, or a whole answer.
fn read(assembly: &mut Assembly, value: &Value) -> Result<(), Failure> {
    // Groq sends its count in a field of its own.
    usage(assembly, value.get("usage").filter(|usage| !usage.is_null()).or(value.pointer("/x_groq/usage")));
    let Some(choices) = value.get("choices").and_then(Value::as_array) else {
        // Proxies add messages of their own, such as the costs.
        if value.get("usage").is_none() && !value.get("choices").is_some_and(Value::is_null) {
            assembly
                .note(format!("the provider sent a message without choices: {}", super::quoted(&value.to_string())));
        }
        return Ok(());
    };
    // The request asks for one answer.
    let Some(choice) = choices.iter().find(|choice| matches!(label(choice, "index").as_deref(), None | Some("0")))
    else {
        return Ok(());
    };
    let pieces = ["delta", "message"].iter().find_map(|field| choice.get(field).filter(|piece| piece.is_object()));
    if let Some(pieces) = pieces {
        delta(assembly, pieces)?;
    }
    finish(assembly, choice.get("finish_reason"));
    Ok(())
}

fn delta(assembly: &mut Assembly, delta: &Value) -> Result<(), Failure> {
    let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|field| delta.get(field)?.as_str());
    assembly.reasoning(reasoning.unwrap_or_default(), None)?;
    for detail in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
        assembly.opaque(detail)?;
    }
    match delta.get("content") {
        Some(Value::String(piece)) => assembly.text(piece, None)?,
        Some(Value::Array(pieces)) => pieces.iter().try_for_each(|piece| typed(assembly, piece))?,
        Some(Value::Null) | None => {}
        Some(other) => {
            assembly.note(format!("the provider sent content of another type: {}", super::quoted(&other.to_string())))
        }
    }
    let refusal = text(delta, "refusal");
    assembly.text(refusal, None)?;
    assembly.refusal.push_str(refusal);
    for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let function = call.get("function").unwrap_or(call);
        add(assembly, label(call, "index"), text(call, "id"), function)?;
    }
    // The form of a call from before the protocol had tools.
    match delta.get("function_call").filter(|call| call.is_object()) {
        Some(call) => add(assembly, Some("function_call".to_owned()), "", call),
        None => Ok(()),
    }
}

/// Takes a piece of Mistral's content.
fn typed(assembly: &mut Assembly, piece: &Value) -> Result<(), Failure> {
    match (text(piece, "type"), piece.get("thinking")) {
        ("text", _) => assembly.text(text(piece, "text"), None),
        ("thinking", Some(Value::String(thinking))) => assembly.reasoning(thinking, None),
        ("thinking", Some(Value::Array(pieces))) => {
            pieces.iter().try_for_each(|piece| assembly.reasoning(text(piece, "text"), None))
        }
        (other, _) => {
            assembly.note(format!("the provider sent unknown content: {other:?}"));
            Ok(())
        }
    }
}

/// Takes a piece of a call. It belongs to the call with its index or its id. Servers that send whole calls may give
/// several calls the same index, or none: another id, or another name after a whole input, begins another call.
fn add(assembly: &mut Assembly, index: Option<String>, id: &str, function: &Value) -> Result<(), Failure> {
    let (name, input) = (text(function, "name"), function.get("arguments").unwrap_or(&Value::Null));
    let is = |call: &CallDraft| match (&index, id) {
        (Some(_), _) => call.label == index,
        // Without an index: the call with the id; else the last one.
        (None, "") => true,
        (None, id) => call.id == id,
    };
    let is_other = |call: &CallDraft| match (id.is_empty() || call.id.is_empty(), name.is_empty()) {
        (false, _) => call.id != id,
        (true, true) => false,
        (true, false) if call.has_input() => call.is_complete() && !matches!(input, Value::Null) && input != "",
        (true, false) => index.is_none() && id.is_empty(),
    };
    match assembly.find_call(is) {
        Some(call) if !is_other(call) => {
            if call.id.is_empty() {
                call.id = id.to_owned();
            }
            match (call.name == name, call.has_input()) {
                // Some servers repeat the name with each piece.
                _ if name.is_empty() => {}
                (true, _) => {}
                (false, false) => call.name.push_str(name),
                (false, true) => {
                    return Err(Failure::passing(format!(
                        "the provider names one call both {:?} and {:?}",
                        super::word(&call.name),
                        super::word(name)
                    )));
                }
            }
        }
        None if name.is_empty() && id.is_empty() => {
            return Err(Failure::passing("the provider sent input for a call that it did not begin"));
        }
        _ => assembly.begin_call(index.clone(), id, name, None)?,
    }
    assembly.add_input(is, input)
}

/// Counts tokens; cached tokens count as input too. A later count replaces an earlier one, since each covers the whole
/// answer.
fn usage(assembly: &mut Assembly, usage: Option<&Value>) {
    let Some(usage) = usage else { return };
    let within = |object: &str, field: &str| count(usage.get(object)?, field);
    let (input, output) = (count(usage, "prompt_tokens"), count(usage, "completion_tokens"));
    let output = output.or_else(|| within("completion_tokens_details", "reasoning_tokens"));
    if input.is_none() && output.is_none() {
        return;
    }
    let cached = within("prompt_tokens_details", "cached_tokens").or_else(|| count(usage, "prompt_cache_hit_tokens"));
    let cache_write = within("prompt_tokens_details", "cache_creation_tokens");
    assembly.tokens = Some(Tokens {
        input: input.unwrap_or_default(),
        cached: cached.unwrap_or_default(),
        cache_write: cache_write.unwrap_or_default(),
        output: output.unwrap_or_default(),
    });
}
