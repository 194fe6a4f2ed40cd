//! Describes the operations of workers and of the host itself: their names, types and texts, and the document of OpenRPC.

pub(crate) mod openrpc;
pub(crate) mod operator;
pub(crate) mod worker;
