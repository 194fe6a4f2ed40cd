//! The tools of a member's component, as MCP tells of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Reply, WorkerHandle};

/// A tool that a member offers.
#[derive(Clone, Debug, Deserialize)]
pub struct Tool {
    /// By which it is called.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
}

/// What a call of a tool is answered with.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// What it answered.
    #[serde(default)]
    pub content: Vec<Content>,
    /// Whether the text says why it did not work.
    #[serde(default)]
    pub is_error: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Content {
    /// The text, where it is one.
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

    /// `tools/call`: calls a tool of the member's component. The host bounds how long that may take, as its operator says;
    /// there is no other end here. To stop waiting, drop it.
    ///
    /// # Errors
    /// See [`Error`]; an unknown tool is [`Error::Refused`]. What the tool itself refuses is a result.
    pub async fn call_tool(&self, name: &str, arguments: &Map<String, Value>) -> Result<Reply<CallResult>, Error> {
        self.call_within(Duration::MAX, "tools/call", &Call { name, arguments }).await
    }
}
