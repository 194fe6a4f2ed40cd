//! Tests that cross crates: what callers, operators, plugin authors and reviewers see from outside.
//!
//! They are one program, since each would link the whole host. They belong to the package `guild`, whose
//! binary they start.

mod cli;
mod documents;
mod sandbox;
mod support;
