//! Defines operations of callers, and the methods that a token needs for each.

use guild_contract::operation::Access;

use crate::tokens::Methods;

/// An operation with its access class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The name; for an unknown method, the caller's text.
    pub name: &'a str,
    /// The access class.
    pub access: Access,
}

impl Operation<'_> {
    /// The name, unless it is a caller's text.
    pub(crate) fn known_name(&self) -> Option<&str> {
        Some(self.name).filter(|_| !matches!(self.access, Access::Notification | Access::Unknown))
    }
}

/// The least methods that a token must permit for operations of this class.
pub(crate) fn required_methods(access: Access) -> Methods {
    match access {
        Access::Open | Access::Notification | Access::Reads | Access::Unknown => Methods::Read,
        Access::Dispatches => Methods::Dispatch,
        Access::Inspects | Access::Ends | Access::Calls => Methods::All,
    }
}
