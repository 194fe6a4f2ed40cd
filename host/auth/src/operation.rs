//! What a caller asks for, as far as it matters for who may ask for it.

use guild_contract::operation::Access;

use crate::tokens::Methods;

/// A method, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// Its name; of a method that the host does not have, the caller's text.
    pub name: &'a str,
    /// What it does.
    pub access: Access,
}

impl Operation<'_> {
    /// Its name, where that is a method's and no text of a caller's.
    pub(crate) fn known_name(&self) -> Option<&str> {
        Some(self.name).filter(|_| !matches!(self.access, Access::Notification | Access::Unknown))
    }
}

/// The least that a token has to be for, so that its bearer may have an operation of this class carried out.
pub(crate) fn required_methods(access: Access) -> Methods {
    match access {
        Access::Open | Access::Notification | Access::Reads | Access::Unknown => Methods::Read,
        Access::Dispatches => Methods::Dispatch,
        Access::Inspects | Access::Ends | Access::Calls => Methods::All,
    }
}
