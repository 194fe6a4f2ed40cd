//! Runs work on untrusted input in child processes whose memory and time are bounded.
//!
//! A parser, a validator or a compiler that a hostile input keeps busy cannot be interrupted inside the host, and its
//! allocations are not counted there. A process can be ended at any moment, and the system counts its memory. So a [`Task`]
//! is a function from bytes to bytes that the program's own executable runs in a child: the child limits itself before it
//! reads the input, and the host ends it at the deadline, or as soon as the request is dropped.
//!
//! - memory: `RLIMIT_DATA`, the child's heap and all that it maps for itself;
//! - time: the wall clock in the host, and `RLIMIT_CPU` in the child, which holds also where the host is gone;
//! - the rest: no environment, nothing written to files (`RLIMIT_FSIZE`), few files open (`RLIMIT_NOFILE`), no core dump,
//!   no new privileges, and the first to go where the machine runs out of memory.
//!
//! All children of a process together have a bound of memory, too: others wait ([`set_room`]).
//!
//! A child that has to read files receives the open directories that they are in, and no paths.
//!
//! [`Supervised`] is for programs that are not the host's own: they have no such bounds, and end with all that they started.

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

/// Work on untrusted input, as a function from the request's bytes to the answer's.
///
/// It must be self-contained: a child knows nothing of its host but the request.
#[derive(Debug)]
pub struct Task {
    /// The name by which the child's command line selects it.
    pub name: &'static str,
    /// The work. A panic ends the child, and the caller gets [`Ended::Failed`].
    pub run: fn(&[u8]) -> Vec<u8>,
}

/// What one request may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Seconds of the wall clock. CPU time is bounded by as many seconds on each core.
    pub seconds: u32,
    /// Bytes that the child may allocate, from its start.
    pub memory_bytes: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It took longer than [`Bounds::seconds`].
    #[error("it takes too long")]
    TooLong,
    /// It took more than [`Bounds::memory_bytes`].
    #[error("it takes too much memory")]
    TooMuchMemory,
    /// There is no child, or it failed in another way.
    #[error("the process for it failed: {0}")]
    Failed(String),
}
