//! Runs agent sessions: the runtimes, the tool set of each session, and the read-only tools.
//!
//! A session can do only what its [`ToolSet`] offers, and reads only the directories that [`ReadRoots`] was opened on.
//! Its results leave it through the internal tools of its job, never through a file that it writes itself.

pub mod api;
pub mod claude;
pub mod files;
mod readonly;
mod shown;
pub mod tool_set;
mod trace;

pub use claude::Claude;
pub use files::{FILES_TASK, Looked, ReadRoots, RootError};
pub use readonly::Broker;
pub use tool_set::ToolSet;
