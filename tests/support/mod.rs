//! What the tests share.

pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod mcp;
pub(crate) mod output;
pub(crate) mod sandbox;
pub(crate) mod web;
