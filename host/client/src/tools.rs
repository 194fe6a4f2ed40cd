//! Lists and calls the tools of a member's component, over MCP.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Reply, WorkerHandle};

/// A tool that a member offers.
#[derive(Clone, Debug, Deserialize)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// The description.
    #[serde(default)]
    pub description: String,
}

/// The result of a call of a tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The parts of the answer.
    #[serde(default)]
    pub content: Vec<Content>,
    /// Whether the call failed, and the text says why.
    #[serde(default)]
    pub is_error: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Content {
    /// The text; `None` for other content.
    #[serde(default)]
    pub text: Option<String>,
}

#[derive(Deserialize)]
struct Tools {
    tools: Vec<Tool>,
}

#[derive(Serialize)]
struct Call<'a> {
    name: &'a str,
    arguments: &'a Map<String, Value>,
}

impl WorkerHandle {
    /// `tools/list`: the tools of the member's component, in its order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        let Reply { value: Tools { tools }, .. } = self.call("tools/list", &Map::new()).await?;
        Ok(tools)
    }

    /// `tools/call`: calls a tool of the member's component. Only the host sets a time limit, according to its
    /// operator. Dropping the future stops waiting.
    ///
    /// # Errors
    /// See [`Error`]; an unknown tool is [`Error::Refused`]. An error of the tool itself is a result.
    pub async fn call_tool(&self, name: &str, arguments: &Map<String, Value>) -> Result<Reply<CallResult>, Error> {
        self.call_within(Duration::MAX, "tools/call", &Call { name, arguments }).await
    }
}
