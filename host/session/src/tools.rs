//! Defines the tools of agent sessions: their definitions, calls and errors.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{
    OperationError,
    json::misread::{self, Misread, OBJECT},
    json::schema,
    operation::{Operation, Row},
    text::one_line,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// One tool that an agent session can call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The name in calls.
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// A description of the tool and its use, for the session.
    pub description: String,
    /// JSON Schema of its input: an object.
    pub input_schema: Value,
    /// JSON Schema of its output, if that is structured.
    pub output_schema: Option<Value>,
    /// Whether it only reads, so that calls may run in parallel.
    pub read_only: bool,
}

impl ToolDefinition {
    /// A tool of the host with the input `T`: the schema comes from the type, and the description from its doc comment.
    pub fn of<T: JsonSchema>(name: &str, title: Option<&str>, read_only: bool) -> Self {
        let mut input_schema = schema::input::<T>();
        let description = input_schema.as_object_mut().and_then(|schema| schema.remove("description"));
        Self {
            name: name.to_owned(),
            title: title.map(str::to_owned),
            description: description.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
            input_schema,
            output_schema: None,
            read_only,
        }
    }
}

impl ToolDefinition {
    /// The tool of an operation, with the text of its row as description.
    pub fn of_operation<O: Operation>() -> Self {
        Self::of_row::<O::Input>(&O::ROW, O::ROW.text)
    }

    /// The tool of a row, with an input and a description of its own.
    pub fn of_row<T: JsonSchema>(row: &Row, description: &str) -> Self {
        let (name, title) = row.tool.map_or((row.name, None), |tool| (tool.name, Some(tool.title.to_owned())));
        let mut input_schema = schema::input::<T>();
        if let Some(schema) = input_schema.as_object_mut() {
            schema.remove("description");
            // An input without fields accepts none.
            schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        }
        close(&mut input_schema);
        Self {
            name: name.to_owned(),
            title,
            description: description.to_owned(),
            input_schema,
            output_schema: None,
            read_only: !row.access.changes(),
        }
    }

    /// Refuses unknown fields at any depth, and values that are none of a field's choices.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput`, which names the field and the known fields.
    pub fn check(&self, input: &Map<String, Value>) -> Result<(), ToolError> {
        check_fields(&self.input_schema, input).map_err(|why| ToolError::InvalidInput(format!("{}: {why}", self.name)))
    }
}

/// Checks the fields of an object against the properties of its schema.
fn check_fields(schema: &Value, input: &Map<String, Value>) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let listed = |all: &mut dyn Iterator<Item = &str>| all.map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
    for (name, value) in input {
        let Some(field) = properties.get(name) else {
            let known = match properties.is_empty() {
                true => "there are no fields".to_owned(),
                false => format!("expected one of {}", listed(&mut properties.keys().map(String::as_str))),
            };
            return Err(format!("unknown field `{}`, {known}", one_line(name, NAME_CHARS)));
        };
        let choices = field.get("enum").and_then(Value::as_array);
        if let (Some(choices), Value::String(text)) = (choices, value)
            && !choices.contains(value)
        {
            let known = listed(&mut choices.iter().filter_map(Value::as_str));
            return Err(format!("{name}: unknown variant `{}`, expected one of {known}", one_line(text, NAME_CHARS)));
        }
        match value {
            Value::Object(inner) => check_fields(field, inner).map_err(|why| format!("{name}: {why}"))?,
            // serde would read the fields from the list, in their order.
            Value::Array(_) if field.get("type").is_some_and(|kind| kind == "object") => {
                return Err(format!("`{name}` is a list; it must be {OBJECT}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Forbids additional fields in the objects of a schema.
fn close(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(close);
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// Characters of a caller's text in an error.
const NAME_CHARS: usize = 100;

/// Parses a tool's input.
///
/// # Errors
///
/// Returns `InvalidInput`, which names the tool and the invalid field.
pub fn parse<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, ToolError> {
    read(input).map_err(|why| ToolError::InvalidInput(format!("{tool}: {why}")))
}

/// Reads an input.
///
/// # Errors
///
/// Returns a text that names the invalid field.
pub fn read<T: DeserializeOwned>(input: Value) -> Result<T, String> {
    if !input.is_object() {
        return Err(format!("the input must be {OBJECT}"));
    }
    misread::read(OBJECT, input).map_err(|Misread { text, path, error }| {
        let said = error.to_string();
        // serde names unknown and missing fields itself.
        let named = path.is_empty() || said.contains("field `");
        text.unwrap_or_else(|| if named { said } else { format!("{path}: {said}") })
    })
}

/// The error of a tool or of a host function for a component: `host-error` in WIT.
///
/// The error is an answer to the caller, and does not end the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ToolError {
    /// The input is not acceptable; the text tells what would be.
    #[error("{0}")]
    InvalidInput(String),
    /// The manifest did not ask for it, or the operator did not grant it; the text names the grant.
    #[error("not granted: {0}")]
    NotGranted(String),
    /// A limit of size or number is reached; the text names it.
    #[error("over a limit: {0}")]
    OverLimit(String),
    /// There is no job here: during `activate`, or in a tool call outside of a job.
    #[error("there is no job here")]
    NoJob,
    /// The job is no longer running.
    #[error("the job is no longer running")]
    JobEnded,
    /// The host could not carry it out; the text tells why.
    #[error("{0}")]
    Unavailable(String),
}

impl From<OperationError> for ToolError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Internal(why) => Self::Unavailable(why),
            OperationError::Spent(why) => Self::OverLimit(why),
            OperationError::Invalid(why)
            | OperationError::Unsupported(why)
            | OperationError::NotFound(why)
            | OperationError::Conflict(why) => Self::InvalidInput(why),
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The call's id in its job, also after a restart. The host's own tools store an effect with it, so that a repeated
    /// call has its effect once; see [`Tools::repeats_safely`].
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// A set of tools.
#[async_trait]
pub trait Tools: Send + Sync {
    /// The tools, in the order in which they are offered. The list does not change while a session runs. Definitions
    /// are shared: thousands of sessions have the same ones.
    fn definitions(&self) -> Vec<Arc<ToolDefinition>>;

    /// Calls a tool. A text result is a JSON string. A name that is not in `definitions` is `InvalidInput`.
    async fn call(&self, call: ToolCall) -> Result<Value, ToolError>;

    /// Whether a repeated call of this tool, under the same id, has its effect once. A call whose result is unknown
    /// after a crash of the host is then made again. The model is told that any other call which changes something was
    /// interrupted.
    fn repeats_safely(&self, _tool: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code)]
    struct Input {
        name: String,
        bounds: Option<Bounds>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code)]
    struct Bounds {
        turns: Option<u32>,
    }

    #[test]
    fn an_input_of_the_wrong_type_is_refused_by_its_field() {
        for (input, expected) in [
            (json!(["a", null]), "t: the input must be an object"),
            (json!(null), "t: the input must be an object"),
            (json!({"name": 1}), "t: `name` is the number `1`; it must be a text in quotation marks"),
            (json!({"name": "a", "bounds": 5}), "t: `bounds` is the number `5`; it must be an object"),
            (json!({"name": "a", "bounds": {"turns": -1}}), "t: `bounds.turns` is the number `-1`; it must be a whole"),
            (json!({}), "t: missing field `name`"),
        ] {
            let error = parse::<Input>("t", input.clone()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{input}: {error}");
        }
        let input = json!({"name": "a", "bounds": [5]});
        let error = ToolDefinition::of::<Input>("t", None, true).check(input.as_object().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "t: `bounds` is a list; it must be an object");
    }
}
