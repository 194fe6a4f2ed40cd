//! Finds branches of attempts and meetings that are over, tells what became of their work, and removes them.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    error::GitError,
    names::{AttemptBranch, CommitId, INTEGRATION_REF},
    repository::{Repository, stale_locks::free},
};

/// Where the branches of attempts and meetings are.
const FAMILIES: [&str; 2] = ["refs/heads/claude/commission/", "refs/heads/claude/meeting/"];

/// A branch of an attempt or a meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBranch {
    /// The branch.
    pub branch: AttemptBranch,
    /// Its last commit.
    pub commit: CommitId,
    /// The worktree in which it is checked out, if it is.
    pub worktree: Option<PathBuf>,
}

impl Repository {
    /// The branches of attempts and meetings, in the order of their names.
    ///
    /// # Errors
    /// Why git cannot tell.
    pub async fn attempt_branches(&self) -> Result<Vec<FoundBranch>, GitError> {
        let list = self.call(&["for-each-ref", "--format=%(objectname) %(refname) %(worktreepath)"]);
        let listed = FAMILIES.iter().fold(list, |list, family| list.arg(family)).line().await?;
        let read = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let (commit, name) = (CommitId::parse(fields.next()?)?, fields.next()?);
            // One that the host would not have made is nobody's here.
            let branch = AttemptBranch::new(Self::short(name)).ok()?;
            let worktree = fields.next().filter(|path| !path.is_empty()).map(PathBuf::from);
            Some(FoundBranch { branch, commit, worktree })
        };
        Ok(listed.lines().filter_map(read).collect())
    }

    /// The commits that were merged into [`crate::INTEGRATION_BRANCH`], as far as it says so, each the last one of its branch.
    ///
    /// # Errors
    /// Why git cannot tell.
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

    /// Removes a branch that is still at this commit. `false`: it is not, or is gone. Its commits stay until git collects what
    /// nothing names.
    ///
    /// # Errors
    /// Why git cannot remove it.
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
