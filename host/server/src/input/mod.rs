//! Reads the input of requests: bodies, JSON, parameters of methods and arguments of tools.

pub(crate) mod body;
pub(crate) mod json;
pub(crate) mod params;
