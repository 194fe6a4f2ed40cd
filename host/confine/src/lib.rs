//! Runs work on untrusted input in child processes whose memory and time are bounded.
//!
//! Work in the host that a hostile input keeps busy, such as a parser, a validator or a compiler, cannot be
//! interrupted, and its allocations are not counted. A process can be ended at any moment, and the system counts its
//! memory. So a [`Task`] is a function from bytes to bytes that the program's own executable runs in a child: the child
//! limits its resources before it reads the input, and the host ends it at the deadline, or as soon as the request is
//! dropped.
//!
//! - memory: `RLIMIT_DATA`, the child's heap and its other private mappings;
//! - time: the wall clock in the host, and `RLIMIT_CPU` in the child, which applies even if the host is gone;
//! - the rest: no environment, no writes to files (`RLIMIT_FSIZE`), few open files (`RLIMIT_NOFILE`), no core dump, no
//!   new privileges, and the first to be killed if the machine runs out of memory.
//!
//! The memory of all children of a process together is bounded, too: further children wait ([`set_room`]).
//!
//! A child that must read files receives open directories, and no paths.
//!
//! [`Supervised`] is for programs other than the host's own: they have no such limits, and end together with all
//! processes that they started.

mod child;
mod entry;
mod parent;
mod programs;
mod supervisor;

pub use child::{directories, has_children};
pub use entry::serve_if_asked;
pub use parent::{Worker, executable, run, run_blocking, set_room};
pub use programs::{find_program, search_path};
pub use supervisor::{Lifeline, Supervised, set_supervisor};

/// Work on untrusted input, as a function from the bytes of a request to those of the response.
///
/// The function must be self-contained: the request is a child's only input.
#[derive(Debug)]
pub struct Task {
    /// The name by which the child's command line selects it.
    pub name: &'static str,
    /// The work. A panic ends the child, and the caller gets [`Ended::Failed`].
    pub run: fn(&[u8]) -> Vec<u8>,
}

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Seconds of the wall clock. CPU time is bounded by as many seconds on each core.
    pub seconds: u32,
    /// Bytes that the child may allocate, from its start.
    pub memory_bytes: u64,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The request took longer than [`Bounds::seconds`].
    #[error("it takes too long")]
    TooLong,
    /// The request took more than [`Bounds::memory_bytes`].
    #[error("it takes too much memory")]
    TooMuchMemory,
    /// The child could not be started, or failed in another way.
    #[error("the process for it failed: {0}")]
    Failed(String),
}
