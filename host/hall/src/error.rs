//! Why the hall did not do what it was asked.

use guild_git::GitError;

/// Why the hall did not do it: a sentence for whoever asked. The variants are the kinds of answers that its API has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HallError {
    /// What was asked makes no sense as it is.
    #[error("{0}")]
    Invalid(String),
    /// It is no file of the kind that was asked for.
    #[error("{0}")]
    Unsupported(String),
    /// There is no such thing. Clients look for the words "not found".
    #[error("{0}")]
    NotFound(String),
    /// It cannot be done in this state.
    #[error("{0}")]
    Conflict(String),
    /// As much is spent as may be. The sentence says until when.
    #[error("{0}")]
    Spent(String),
    /// The host could not do it.
    #[error("{0}")]
    Internal(String),
}

impl HallError {
    /// An error of the file system, with what was being done.
    pub(crate) fn io(doing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |e| Self::Internal(format!("{doing}: {e}"))
    }
}

impl From<GitError> for HallError {
    fn from(error: GitError) -> Self {
        Self::Internal(error.to_string())
    }
}
