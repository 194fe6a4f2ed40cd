//! Speaks Ollama's own chat API.

use guild_config::Tokens;
use serde_json::{Value, json};

use super::{Protocol, assembly::Assembly, chat_messages, count, finish, sent_input, set, set_functions, text};
use crate::api::{
    chat::{Message, Part, Request, text_of},
    failure::Failure,
};

pub(super) static PROTOCOL: Protocol = Protocol {
    path: &["api", "chat"],
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
        "model": request.model, "stream": true, "messages": chat_messages(request, push),
        "options": {"num_predict": request.max_output_tokens},
    });
    set_functions(&mut body, request);
    body
}

fn push(messages: &mut Vec<Value>, message: &Message) {
    match message {
        Message::User(text) => messages.push(json!({"role": "user", "content": text})),
        Message::Assistant(parts) => {
            let mut message = json!({"role": "assistant", "content": text_of(parts)});
            let call = |part: &Part| match part {
                Part::Call(call) => Some(json!({"function": {"name": call.name, "arguments": sent_input(call)}})),
                _ => None,
            };
            let calls: Vec<Value> = parts.iter().filter_map(call).collect();
            if !calls.is_empty() {
                set(&mut message, "tool_calls", calls);
            }
            messages.push(message);
        }
        // A message holds one result each.
        Message::Results(results) => messages.extend(
            results.iter().map(|result| json!({"role": "tool", "tool_name": result.name, "content": result.text})),
        ),
    }
}

/// Takes a line of the stream, or a whole answer.
fn read(assembly: &mut Assembly, value: &Value) -> Result<(), Failure> {
    let message = value.get("message").unwrap_or(&Value::Null);
    let reasoning = ["thinking", "reasoning_content"].iter().find_map(|field| message.get(field)?.as_str());
    assembly.reasoning(reasoning.unwrap_or_default(), None)?;
    assembly.text(text(message, "content"), None)?;
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let function = call.get("function").unwrap_or(call);
        assembly.begin_call(None, text(call, "id"), text(function, "name"), None)?;
        assembly.add_input(|_| true, function.get("arguments").unwrap_or(&Value::Null))?;
        assembly.close_call(|_| true);
    }
    if value.get("done").and_then(Value::as_bool) == Some(true) {
        finish(assembly, value.get("done_reason"));
        let of = |field: &str| count(value, field).unwrap_or_default();
        assembly.tokens = Some(Tokens {
            input: of("prompt_eval_count"),
            cached: of("prompt_eval_cached_count"),
            cache_write: 0,
            output: of("eval_count"),
        });
        assembly.ended = true;
    }
    Ok(())
}
