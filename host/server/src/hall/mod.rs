//! Serves the hall's API, which is that of the original, over HTTP on the hall's Unix socket and below `/hall` of the
//! port.
//!
//! Every response is JSON, and every error is `{"error": TEXT}`. If an object was not found, the text contains "not
//! found", which clients look for.

mod api;
mod events;
mod files;
pub(crate) mod forward;
pub(crate) mod routes;
pub mod socket;

pub use api::Api;
pub(crate) use api::NO_HALL;
