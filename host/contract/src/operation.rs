//! Describes each operation of a host once, for all surfaces.
//!
//! An operation is a type that implements [`Operation`]: its input, its output, and its [`Row`]. Every surface is made
//! from
//! these types: the JSON-RPC method, the routes on the port and on the hall's socket, the MCP tool, the gate, the audit
//! log,
//! the OpenRPC document, the client, and the tables of the docs.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

/// An operation that callers can request.
pub trait Operation: 'static {
    /// The parameters.
    type Input: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The answer. For an operation that streams events, the type of one event.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The description.
    const ROW: Row;
}

/// The description of an [`Operation`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The JSON-RPC method, which is also the operation's name in the audit log.
    pub name: &'static str,
    /// The permission that a caller needs.
    pub access: Access,
    /// The description of the operation for people and models, in one or two sentences.
    pub text: &'static str,
    /// The cases in which the parameters are refused, besides missing and malformed ones. May be empty.
    pub refuses: &'static str,
    /// Whether the operation waits for a network or a model, so that its clients have to wait for minutes.
    pub slow: bool,
    /// The kind of the operation's answer.
    pub answer: AnswerKind,
    /// The most bytes of memory that the answer takes while it is made: as records, as values, and as a text.
    pub answer_bytes: u64,
    /// The route below `/hall` of the port, and on the hall's socket.
    pub route: Option<Route>,
    /// The MCP tool.
    pub tool: Option<Tool>,
    /// The differences of the original's route.
    pub quirks: Quirks,
}

impl Row {
    /// An operation without route, tool and quirks.
    pub const fn new(name: &'static str, access: Access, text: &'static str) -> Self {
        Self {
            name,
            access,
            text,
            refuses: "",
            slow: false,
            answer: AnswerKind::Json,
            answer_bytes: 0,
            route: None,
            tool: None,
            quirks: Quirks::NONE,
        }
    }

    /// Sets the cases in which the parameters are refused.
    pub const fn refuses(self, refuses: &'static str) -> Self {
        Self { refuses, ..self }
    }

    /// Marks the operation as waiting for a network or a model.
    pub const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// Makes the operation answer with the events of a turn.
    pub const fn streams(self) -> Self {
        Self { answer: AnswerKind::Turn, ..self }
    }

    /// Makes the operation answer with a file.
    pub const fn file(self) -> Self {
        Self { answer: AnswerKind::File, ..self }
    }

    /// Sets the most mebibytes of memory that the answer takes while it is made.
    pub const fn answers_mebibytes(self, mebibytes: u64) -> Self {
        Self { answer_bytes: mebibytes << 20, ..self }
    }

    /// Sets a route for `GET`.
    pub const fn get(self, path: &'static str) -> Self {
        Self { route: Some(Route { verbs: Verbs::Get, path, status: 200 }), ..self }
    }

    /// Sets a route for `POST`.
    pub const fn post(self, path: &'static str) -> Self {
        Self { route: Some(Route { verbs: Verbs::Post, path, status: 200 }), ..self }
    }

    /// Sets the HTTP status of the route's answer, in place of 200.
    pub const fn answers(self, status: u16) -> Self {
        match self.route {
            Some(route) => Self { route: Some(Route { status, ..route }), ..self },
            None => self,
        }
    }

    /// Sets the tool, with its name and a title for people.
    pub const fn tool(self, name: &'static str, title: &'static str) -> Self {
        Self { tool: Some(Tool { name, title, replaces: false }), ..self }
    }

    /// Sets a tool that overwrites existing data.
    pub const fn replacing_tool(self, name: &'static str, title: &'static str) -> Self {
        Self { tool: Some(Tool { name, title, replaces: true }), ..self }
    }

    /// The name of its tool; without one, the method's.
    pub const fn tool_name(&self) -> &'static str {
        match self.tool {
            Some(tool) => tool.name,
            None => self.name,
        }
    }

    /// Sets the differences of the original's route.
    pub const fn quirks(self, quirks: Quirks) -> Self {
        Self { quirks, ..self }
    }
}

/// The kind of an operation, by which the gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The operation belongs to MCP's handshake, or lists the operations.
    Open,
    /// A notification of MCP. Its name is a caller's text.
    Notification,
    /// The operation reads jobs or the hall.
    Reads,
    /// The operation reads the full text of a job's sessions, or what the host keeps for its operator.
    Inspects,
    /// The operation creates a job, or changes the hall.
    Dispatches,
    /// The operation decides what the host trusts, or what a member remembers.
    Approves,
    /// The operation ends or removes data or work.
    Ends,
    /// The operation calls a tool of a component.
    Calls,
    /// The host has no operation of that name.
    Unknown,
}

impl Access {
    /// Whether the operation changes state, or may do so: a component's tool, for example, can reach the web.
    pub fn changes(self) -> bool {
        matches!(self, Self::Dispatches | Self::Approves | Self::Ends | Self::Calls)
    }
}

/// The kind of an operation's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// JSON.
    Json,
    /// The events of a meeting's turn, as they occur. A caller that receives no events gets a
    /// [`SpokenTurn`](crate::hall::SpokenTurn).
    Turn,
    /// The bytes of a file. Only a route answers with a file.
    File,
}

/// A route of the hall's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The verbs of the route.
    pub verbs: Verbs,
    /// The path, below `/hall` of the port. A part `{NAME}` is the field `NAME` of the input.
    pub path: &'static str,
    /// The HTTP status of a successful answer.
    pub status: u16,
}

/// The HTTP verbs of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `GET` or `POST`.
    Both,
}

impl Verbs {
    /// Whether the route accepts this verb.
    pub fn include(self, verb: &str) -> bool {
        match self {
            Self::Get => verb == "GET",
            Self::Post => verb == "POST",
            Self::Both => matches!(verb, "GET" | "POST"),
        }
    }
}

/// A tool of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name in calls.
    pub name: &'static str,
    /// The title for people.
    pub title: &'static str,
    /// Whether the tool overwrites existing data.
    pub replaces: bool,
}

/// The differences of an original's route from the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The fields that the original names together if any of them is missing, as in `projectName, title`.
    pub missing: Option<&'static str>,
    /// Aliases of fields, each with the name of the field.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The fields that may be empty. Any other empty field counts as missing.
    pub may_be_empty: &'static [&'static str],
    /// The original's sentences for missing or malformed fields, each with the name of the field.
    pub sentences: &'static [(&'static str, &'static str)],
}

impl Quirks {
    /// No differences.
    pub const NONE: Self = Self { missing: None, aliases: &[], may_be_empty: &[], sentences: &[] };
}
