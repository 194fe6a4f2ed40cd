//! Failures of commands: an exit code, and a message for the user.

use std::io;

/// The exit codes, as `guild --help` lists them.
pub(crate) mod exit {
    /// Any error without a code of its own.
    pub(crate) const ERROR: u8 = 1;
    /// `serve`: another process has the port. Guild Hall then tries the next one.
    pub(crate) const PORT_IN_USE: u8 = 2;
    /// `audit`: there are facts that `--fail-on` names.
    pub(crate) const FINDINGS: u8 = 1;
    /// `audit`: the target cannot be read, or is not a component; or the audit cannot be written.
    pub(crate) const CANNOT_READ: u8 = 2;
    /// `test`: a case failed.
    pub(crate) const CASE_FAILED: u8 = 1;
    /// `test`: a test file or the member is not valid.
    pub(crate) const INVALID_TEST: u8 = 2;
    /// `probe`: the member cannot be probed.
    pub(crate) const NOT_PROBED: u8 = 2;
    /// `run`: the job failed.
    pub(crate) const JOB_FAILED: u8 = 3;
    /// `run`: the job was cancelled by another client.
    pub(crate) const JOB_CANCELLED: u8 = 4;
    /// `run`: Ctrl-C or SIGTERM ended the command, and cancelled the job if its host answered.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// The failure of a command, whose exit code is not 0.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// The message for stderr; `None` if it was printed already.
    pub(crate) message: Option<String>,
}

impl Failure {
    /// An error without an exit code of its own.
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self { code: exit::ERROR, message: Some(message.into()) }
    }

    /// An exit code without a message.
    pub(crate) fn code(code: u8) -> Self {
        Self { code, message: None }
    }
}

/// An error of writing to stdout: all other I/O errors are converted with a message of their own.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A reader that closes the pipe early is not an error.
            io::ErrorKind::BrokenPipe => Self::code(0),
            _ => Self::error(format!("cannot write to stdout: {error}")),
        }
    }
}
