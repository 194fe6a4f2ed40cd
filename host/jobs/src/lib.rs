//! Stores the jobs and the memory of a member, and memories that members share, as files that people can read.
//!
//! Everything blocks on the file system, except the calls of [`Tools`](guild_session::tools::Tools) and compaction,
//! which need a runtime: call it where blocking is allowed.

pub mod error;
pub mod events;
pub mod files;
pub mod job_tools;
pub mod ledger;
pub mod memory;
pub mod owner;
pub mod running;
pub mod store;
mod sync;
pub mod usage;

pub use error::{Refused, StoreError};
pub use files::{
    activation::GivenActivation,
    artifacts::Names,
    attachments::{ATTACHMENTS, AttachedBytes},
    journal::Position,
    plan::{Accepted, Sealed},
    reader::Records,
};
pub use job_tools::{ActivityKind, JobReport, JobTools, Reporting};
pub use ledger::{Birth, Change, Decision, Head, Hold, Ledger, News};
pub use memory::{Compaction, Condense, Condensed, Condenser, MemoryStore, ScopedMemory};
pub use owner::{Note, OtherUser, Owner, OwnerLock, Pulse};
pub use running::{RunningJob, tail::Tail};
pub use store::{
    JobStore, JobSummary, JobView, KeyClaim, Keyed, LOG_BYTES, LoadReport, NewJob, PruneReport, Resume, STATES_BYTES,
    Staged, StoreOptions, filter, interrupted,
};
