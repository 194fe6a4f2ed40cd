//! Defines the traits and types through which a sandboxed component, an agent session, a tool and the job store use
//! each other without knowing each other.
//!
//! This crate stores nothing and runs nothing. Other crates implement the traits: `guild-agent` and `guild-extractive`
//! the runtimes, `guild-agent` the files, `guild-web` search and pages, `guild-jobs` the journal, `guild-server` the
//! sessions of a component.

pub mod activation;
pub mod charset;
pub mod document;
pub mod files;
pub mod fold;
pub mod glob;
pub mod hall;
pub mod meter;
pub mod process;
pub mod queue;
pub mod session;
pub mod task;
pub mod tools;
pub mod transcript;
pub mod web;
