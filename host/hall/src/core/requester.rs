//! Names the callers of the hall's operations: a person, a tick, the manager.

use crate::core::workers::Activity;

/// The requester of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A person, or a person's program.
    User,
    /// A person who requests a tick of the standing orders.
    StandingOrders,
    /// The manager, through a tool call.
    Manager {
        /// The commission or the meeting that the manager works on.
        activity: Activity,
        /// The name of the call, which stays the same after a crash: a repeated call takes effect once.
        call: String,
    },
}

impl Requester {
    /// The call, if the manager is the requester.
    pub(crate) fn call(&self) -> Option<&str> {
        match self {
            Self::User | Self::StandingOrders => None,
            Self::Manager { call, .. } => Some(call),
        }
    }
}
