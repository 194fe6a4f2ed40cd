//! Defines operations of callers.

use guild_contract::operation::Access;

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
