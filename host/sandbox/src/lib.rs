//! Runs components under limits: each can use only the capabilities that its manifest asks for and the operator grants.
//!
//! - [`Sandbox`] is the engine: compiler, linker, compile cache, the tick that bounds CPU, the queues.
//! - [`Candidate`] is a component's bytes, read once, so that the same bytes are hashed, approved and compiled.
//! - [`Plugin`] is one component, checked, compiled and linked. Each call of it gets a fresh instance in a
//!   Store of its own, which is dropped afterwards: no state leaks from call to call.
//!
//! Every component is denied sockets, HTTP, processes, environment variables, arguments, stdin, and every directory
//! except those of [`Preopen`](wasi::Preopen). No flag allows them.

mod call;
mod compile;
mod engine;
mod environment;
mod error;
mod filesystem;
mod load;
mod log;
mod plugin;
mod state;
mod usage;
mod uses;
mod versions;
mod wasi;

pub use call::{ActivateScope, Activated, Activity, RunScope, TellUses, ToolFault, ToolScope};
pub use compile::{COMPILE, Effort, Strategy, cache::CompileCache};
pub use engine::{Sandbox, queues::Permit};
pub use environment::Environment;
pub use error::{CallError, LoadError};
pub use load::Candidate;
pub use plugin::{Plugin, Unlisted};
