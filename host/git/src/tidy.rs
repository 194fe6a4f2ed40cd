//! Finds branches of ended attempts and meetings, tells whether their work was merged, and removes them.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    error::GitError,
    names::{AttemptBranch, CommitId, INTEGRATION_REF},
    repository::{Repository, stale_locks::free},
};

/// The prefixes of the branches of attempts and meetings.
const FAMILIES: [&str; 2] = ["refs/heads/claude/commission/", "refs/heads/claude/meeting/"];

/// A branch of an attempt or a meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBranch {
    /// The branch.
    pub branch: AttemptBranch,
    /// Its last commit.
    pub commit: CommitId,
    /// The worktree in which it is checked out, if there is one.
    pub worktree: Option<PathBuf>,
}

impl Repository {
    /// The branches of attempts and meetings, in the order of their names.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn attempt_branches(&self) -> Result<Vec<FoundBranch>, GitError> {
        let list = self.call(&["for-each-ref", "--format=%(objectname) %(refname) %(worktreepath)"]);
        let listed = FAMILIES.iter().fold(list, |list, family| list.arg(family)).line().await?;
        let read = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let (commit, name) = (CommitId::parse(fields.next()?)?, fields.next()?);
            // A branch with a name that the host does not make is ignored.
            let branch = AttemptBranch::new(Self::short(name)).ok()?;
            let worktree = fields.next().filter(|path| !path.is_empty()).map(PathBuf::from);
            Some(FoundBranch { branch, commit, worktree })
        };
        Ok(listed.lines().filter_map(read).collect())
    }

    /// The last commits of the branches that were merged into [`crate::INTEGRATION_BRANCH`], by its commit messages.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn merged_commits(&self) -> Result<BTreeSet<String>, GitError> {
        if self.tip(INTEGRATION_REF).await?.is_none() {
            return Ok(BTreeSet::new());
        }
        let list = [
            "rev-list",
            "--no-commit-header",
            "--grep=^Squashed-From: ",
            "--format=%(trailers:key=Squashed-From,valueonly)",
        ];
        let listed = self.call(&list).arg(INTEGRATION_REF).arg("--").line().await?;
        Ok(listed.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Removes a branch that is still at this commit. `false`: it has another commit, or is gone. Its commits stay
    /// until git collects garbage.
    ///
    /// # Errors
    ///
    /// Git cannot remove it.
    pub async fn remove_branch(&self, branch: &AttemptBranch, commit: &CommitId) -> Result<bool, GitError> {
        let full = branch.full();
        free(&self.data.join(format!("{full}.lock")), self.git.longest_run()).await?;
        match self.call(&["update-ref", "-d", &full, commit.as_str()]).run().await {
            Ok(_) => Ok(true),
            Err(error) => match self.tip(&full).await? {
                Some(tip) if tip.commit == *commit => Err(error),
                _ => Ok(false),
            },
        }
    }
}
