//! Tools: what an agent session can call, and how a call fails.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
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

/// Why a tool, or a host function of a component, did not do what it was asked: `host-error` in WIT.
///
/// It is an answer to the one who asked, not the end of the job.
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
