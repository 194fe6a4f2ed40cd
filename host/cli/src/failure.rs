//! How a command fails: an exit code, and one sentence for the person.

use std::io;

/// The exit codes, as `guild --help` lists them.
pub(crate) mod exit {
    /// Any error that has no code of its own.
    pub(crate) const ERROR: u8 = 1;
    /// `serve`: another process has the port. Guild Hall then tries the next one.
    pub(crate) const PORT_IN_USE: u8 = 2;
    /// `audit`: there are findings.
    pub(crate) const FINDINGS: u8 = 1;
    /// `audit`: what is to be audited cannot be read, or is no component; or the audit cannot be written.
    pub(crate) const CANNOT_READ: u8 = 2;
    /// `run`: the job failed.
    pub(crate) const JOB_FAILED: u8 = 3;
    /// `run`: somebody else cancelled the job.
    pub(crate) const JOB_CANCELLED: u8 = 4;
    /// `run`: Ctrl-C or SIGTERM ended the command, and cancelled the job where its host answered.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// Why a command does not end with 0.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// What stderr is told, where that has not happened yet.
    pub(crate) message: Option<String>,
}

impl Failure {
    /// An error without a code of its own.
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self { code: exit::ERROR, message: Some(message.into()) }
    }

    /// An exit code after everything has been said.
    pub(crate) fn code(code: u8) -> Self {
        Self { code, message: None }
    }
}

/// Of stdout: that is the only I/O whose errors come without a text of their own.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The reader has seen enough, which is no error.
            io::ErrorKind::BrokenPipe => Self::code(0),
            _ => Self::error(format!("cannot write to stdout: {error}")),
        }
    }
}
