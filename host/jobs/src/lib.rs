//! Jobs and memory of a member, as files that people can read; and the traits through which a sandboxed
//! component, an agent session and a tool reach each other without knowing each other.
//!
//! All of it blocks on the file system and none of it needs a runtime, but for the calls of [`tools::Tools`]
//! and for compaction: call it where blocking is allowed. The methods that end in `_now` never block.

pub mod activation;
mod artifacts;
pub mod clock;
pub mod durable;
mod ended;
pub mod error;
pub mod events;
pub mod file_lock;
pub mod files;
pub mod follow;
pub mod glob;
mod index;
pub mod job_tools;
mod journal;
pub mod memory;
pub mod meter;
pub mod owner;
pub mod quota;
mod record;
pub mod records;
pub mod running;
pub mod secret;
pub mod session;
mod shared;
pub mod store;
mod sync;
pub mod tools;
pub mod transcript;
mod tree;
pub mod usage;
mod watch;
pub mod web;

pub use clock::{Clock, SystemClock, rfc3339};
pub use error::StoreError;
pub use job_tools::JobTools;
pub use memory::{Compaction, Condense, Condensed, Condenser, MemoryStore};
pub use owner::{Note, OtherUser, Owner, OwnerLock, Pulse};
pub use records::Records;
pub use running::RunningJob;
pub use store::{Brief, JobStore, LoadReport, NewJob, PruneReport, Resume, StoreOptions, interrupted};
