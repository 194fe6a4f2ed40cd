//! Defines the names of branches and commits.

use std::fmt;

use crate::error::GitError;

/// The branch that completed work is merged into. The user reviews and merges the branch.
pub const INTEGRATION_BRANCH: &str = "claude/main";
/// [`INTEGRATION_BRANCH`] as a ref.
pub(crate) const INTEGRATION_REF: &str = "refs/heads/claude/main";
/// The prefix of all branches that this crate writes.
pub(crate) const OURS: &str = "refs/heads/claude/";
/// The most bytes of a branch's name, which becomes a file's name with `.lock` behind it.
const NAME_BYTES: usize = 200;

/// The branch of an attempt, such as `claude/commission/commission-Researcher-20260401-120000`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptBranch(String);

impl AttemptBranch {
    /// A branch below `claude/`, other than [`INTEGRATION_BRANCH`]. Its parts between slashes are ASCII letters,
    /// digits, `-`, `_` and `.`, begin with a letter or digit, and end with neither `.` nor `.lock`; git accepts all
    /// such names.
    ///
    /// # Errors
    /// [`GitError::InvalidBranch`].
    pub fn new(name: &str) -> Result<Self, GitError> {
        let part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
                && !part.contains("..")
                && !part.ends_with('.')
                && !part.ends_with(".lock")
        };
        let valid = name.len() <= NAME_BYTES
            && name.strip_prefix("claude/").is_some_and(|rest| rest.split('/').all(part))
            && name != INTEGRATION_BRANCH
            && !name.starts_with("claude/main/");
        if valid { Ok(Self(name.to_owned())) } else { Err(GitError::InvalidBranch { name: name.to_owned() }) }
    }

    /// The name, without `refs/heads/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn full(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl fmt::Display for AttemptBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a commit: 40 hexadecimal digits, or 64 in a repository of SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommitId(pub(crate) String);

impl CommitId {
    /// Parses a stored id; `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        is_id.then(|| Self(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
