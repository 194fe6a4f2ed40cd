//! The real git, on real repositories in temporary directories.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod attempts;
mod crashes;
mod hostile;
mod integration;
mod merges;
mod program;
mod repository;
mod support;
