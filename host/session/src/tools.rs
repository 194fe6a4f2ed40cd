//! Tools: what an agent session can call, and how a call fails.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{objects, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// One tool that an agent session can call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name that the session calls it by.
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// What it does and when to use it, for the session.
    pub description: String,
    /// JSON Schema of its input: an object.
    pub input_schema: Value,
    /// JSON Schema of its output, where it is structured.
    pub output_schema: Option<Value>,
    /// Whether it only reads, so that calls may run in parallel.
    pub read_only: bool,
}

impl ToolDefinition {
    /// A tool of the host's own, whose input is a `T`: the type is the schema, and its doc comment the description.
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

/// Parses a tool's input.
///
/// # Errors
/// `InvalidInput` that names the tool, and the field that is wrong.
pub fn parse<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, ToolError> {
    objects::read(objects::OBJECT, input).map_err(|misread| {
        let text = misread.error.to_string();
        // serde names unknown and missing fields itself, but not the one whose type is wrong.
        let named = misread.path.is_empty() || text.contains("field `");
        let field = if named { String::new() } else { format!("{}: ", misread.path) };
        ToolError::InvalidInput(format!("{tool}: {field}{text}"))
    })
}

/// Why a tool, or a host function of a component, did not do what it was asked: `host-error` in WIT.
///
/// It is an answer to the caller, not the end of the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ToolError {
    /// The input was not acceptable; the text says what would be.
    #[error("{0}")]
    InvalidInput(String),
    /// The manifest did not ask for it, or the operator did not grant it; the text names the grant.
    #[error("not granted: {0}")]
    NotGranted(String),
    /// A size or count limit; the text names it.
    #[error("over a limit: {0}")]
    OverLimit(String),
    /// There is no job here: during `activate`, or in a tool call outside of a job.
    #[error("there is no job here")]
    NoJob,
    /// The job is no longer running.
    #[error("the job is no longer running")]
    JobEnded,
    /// The host could not do it; the text says why.
    #[error("{0}")]
    Unavailable(String),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Names the call within its job, also after a restart: an effect is stored with it, and a call that comes again
    /// has its effect once.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// A set of tools.
#[async_trait]
pub trait Tools: Send + Sync {
    /// The tools, in the order in which they are offered. It does not change while a session runs. Definitions are
    /// shared: thousands of sessions have the same ones.
    fn definitions(&self) -> Vec<Arc<ToolDefinition>>;

    /// Calls a tool. A text result is a JSON string. A name that is not in `definitions` is `InvalidInput`.
    async fn call(&self, call: ToolCall) -> Result<Value, ToolError>;
}
