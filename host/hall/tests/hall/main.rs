//! A hall with the real git, on real projects and a real home. What a worker does is scripted; it does it to real
//! files.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod artifacts;
mod commissions;
mod heartbeat;
mod inspect;
mod manager;
mod meetings;
mod memory;
mod projects;
mod pulls;
mod queue;
mod recovery;
mod support;
mod tidy;
mod tools;
