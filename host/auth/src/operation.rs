//! What a caller asks for, as far as it matters for who may ask for it.

use crate::tokens::Methods;

/// A method, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// Its name; of a method that the host does not have, the caller's text.
    pub name: &'a str,
    /// What it does.
    pub access: Access,
}

/// What a method does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// What is asked before anything else: by MCP, and of what there is to ask.
    Open,
    /// A notification of MCP, whose name goes on with a caller's text.
    Notification,
    /// Tells of jobs.
    Reads,
    /// Tells what a job's sessions read and said, word by word.
    Inspects,
    /// Makes a job.
    Dispatches,
    /// Ends a job, or removes it.
    Ends,
    /// Calls a tool.
    Calls,
    /// The host has none of that name: the answer to any caller who asks for it.
    Unknown,
}

impl Operation<'_> {
    /// Its name, where that is a method's and no text of a caller's.
    pub(crate) fn known_name(&self) -> Option<&str> {
        Some(self.name).filter(|_| !matches!(self.access, Access::Notification | Access::Unknown))
    }
}

impl Access {
    /// Whether it changes anything, or may: a component's tool can reach the web.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Dispatches | Self::Ends | Self::Calls)
    }

    /// The least that a token has to be for.
    pub(crate) fn least(self) -> Methods {
        match self {
            Self::Open | Self::Notification | Self::Reads | Self::Unknown => Methods::Read,
            Self::Dispatches => Methods::Dispatch,
            Self::Inspects | Self::Ends | Self::Calls => Methods::All,
        }
    }
}
