//! Jobs and memory of a member, and the memories that it shares, as files that people can read.
//!
//! Everything blocks on the file system, except the calls of [`Tools`](guild_session::tools::Tools) and compaction, which need
//! a runtime: call it where blocking is allowed.

mod artifacts;
mod context;
mod ended;
pub mod error;
pub mod events;
pub mod follow;
mod index;
pub mod job_tools;
mod journal;
pub mod memory;
pub mod owner;
mod plan;
pub mod quota;
mod record;
pub mod records;
mod removed;
pub mod running;
pub mod store;
mod sum;
mod sync;
pub mod tail;
pub mod usage;

pub use artifacts::Names;
pub use error::StoreError;
pub use job_tools::{ActivityKind, JobTools, Reporting};
pub use journal::Position;
pub use memory::{Compaction, Condense, Condensed, Condenser, MemoryStore, ScopedMemory};
pub use owner::{Note, OtherUser, Owner, OwnerLock, Pulse};
pub use plan::{Accepted, Sealed};
pub use records::Records;
pub use running::RunningJob;
pub use store::{JobStore, JobSummary, LoadReport, NewJob, PruneReport, Resume, StoreOptions, filter, interrupted};
pub use tail::Tail;
