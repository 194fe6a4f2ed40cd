//! How a session hands over what it wrote.

use guild_plugin_sdk::{
    Session, ToolDefinition,
    agent::{ToolCall, Usage},
    outcome,
};
use serde_json::{Value, json};

/// The tool's name.
pub(crate) const TOOL: &str = "hand_over_summary";
/// What it takes: some two pages.
const CHARS: usize = 6000;

/// What every session is told of the tool.
pub(crate) const INSTRUCTION: &str =
    "When the text is as it should be, call `hand_over_summary` with it, and end. Nobody reads anything else.";

/// What a session handed over.
#[derive(Debug, PartialEq)]
pub(crate) struct HandOver {
    pub(crate) text: String,
    /// By [`TOOL`], else as its last text.
    pub(crate) by_tool: bool,
}

/// The tool, as sessions see it.
pub(crate) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "summary": {"type": "string", "description": "The whole text, as Markdown", "minLength": 1, "maxLength": CHARS}
        },
        "required": ["summary"],
        "additionalProperties": false
    });
    ToolDefinition {
        name: TOOL.to_owned(),
        title: Some("Hand the summary over".to_owned()),
        description: format!(
            "Hands your summary over, as Markdown of at most {CHARS} characters. Calling it again replaces what was \
             handed over."
        ),
        input_schema: schema.to_string(),
        output_schema: None,
        read_only: false,
    }
}

/// What a session uses that never began.
pub(crate) const NOTHING: Usage =
    Usage { turns: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: Some(0.0) };

/// Follows a session to its end: what it handed over or why there is nothing, and what it used. Who handed over
/// something has done its work, however the session ends then.
pub(crate) async fn follow(session: &Session) -> (Result<HandOver, String>, Usage) {
    let mut handed_over = None;
    let end = session
        .finish(async |call| {
            handed_over = Some(taken(call)?);
            Ok("Taken. You are done: end here.".into())
        })
        .await;
    let used = end.usage;
    let handed_over = match handed_over {
        Some(text) => Ok(HandOver { text, by_tool: true }),
        None => outcome(end).map(|text| HandOver { text, by_tool: false }),
    };
    (handed_over, used)
}

/// What a call hands over. The error is for the model.
fn taken(call: &ToolCall) -> Result<String, String> {
    if call.name != TOOL {
        return Err(format!("there is no tool {:?} here; call {TOOL}", call.name));
    }
    let input: Value = serde_json::from_str(&call.input).unwrap_or_default();
    let summary = input.get("summary").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    match summary.chars().count() {
        0 => Err("`summary` has to be a text that is not empty".to_owned()),
        chars if chars > CHARS => Err(format!("`summary` has {chars} characters, and {CHARS} are taken: shorten it")),
        _ => Ok(summary.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, input: Value) -> Result<String, String> {
        taken(&ToolCall { id: "1".into(), name: name.into(), input: input.to_string() })
    }

    #[test]
    fn a_summary_is_taken_as_it_is() {
        assert_eq!(call(TOOL, json!({"summary": " Owls. "})).unwrap(), "Owls.");
    }

    #[test]
    fn what_is_not_a_summary_is_refused_in_words_for_the_model() {
        assert!(call(TOOL, json!({"summary": " "})).unwrap_err().contains("not empty"));
        assert!(call(TOOL, json!({"text": "Owls."})).unwrap_err().contains("`summary`"));
        assert!(call(TOOL, json!({"summary": "é".repeat(6001)})).unwrap_err().contains("6001 characters"));
        assert!(call("Write", json!({"summary": "Owls."})).unwrap_err().contains(TOOL));
    }

    #[test]
    fn the_schema_is_an_object() {
        let schema: Value = serde_json::from_str(&tool().input_schema).unwrap();
        assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["summary"])));
    }
}
