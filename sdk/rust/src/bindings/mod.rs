//! Holds the bindings of `wit/`: every import, and one module for each export. A component's world is the union of the
//! worlds that its macros export, without the imports that it does not call.
//!
//! `cargo xtask bindings` writes all but this file.

#![allow(missing_docs, reason = "generated: the documentation is in wit/")]
#![allow(unreachable_pub, reason = "generated")]
#![allow(unsafe_code, reason = "generated: the canonical ABI")]
#![allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::panic,
    clippy::unwrap_used,
    reason = "generated"
)]

/// The export `run`.
#[rustfmt::skip]
pub mod runner;
/// The export `toolbox`.
#[cfg(feature = "toolbox")]
#[rustfmt::skip]
pub mod tools;
/// All imports, and the export `dispatch`.
#[rustfmt::skip]
pub mod worker;
