//! What the door makes of a method's name.

use guild_contract::rpc::method::{self, DISCOVER};

use crate::tokens::Methods;

/// What a method does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// What is asked before anything else: by MCP, and of what there is to ask.
    Greeting,
    /// What MCP tells, whose name goes on with a caller's text.
    Notification,
    /// Tells of jobs.
    Reads,
    /// Makes a job.
    Dispatches,
    /// Ends a job, or removes it.
    Ends,
    /// Calls a tool.
    Tool,
    /// The host has none of that name, as everybody is told who asks for it.
    Unknown,
}

/// Whether the host has a method of that name. One that has no [class](Class) is carried out for nobody.
pub fn is_known(name: &str) -> bool {
    Class::of(name).is_known()
}

impl Class {
    /// The class of a method, by its name.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "initialize"
            | "ping"
            | "tools/list"
            | DISCOVER
            | "server/discover"
            | "prompts/list"
            | "prompts/get"
            | "resources/templates/list"
            | "subscriptions/listen"
            | "logging/setLevel"
            | "completion/complete" => Self::Greeting,
            method::LIST
            | method::STATUS
            | method::RESULT
            | "resources/list"
            | "resources/read"
            | "tasks/get"
            | "tasks/update" => Self::Reads,
            method::DISPATCH => Self::Dispatches,
            method::CANCEL | method::DELETE | "tasks/cancel" => Self::Ends,
            "tools/call" => Self::Tool,
            name if name.starts_with("notifications/") => Self::Notification,
            _ => Self::Unknown,
        }
    }

    /// Whether its name is a method's, and no text of a caller's.
    pub(crate) fn is_known(self) -> bool {
        !matches!(self, Self::Notification | Self::Unknown)
    }

    /// Whether it changes anything, or may: a component's tool can reach the web.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Dispatches | Self::Ends | Self::Tool)
    }

    /// The least that a token has to be for.
    pub(crate) fn least(self) -> Methods {
        match self {
            Self::Greeting | Self::Notification | Self::Reads | Self::Unknown => Methods::Read,
            Self::Dispatches => Methods::Dispatch,
            Self::Ends | Self::Tool => Methods::All,
        }
    }
}
