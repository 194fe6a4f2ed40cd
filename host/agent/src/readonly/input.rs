//! Inputs of tools, with errors that name the field.

use guild_session::tools::ToolError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a tool's input.
pub(super) fn parse<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, ToolError> {
    named(input).map_err(|error| ToolError::InvalidInput(format!("{tool}: {error}")))
}

fn named<T: DeserializeOwned>(input: Value) -> Result<T, String> {
    let Value::Object(fields) = &input else { return Err("the input must be an object".to_owned()) };
    T::deserialize(&input).map_err(|error| {
        // serde names unknown and missing fields itself, but not the one whose type is wrong: it is the one
        // without which the error goes away, or becomes that the field is missing.
        let text = error.to_string();
        if text.contains("field `") {
            return text;
        }
        let culprit = fields.keys().find(|key| {
            let mut rest = fields.clone();
            rest.remove(*key);
            T::deserialize(Value::Object(rest)).err().is_none_or(|other| other.to_string() != text)
        });
        culprit.map_or(text.clone(), |key| format!("{key}: {text}"))
    })
}

/// A number that must not be 0, or its default.
pub(super) fn positive(field: &str, value: Option<u32>, default: u32) -> Result<u32, ToolError> {
    match value {
        Some(0) => Err(ToolError::InvalidInput(format!("{field} must be at least 1"))),
        value => Ok(value.unwrap_or(default)),
    }
}
