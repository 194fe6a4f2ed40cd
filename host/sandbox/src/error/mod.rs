//! Defines the errors of loading and calling a component. Each text is for the person who can mend the error; none
//! shows a host path or a backtrace.

pub(crate) mod reason;

use guild_inspect::InspectError;

/// The error of loading a component.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("the component `{file}` cannot be read: {why}")]
    Read {
        /// The file as the manifest names it.
        file: String,
        /// The error of the system.
        why: String,
    },
    /// The file is larger than `limits.component_bytes`.
    #[error("the component `{file}` is larger than limits.component_bytes = {max}")]
    TooLarge {
        /// The file as the manifest names it.
        file: String,
        /// The limit.
        max: u64,
    },
    /// Its imports or exports are unsuitable.
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
    /// Compiling takes more time or memory than the requested [`Effort`](crate::Effort).
    #[error("the component is not compiled yet")]
    Later,
    /// Compiling takes more memory than `limits.compile_memory_bytes`.
    #[error("compiling the component takes more memory than limits.compile_memory_bytes = {0}")]
    CompileMemory(u64),
    /// A function exceeds a limit. The text has the function, the limit and its value.
    #[error("the component cannot be compiled: {0}")]
    Beyond(String),
    /// A memory or a table begins larger than a limit. The text has the limit and its value, as `guild.toml` spells it.
    #[error("the component begins with more than {0}")]
    Limit(String),
    /// Its tools could not be listed, or cannot be offered. The text names the tool and the reason.
    #[error("the component's tools cannot be offered: {0}")]
    Tools(String),
}

impl CallError {
    /// The kind of failure in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self.bare() {
            Self::Busy(_) => "busy",
            Self::Deadline { .. } => "deadline",
            Self::Limit { .. } => "limit",
            Self::Trap { .. } => "trap",
            Self::Invalid { .. } => "invalid",
            Self::Cancelled => "cancelled",
            Self::Noted { .. } => "noted",
        }
    }

    /// The failure without notes.
    pub(crate) fn bare(&self) -> &Self {
        match self {
            Self::Noted { error, .. } => error.bare(),
            other => other,
        }
    }
}

/// The error of a call of a component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call got no permit in time. The component was not called; the same call may succeed later.
    #[error("the host is busy: no turn within {0} s")]
    Busy(u32),
    /// The call took longer than its deadline.
    #[error("`{call}` did not end within its deadline of {seconds} s ({whose})")]
    Deadline {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The deadline.
        seconds: u32,
        /// The limit, as [`Limit::cited`](guild_contract::limits::Limit::cited) has it, or `the job's own`.
        whose: &'static str,
    },
    /// The component exceeded a limit.
    #[error("`{call}` needs more than {limit}")]
    Limit {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The limit and its value.
        limit: String,
    },
    /// The component trapped.
    #[error("the component failed in `{call}`: {why}")]
    Trap {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The kind of trap.
        why: String,
    },
    /// The answer is invalid, such as invalid JSON or a bound of zero.
    #[error("the component's answer to `{call}` is not valid: {why}")]
    Invalid {
        /// The function that was called, as `run`.
        call: &'static str,
        /// The reason that it is invalid.
        why: String,
    },
    /// The job was cancelled meanwhile.
    #[error("the job was cancelled")]
    Cancelled,
    /// The call failed, and there are notes on it.
    #[error("{error}; {notes}")]
    Noted {
        /// The failure.
        error: Box<CallError>,
        /// The first and the last lines of the component's stderr, quoted, and the refusals of the host.
        notes: String,
    },
}
