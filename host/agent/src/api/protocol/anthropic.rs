//! Speaks Anthropic's Messages API, which gateways to Bedrock and Vertex speak too.

use std::sync::Arc;

use guild_config::Tokens;
use guild_session::tools::ToolDefinition;
use serde_json::{Value, json};

use super::{
    Protocol,
    assembly::{Assembly, CallDraft},
    count, finish, label, sent_input, set, text,
};
use crate::api::{
    chat::{Message, Part, Request},
    failure::Failure,
};

pub(super) static PROTOCOL: Protocol = Protocol {
    path: &["v1", "messages"],
    query: None,
    key_header: "x-api-key",
    headers: &[("anthropic-version", "2023-06-01")],
    caches_on_request: true,
    ends_with_body: false,
    body,
    read,
};

fn body(request: &Request<'_>) -> Value {
    let mark = json!({"type": "ephemeral"});
    let mut messages: Vec<Value> = request.messages.iter().map(message).collect();
    if request.cache
        && let Some(content) = messages.last_mut().and_then(|last| last.get_mut("content"))
    {
        let blocks = content.as_str().map(|text| json!([{"type": "text", "text": text}]));
        *content = blocks.unwrap_or_else(|| content.take());
        if let Some(block) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
            set(block, "cache_control", mark.clone());
        }
    }
    let mut body = json!({
        "model": request.model, "max_tokens": request.max_output_tokens, "stream": true, "messages": messages,
    });
    if !request.system_prompt.is_empty() {
        let system = match request.cache {
            true => json!([{"type": "text", "text": request.system_prompt, "cache_control": mark}]),
            false => request.system_prompt.into(),
        };
        set(&mut body, "system", system);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &Arc<ToolDefinition>| json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema});
        set(&mut body, "tools", request.tools.iter().map(tool).collect::<Vec<_>>());
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Assistant(parts) => match parts.as_slice() {
            [Part::Text { text, .. }] => json!({"role": "assistant", "content": text}),
            parts => json!({"role": "assistant", "content": parts.iter().filter_map(block).collect::<Vec<_>>()}),
        },
        Message::Results(results) => {
            let blocks = results.iter().map(|result| {
                let mut block = json!({"type": "tool_result", "tool_use_id": result.id, "content": result.text});
                if result.failed {
                    set(&mut block, "is_error", true);
                }
                block
            });
            json!({"role": "user", "content": blocks.collect::<Vec<_>>()})
        }
    }
}

fn block(part: &Part) -> Option<Value> {
    Some(match part {
        // Empty text is refused.
        Part::Text { text, .. } if text.is_empty() => return None,
        Part::Text { text, .. } => json!({"type": "text", "text": text}),
        // Reasoning is refused without its signature.
        Part::Reasoning { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature.as_ref()?})
        }
        Part::Opaque(block) => block.clone(),
        Part::Call(call) => json!({"type": "tool_use", "id": call.id, "name": call.name, "input": sent_input(call)}),
    })
}

/// Takes a message of the stream, or a whole answer.
fn read(assembly: &mut Assembly, event: &str, value: &Value) -> Result<(), Failure> {
    let kind = match text(value, "type") {
        "" => event,
        kind => kind,
    };
    let index = label(value, "index");
    match kind {
        "message_start" => usage(assembly, value.pointer("/message/usage")),
        "content_block_start" => begin(assembly, index, value.get("content_block").unwrap_or(&Value::Null))?,
        "content_block_delta" => delta(assembly, index, value.get("delta").unwrap_or(&Value::Null))?,
        "content_block_stop" => assembly.close_call(of_index(index.as_deref())),
        "message_delta" => {
            usage(assembly, value.get("usage"));
            finish(assembly, value.pointer("/delta/stop_reason"));
        }
        "message_stop" => assembly.ended = true,
        // An answer in one piece, from a server that does not stream.
        "message" => {
            for (at, block) in value.get("content").and_then(Value::as_array).into_iter().flatten().enumerate() {
                let index = Some(at.to_string());
                begin(assembly, index.clone(), block)?;
                assembly.close_call(of_index(index.as_deref()));
            }
            usage(assembly, value.get("usage"));
            finish(assembly, value.get("stop_reason"));
            assembly.ended = true;
        }
        "ping" => {}
        // The protocol may gain events, which clients have to ignore.
        other => assembly.note(format!("the provider sent an unknown event: {other:?}")),
    }
    Ok(())
}

/// Matches the block with this label, or without a label the block that began last.
fn of_index(index: Option<&str>) -> impl Fn(&CallDraft) -> bool {
    move |call: &CallDraft| index.is_none() || call.label.as_deref() == index
}

fn begin(assembly: &mut Assembly, index: Option<String>, block: &Value) -> Result<(), Failure> {
    match text(block, "type") {
        "text" => assembly.text(text(block, "text"), None),
        "thinking" => {
            assembly.reasoning(text(block, "thinking"), index.as_deref())?;
            match text(block, "signature") {
                "" => Ok(()),
                signature => assembly.sign_reasoning(signature, index.as_deref()),
            }
        }
        "redacted_thinking" => assembly.opaque(block),
        "tool_use" => {
            assembly.begin_call(index.clone(), text(block, "id"), text(block, "name"), None)?;
            // Some gateways send the input here, whole. The empty object is where the pieces begin.
            match block.get("input") {
                Some(Value::Object(input)) if input.is_empty() => Ok(()),
                Some(input) => assembly.add_input(of_index(index.as_deref()), input),
                None => Ok(()),
            }
        }
        other => {
            assembly.note(format!("the provider sent an unknown block: {other:?}"));
            Ok(())
        }
    }
}

fn delta(assembly: &mut Assembly, index: Option<String>, delta: &Value) -> Result<(), Failure> {
    match text(delta, "type") {
        "text_delta" => assembly.text(text(delta, "text"), None),
        "thinking_delta" => assembly.reasoning(text(delta, "thinking"), index.as_deref()),
        "signature_delta" => assembly.sign_reasoning(text(delta, "signature"), index.as_deref()),
        "input_json_delta" => {
            let is = of_index(index.as_deref());
            if assembly.find_call(&is).is_none() {
                return Err(Failure::passing("the provider sent input for a call that it did not begin"));
            }
            assembly.add_input(is, delta.get("partial_json").unwrap_or(&Value::Null))
        }
        "citations_delta" => Ok(()),
        other => {
            assembly.note(format!("the provider sent an unknown piece: {other:?}"));
            Ok(())
        }
    }
}

/// Counts tokens. Tokens that are read from the cache or written to it are counted beside `input_tokens`, not in it.
/// The end of the answer has all counts again, or only the changed ones.
fn usage(assembly: &mut Assembly, usage: Option<&Value>) {
    let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
    let before = assembly.tokens.unwrap_or_default();
    let of = |field: &str, before: u64| count(usage, field).unwrap_or(0).max(before);
    let cached = of("cache_read_input_tokens", before.cached);
    let cache_write = of("cache_creation_input_tokens", before.cache_write);
    let plain = of("input_tokens", before.input.saturating_sub(before.cached).saturating_sub(before.cache_write));
    let input = plain.saturating_add(cached).saturating_add(cache_write);
    let output = count(usage, "output_tokens").unwrap_or(before.output);
    assembly.tokens = Some(Tokens { input, cached, cache_write, output });
}
