//! Lists, checks and calls the tools of members' components.

pub mod catalogue;
pub mod component;
pub(crate) mod named_toolboxes;
pub(crate) mod schema;
pub mod toolbox;
