//! Defines the types that all crates of the host share: ids, the manifest, jobs, the operations with their parameters
//! and results, and every limit with its default.
//!
//! This crate does no I/O. Values from a caller, a member directory or a `guild.toml` are checked when they are parsed,
//! so that the rest of the host handles only valid values.

pub mod capability;
pub mod error;
pub mod hall;
pub mod host;
pub mod ids;
pub mod job;
pub mod json;
pub mod limits;
pub mod manifest;
pub mod member;
pub mod operation;
pub mod rpc;
pub mod secret;
pub mod text;
pub mod usage;

pub use capability::{
    Delegation,
    grants::{Grants, Policy},
};
pub use error::{OperationError, SpendError};
pub use ids::{JobId, MemberKey};
pub use job::retention::Retention;
pub use job::{Decision, DispatchKey, JobStatus, JobUsage, Meta, Resumption, Usage};
pub use job::{
    bounds::Bounds,
    event::{Event, EventDetail},
};
pub use limits::Limits;
pub use manifest::Manifest;
pub use member::{MemberLimits, MemberReport, MemberService, Narrowed};

/// The WIT package that this host implements, without its version.
pub const WIT_PACKAGE: &str = "guild:worker";
/// The versions of [`WIT_PACKAGE`] that this host implements, the newest of each track, oldest first.
pub const WIT_VERSIONS: [(u64, u64, u64); 1] = [(0, 1, 0)];
