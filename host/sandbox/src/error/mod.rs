//! Errors of loading a component, and of calling it. Each text is for the person who can change it; none shows a host
//! path or a backtrace.

pub(crate) mod reason;

use guild_inspect::InspectError;

/// Why a component is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("the component `{file}` cannot be read: {why}")]
    Read {
        /// As the manifest names it.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The file is larger than `limits.component_bytes`.
    #[error("the component `{file}` is larger than limits.component_bytes = {max}")]
    TooLarge {
        /// As the manifest names it.
        file: String,
        /// The limit.
        max: u64,
    },
    /// What it imports or exports does not fit.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The bytes are no component that can be compiled.
    #[error("{0}")]
    NotAComponent(String),
    /// The compiler, or the linker, refused it.
    #[error("the component cannot be loaded: {0}")]
    Refused(String),
    /// Compiling takes longer than `limits.compile_seconds`.
    #[error("compiling the component takes longer than limits.compile_seconds = {0}")]
    CompileTimeout(u32),
    /// Compiling takes longer, or more memory, than the [`Effort`](crate::Effort) that was asked for.
    #[error("the component is not compiled yet")]
    Later,
    /// Compiling takes more memory than `limits.compile_memory_bytes`.
    #[error("compiling the component takes more memory than limits.compile_memory_bytes = {0}")]
    CompileMemory(u64),
    /// A function of it is beyond a limit: which, and the limit and its value.
    #[error("the component cannot be compiled: {0}")]
    Beyond(String),
    /// A memory or a table of it begins with more than a limit gives: the limit and its value, as `guild.toml` spells it.
    #[error("the component begins with more than {0}")]
    Limit(String),
    /// Its tools could not be listed, or cannot be offered: the text says which, and why.
    #[error("the component's tools cannot be offered: {0}")]
    Tools(String),
}

impl CallError {
    /// How the call failed, without what else there is to say.
    pub(crate) fn bare(&self) -> &Self {
        match self {
            Self::Noted { error, .. } => error.bare(),
            other => other,
        }
    }
}

/// Why a call of a component did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It got no turn in time. Nothing was done; the same call may succeed later.
    #[error("the host is busy: no turn within {0} s")]
    Busy(u32),
    /// The call took longer than its deadline.
    #[error("`{call}` did not end within its deadline of {seconds} s ({whose})")]
    Deadline {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The deadline.
        seconds: u32,
        /// The limit, as `guild.toml` spells it, or `the job's own`.
        whose: &'static str,
    },
    /// It asked for more than a limit gives.
    #[error("`{call}` needs more than {limit}")]
    Limit {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The limit and its value, as `guild.toml` spells it.
        limit: String,
    },
    /// It trapped.
    #[error("the component failed in `{call}`: {why}")]
    Trap {
        /// The function that was called, as `run`.
        call: &'static str,
        /// What kind of trap.
        why: String,
    },
    /// It answered something that means nothing, such as invalid JSON or a bound of zero.
    #[error("the component's answer to `{call}` is not valid: {why}")]
    Invalid {
        /// The function that was called, as `run`.
        call: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The job was cancelled meanwhile.
    #[error("the job was cancelled")]
    Cancelled,
    /// It failed, and there is more to say than how.
    #[error("{error}; {notes}")]
    Noted {
        /// How it failed.
        error: Box<CallError>,
        /// What the component wrote to its stderr last, quoted, and what the host refused it.
        notes: String,
    },
}
