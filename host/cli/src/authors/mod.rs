//! The commands for authors of members: they begin with a source, and need no host.

pub(crate) mod build;
pub(crate) mod dev;
pub(crate) mod new;
