//! Jobs and memory of a member, as files that people can read; and the traits through which a sandboxed
//! component, an agent session and a tool reach each other without knowing each other.

pub mod activation;
pub mod files;
pub mod session;
pub mod tools;
