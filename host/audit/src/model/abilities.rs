//! The data of an audit on imports, exports, requests, sessions and limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that a component needs from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Import {
    /// The import as the component spells it.
    pub name: String,
    /// The outcome for the import.
    pub state: ImportState,
    /// The purpose of the interface, in a sentence. None for an interface that this host does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// The reach of the interface on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// The grant that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// The reason that the interface is not to be had, with the change that would permit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The runtimes of languages that import it whether or not the program uses it; those that the producers name, where they
    /// name one.
    pub runtimes: Vec<String>,
    /// The functions, sorted by name; at most 500 of an import and 20,000 of a component. Empty where the types are not
    /// valid.
    pub functions: Vec<Function>,
}

/// One function of an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// The name, as the component's binary spells it: `read`, `[method]session.next`.
    pub name: String,
    /// The purpose of the function, in a sentence. None for one that this host does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// The outcome for an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImportState {
    /// Asked for and granted.
    Granted,
    /// Asked for and not granted: linked so that every call answers `not-granted`.
    Denied,
    /// Not asked for: a host refuses the component.
    NotAsked,
    /// It needs a grant; there is no manifest that could ask.
    NeedsGrant,
    /// Linked for every component.
    Linked,
    /// Linked so that every call traps.
    LinkedDenied,
    /// This host does not have it, and refuses the component.
    Unknown,
    /// This host has another version, and refuses the component.
    WrongVersion,
}

/// Something that a component offers, or should.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    /// The export as the component spells it; as the world does, where it is missing.
    pub name: String,
    /// Whether the manifest's world has it.
    pub state: ExportState,
    /// The use that the host makes of the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// An export against the manifest's world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExportState {
    /// The world has it; or there is no manifest, and the host knows it.
    Known,
    /// The world does not have it, and no host calls it.
    Extra,
    /// The world has it, and the component does not.
    Missing,
}

/// Something that a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedCapability {
    /// The capability, as `guild.toml` spells it: `files`, `files:docs`, `memory:write`.
    pub grant: String,
    /// The manifest's key that asks.
    pub key: String,
    /// The outcome for the request.
    pub state: RequestState,
    /// The reason that the request is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The users of the capability: `component`, `sessions`, both or, for a request that is unused, none.
    pub used_by: Vec<String>,
}

/// The outcome for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// Granted.
    Granted,
    /// Granted in part: the operator's policy names less.
    Narrowed,
    /// Not granted.
    Denied,
}

/// The abilities of a member's sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// The read-only tools that the manifest asks for, and whether they may be given.
    pub tools: Vec<SessionTool>,
    /// The members whose tools they may be given, by their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolboxes: Vec<String>,
    /// Whether the sessions are shown the member's memories.
    pub memory: bool,
    /// Whether the sessions may store memories.
    pub memory_write: bool,
    /// Whether the sessions may write files among the job's artifacts.
    pub artifacts: bool,
    /// Whether the component may give the sessions tools of its own.
    pub own_tools: bool,
    /// Turns of all sessions of a job: the smaller of the manifest's and the operator's.
    pub max_turns: u32,
    /// US dollars, likewise.
    pub max_budget_usd: f64,
    /// Seconds of a job's work, likewise.
    pub deadline_seconds: u32,
}

/// A tool of sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTool {
    /// The name of the tool.
    pub name: String,
    /// Whether the sessions may be given the tool.
    pub granted: bool,
}

/// One of the limits that hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The name of the limit, as `guild.toml` spells it.
    pub name: String,
    /// The value for this component.
    pub value: serde_json::Number,
    /// The default.
    pub default: serde_json::Number,
}
