//! The callers of the hall's operations: a person, a tick, the manager.

use crate::core::workers::Activity;

/// Who asks for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A person, or a program of theirs.
    User,
    /// A person who asks that standing orders are carried out.
    StandingOrders,
    /// The manager, by a call of a tool.
    Manager {
        /// The commission or the meeting that the manager works on.
        activity: Activity,
        /// Names the call, also after a crash: a call that comes again has its effect once.
        call: String,
    },
}

impl Requester {
    /// The call, where the manager asks.
    pub(crate) fn call(&self) -> Option<&str> {
        match self {
            Self::User | Self::StandingOrders => None,
            Self::Manager { call, .. } => Some(call),
        }
    }
}
