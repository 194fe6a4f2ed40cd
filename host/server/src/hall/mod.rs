//! The API of the hall: that of the original, over HTTP on the Unix socket of the hall's home, and below `/hall` of the port.
//!
//! Each answer is JSON, an error `{"error": TEXT}`. Where nothing was found the text says "not found", which clients look for.

mod api;
mod events;
mod files;
pub(crate) mod routes;
pub mod socket;

pub use api::Api;
pub(crate) use api::NO_HALL;
