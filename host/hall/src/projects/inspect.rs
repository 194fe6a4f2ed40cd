//! Reads a project with git, for the manager's tools `git_status`, `git_log`, `git_diff`, `git_show` and `git_branch`.

use guild_contract::OperationError;
use guild_git::GitError;
pub use guild_git::{
    BranchOptions, BranchView, CommitView, DiffOptions, LogOptions, ShowOptions, ShowView, ShownDiff, StatusView,
};

use super::Projects;

impl Projects {
    /// The files of a project's integration worktree that differ from the last commit.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or git fails.
    pub async fn git_status(&self, project: &str) -> Result<StatusView, OperationError> {
        self.core.integration(project).await?.1.status_view().await.map_err(refused)
    }

    /// The last commits of a project's `claude/main`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::git_status`].
    pub async fn git_log(&self, project: &str, options: &LogOptions) -> Result<Vec<CommitView>, OperationError> {
        self.core.integration(project).await?.1.log_view(options).await.map_err(refused)
    }

    /// Differences in a project.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::git_status`], and an error when a name is not a commit.
    pub async fn git_diff(&self, project: &str, options: &DiffOptions) -> Result<String, OperationError> {
        self.core.integration(project).await?.1.diff_view(options).await.map_err(refused)
    }

    /// A commit of a project.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::git_status`], and an error when a name is not a commit.
    pub async fn git_show(&self, project: &str, options: &ShowOptions) -> Result<ShowView, OperationError> {
        self.core.integration(project).await?.1.show_view(options).await.map_err(refused)
    }

    /// The branches of a project.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::git_status`].
    pub async fn git_branch(&self, project: &str, options: BranchOptions) -> Result<Vec<BranchView>, OperationError> {
        self.core.integration(project).await?.1.branch_view(options).await.map_err(refused)
    }
}

/// Converts an error of git; it is [`OperationError::Invalid`] if the caller can change the request.
fn refused(error: GitError) -> OperationError {
    match error {
        GitError::TooMuchOutput { command, bytes, .. } => OperationError::Invalid(format!(
            "git {command} answers with more than {bytes} bytes; ask for one file, or for `stat`"
        )),
        GitError::Failed { command, said, .. } => OperationError::Conflict(format!("git {command} failed: {said}")),
        other => other.into(),
    }
}
