//! Defines a scenario: the request, the resources and the model of one test.

use guild_contract::{Bounds, JobId};
use guild_scripted::SessionScript;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use std::collections::BTreeMap;

/// The request, the resources and the model of one test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// The request to the component, and its resources.
    pub given: Given,
    /// The scripts of the model, one for each session.
    pub sessions: Vec<SessionScript>,
}

/// The request to a component, which is a dispatch (`task`) or a tool call (`call`), and its resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Given {
    /// The task of the dispatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The label of the dispatch; by default `test`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The configuration of the dispatch; by default `{}`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// The call of a tool, in place of a dispatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCall>,
    /// The time at which each call of the component begins; by default 2026-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The seed of random numbers and of ids; by default 0.
    pub seed: u64,
    /// The id of the job; by default one of the time and the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The posture, in place of the member's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
    /// Bounds of the job, which narrow those of the manifest and of the default limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// Capabilities that the operator denies, by the names of `deny` in guild.toml. All other requested capabilities are
    /// granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The tools of toolboxes that its sessions have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub toolbox: Vec<ToolboxTool>,
    /// The member's memories, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<Note>,
    /// Searches of the web, with their hits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub searches: Vec<Search>,
    /// Pages of the web: their Markdown, by their addresses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<String, String>,
    /// Files under the read roots: their texts, by `ROOT/PATH`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// A call of a tool of the component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolCall {
    /// The tool.
    pub tool: String,
    /// Its input; by default `{}`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
}

/// A tool of a toolbox, with its only answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolboxTool {
    /// The name by which sessions call it: the member's, `_`, and the tool's.
    pub name: String,
    /// The description for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The schema of its input; by default that of any object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input_schema: Map<String, Value>,
    /// Its answer to each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Its error in each call, in place of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A memory of the member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Note {
    /// The key.
    pub key: String,
    /// The whole text.
    pub text: String,
    /// The time of writing; by default a second before that of the note above. The default of the first note is a second
    /// before the call of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
}

/// A search of the web.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Search {
    /// The query.
    pub query: String,
    /// The hits, best first.
    #[serde(default)]
    pub hits: Vec<Hit>,
}

/// A hit of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hit {
    /// The page's title.
    pub title: String,
    /// Its address.
    pub url: String,
    /// Some of its text.
    #[serde(default)]
    pub snippet: String,
}
