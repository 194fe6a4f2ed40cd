//! Creates the worktrees in which attempts and meetings work.

use guild_contract::{OperationError, text::one_line};
use guild_git::{AttemptBranch, Integration};
use std::path::Path;

use super::Core;
use crate::{core::workers::Attempt, files::protected::LORE, home::project_list::Project};

/// The most uncommitted files that a sentence names, and the most characters of their names.
const NAMED: usize = 20;
const NAME_CHARS: usize = 120;

impl Core {
    /// Creates the place in which an attempt works: a worktree on its own branch, or without a branch the integration
    /// worktree. It gets a directory for documents even if the project has none yet.
    pub(crate) async fn make_worktree(
        &self,
        project: &Project,
        attempt: &Attempt,
        branch: Option<&str>,
    ) -> Result<(), OperationError> {
        let failed = |e: &dyn std::fmt::Display| OperationError::Internal(format!("Workspace preparation failed: {e}"));
        let integration = self.projects.integration(&self.home, project).await.map_err(|e| failed(&e))?;
        if let Some(branch) = branch {
            let branch = AttemptBranch::new(branch)?;
            let started = integration.start_attempt(&branch, &attempt.worktree, attempt.checkout).await;
            started.map_err(|e| failed(&e))?;
        }
        match std::fs::create_dir(attempt.worktree.join(LORE)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(&format!("{LORE}: {e}"))),
            _ => Ok(()),
        }
    }
}

/// A sentence about the files of a worktree that the project's rules leave out of commits, and that are removed with
/// the worktree. `None` if there are none.
pub(crate) async fn left_out(integration: &Integration, dir: &Path) -> Option<String> {
    let files = match integration.repository().left_out(dir).await {
        Ok(files) => files,
        Err(e) => {
            // The full error could contain a path of the host, and this text is committed.
            tracing::warn!(dir = %dir.display(), "git cannot list the files that are not committed: {e}");
            return Some(format!("Git cannot list the files that are not committed: {}", e.kind()));
        }
    };
    let more = match files.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named: Vec<String> = files.iter().take(NAMED).map(|file| one_line(file, NAME_CHARS)).collect();
    let why = "The project ignores files that are in the worktree, so they are not committed";
    (!files.is_empty()).then(|| format!("{why}: {}{more}", named.join(", ")))
}
