//! Names of hosts: those by which a host is called, and patterns of hosts of the web.

pub(crate) mod name;
pub(crate) mod pattern;
