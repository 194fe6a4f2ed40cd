//! The runtime `api`, against local servers that speak the providers' protocols.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails where it is wrong")]

mod bounds;
mod conversation;
mod converse;
mod cost;
mod failures;
mod forms;
mod keys;
mod resume;
mod setting;
