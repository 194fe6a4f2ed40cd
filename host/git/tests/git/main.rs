//! The real git, on real repositories in temporary directories.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod attempts;
mod crashes;
mod follows;
mod hostile;
mod inspect;
mod integration;
mod merges;
mod moves;
mod program;
mod pulls;
mod repository;
mod support;
