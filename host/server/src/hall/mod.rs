//! The API of the hall: that of the original, over HTTP on the Unix socket of the hall's home.
//!
//! Each answer is JSON, an error `{"error": TEXT}`. Where nothing was found the text says "not found", which clients look for.

mod events;
mod routes;
pub(crate) mod socket;
