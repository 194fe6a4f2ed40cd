//! Tools of members' components: their schemas, their callers, and the calls.

pub mod catalogue;
pub mod component;
pub(crate) mod named_toolboxes;
pub(crate) mod schema;
pub mod toolbox;
