//! Operations: what callers can ask of a host, each described once.
//!
//! An operation is a type that implements [`Operation`]: its input, its output, and its [`Row`]. Every surface is made from
//! that: the JSON-RPC method, the route on the port and on the hall's socket, the tool of MCP, the gate, the log of who did
//! what, the OpenRPC document, the client, and the tables of the docs.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

/// An operation that callers can ask for.
pub trait Operation: 'static {
    /// The parameters.
    type Input: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The answer. An operation that answers with a stream of events has one event here.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The description.
    const ROW: Row;
}

/// The description of an [`Operation`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The JSON-RPC method, which is also the name in the log of who did what.
    pub name: &'static str,
    /// What a caller has to be allowed.
    pub access: Access,
    /// What the operation does, for people and models: one sentence, or two.
    pub text: &'static str,
    /// When the parameters are refused, besides missing and malformed ones. Empty where there is nothing more to say.
    pub refuses: &'static str,
    /// Whether it takes as long as a network or a model does: its clients wait for minutes.
    pub slow: bool,
    /// The kind of its answer.
    pub answer: AnswerKind,
    /// Bytes that its answer takes at most while it is made: records, the same as values, and as a text.
    pub answer_bytes: u64,
    /// The route below `/hall` of the port, and on the hall's socket.
    pub route: Option<Route>,
    /// The tool of MCP.
    pub tool: Option<Tool>,
    /// Where the routes of the original differ.
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

    /// When the parameters are refused.
    pub const fn refuses(self, refuses: &'static str) -> Self {
        Self { refuses, ..self }
    }

    /// The operation takes as long as a network or a model does.
    pub const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// The operation answers with the events of a turn.
    pub const fn streams(self) -> Self {
        Self { answer: AnswerKind::Turn, ..self }
    }

    /// The operation answers with a file.
    pub const fn file(self) -> Self {
        Self { answer: AnswerKind::File, ..self }
    }

    /// The operation answers with as many mebibytes as this, at most, while the answer is made.
    pub const fn answers_mebibytes(self, mebibytes: u64) -> Self {
        Self { answer_bytes: mebibytes << 20, ..self }
    }

    /// The route that is asked by `GET`.
    pub const fn get(self, path: &'static str) -> Self {
        Self { route: Some(Route { verbs: Verbs::Get, path, status: 200 }), ..self }
    }

    /// The route that is asked by `POST`.
    pub const fn post(self, path: &'static str) -> Self {
        Self { route: Some(Route { verbs: Verbs::Post, path, status: 200 }), ..self }
    }

    /// The HTTP status of the route's answer, where that is not 200.
    pub const fn answers(self, status: u16) -> Self {
        match self.route {
            Some(route) => Self { route: Some(Route { status, ..route }), ..self },
            None => self,
        }
    }

    /// The tool of this name, with a title for people.
    pub const fn tool(self, name: &'static str, title: &'static str) -> Self {
        Self { tool: Some(Tool { name, title, replaces: false }), ..self }
    }

    /// The same, of a tool that replaces something that was there.
    pub const fn replacing_tool(self, name: &'static str, title: &'static str) -> Self {
        Self { tool: Some(Tool { name, title, replaces: true }), ..self }
    }

    /// The name of its tool; the method's, where it has none.
    pub const fn tool_name(&self) -> &'static str {
        match self.tool {
            Some(tool) => tool.name,
            None => self.name,
        }
    }

    /// Where the routes of the original differ.
    pub const fn quirks(self, quirks: Quirks) -> Self {
        Self { quirks, ..self }
    }
}

/// What an operation does, by which the gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is asked before anything else: by MCP, and for what there is to ask.
    Open,
    /// A notification of MCP, whose name is a caller's text.
    Notification,
    /// It tells about jobs, or about the hall.
    Reads,
    /// It tells what a job's sessions read and said, word by word.
    Inspects,
    /// It makes a job, or changes the hall.
    Dispatches,
    /// It ends or removes something.
    Ends,
    /// It calls a tool of a component.
    Calls,
    /// The host has no operation of that name.
    Unknown,
}

impl Access {
    /// Whether the operation changes anything, or may: a component's tool can reach the web.
    pub fn changes(self) -> bool {
        matches!(self, Self::Dispatches | Self::Ends | Self::Calls)
    }
}

/// The kind of an operation's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// JSON.
    Json,
    /// The events of a turn of a meeting, as they come. A caller that is sent no events gets a
    /// [`SpokenTurn`](crate::hall::SpokenTurn).
    Turn,
    /// A file, as it is: only its route answers with it.
    File,
}

/// A route of the hall's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// By which verbs it is asked.
    pub verbs: Verbs,
    /// The path, below `/hall` of the port. A part `{NAME}` is the field `NAME` of the input.
    pub path: &'static str,
    /// The HTTP status of an answer that is no error.
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
    /// Whether a request with this verb is one of the route.
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
    /// By which it is called.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Whether it replaces something that was there.
    pub replaces: bool,
}

/// Where a route of the original differs from the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The fields that the original names together where any of them is missing, as in `projectName, title`.
    pub missing: Option<&'static str>,
    /// Other names of fields, each with the name of the field.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The fields that may be empty. Any other field that is empty counts as missing.
    pub may_be_empty: &'static [&'static str],
    /// Sentences of the original for fields that are missing or malformed, each with the name of the field.
    pub sentences: &'static [(&'static str, &'static str)],
}

impl Quirks {
    /// No difference.
    pub const NONE: Self = Self { missing: None, aliases: &[], may_be_empty: &[], sentences: &[] };
}
