//! Commands about members: they list, test, probe, approve and sign members, and call their tools.

pub(crate) mod approve;
pub(crate) mod call;
mod grants;
pub(crate) mod list;
pub(crate) mod probe;
pub(crate) mod prompt;
mod rehearse;
pub(crate) mod sign;
pub(crate) mod test;
pub(crate) mod used;
