//! The documents of a project, as a caller reads and writes them: those of its integration worktree.

use std::{path::PathBuf, sync::Arc};

use super::{Hall, blocking, dependencies};
use crate::{
    artifact::{self, Artifact},
    error::HallError,
    tools::{protected::LORE, worktree::in_lore},
};

/// Characters of a commit's message.
const MAX_MESSAGE_CHARS: usize = 10_000;

impl Hall {
    /// The artifacts of a project, those that want attention first; with `newest`, so many that were written last.
    ///
    /// # Errors
    /// Where there is no such project.
    pub async fn artifacts(&self, project: &str, newest: Option<usize>) -> Result<Vec<Artifact>, HallError> {
        let worktree = self.documents(project)?;
        blocking(move || artifact::list(&worktree, newest)).await
    }

    /// An artifact of a project, by its path below `.lore/`. The record of a commission under way is that of its attempt.
    ///
    /// # Errors
    /// Where there is no such project or artifact, or the path leads elsewhere.
    pub async fn artifact(&self, project: &str, path: &str) -> Result<Artifact, HallError> {
        let integration = self.documents(project)?;
        let worktree = self.attempt_with(project, path).unwrap_or(integration);
        let path = path.to_owned();
        blocking(move || artifact::read(&worktree, &path)).await
    }

    /// Writes an artifact and commits it. What waited for it goes on.
    ///
    /// # Errors
    /// As [`Self::artifact`], and where it is a file of the hall's or of git's.
    pub async fn write_artifact(self: &Arc<Self>, project: &str, path: &str, content: String) -> Result<(), HallError> {
        let found = self.project(project)?;
        let integration = self.projects.integration(&self.home, &found).await?;
        let (new, temporary, written) = (self.home.new_files()?, format!("{project}.lore"), path.to_owned());
        // The worktree is there from here on.
        integration.commit_loose().await?;
        let links = integration.repository().links(integration.dir()).await?;
        if links.contains(&in_lore(path)) {
            let why = "it is a symbolic link of the project, which is checked out as a file with its target";
            return Err(HallError::Invalid(format!("{path:?} is not written: {why}")));
        }
        let write = move |dir: &std::path::Path| artifact::write(dir, &written, &content, (&new, &temporary));
        integration.with_files(write).await??;
        integration.commit(&format!("Edit artifact: {path}\n")).await?;
        self.check_dependencies(Some(project)).await
    }

    /// How many files below `.lore/` of a project are not committed yet.
    ///
    /// # Errors
    /// Where there is no such project, or git cannot tell.
    pub async fn loose_documents(&self, project: &str) -> Result<usize, HallError> {
        let found = self.project(project)?;
        let loose = self.projects.integration(&self.home, &found).await?.loose().await?;
        Ok(loose.iter().filter(|file| file.split('/').next() == Some(LORE)).count())
    }

    /// Commits what is not committed yet in the integration worktree of a project. `false`: there is nothing.
    ///
    /// # Errors
    /// As [`Self::loose_documents`], and for a message that is empty or too long.
    pub async fn commit_documents(self: &Arc<Self>, project: &str, message: &str) -> Result<bool, HallError> {
        let (found, message) = (self.project(project)?, message.trim());
        if message.is_empty() {
            return Err(HallError::Invalid("Commit message is required".to_owned()));
        }
        if message.chars().count() > MAX_MESSAGE_CHARS {
            let why = format!("a commit's message has at most {MAX_MESSAGE_CHARS} characters");
            return Err(HallError::Invalid(why));
        }
        // Merges know by such a line what was merged before.
        if message.lines().any(|line| line.starts_with("Squashed-From")) {
            return Err(HallError::Invalid("no line of a commit's message begins with Squashed-From".to_owned()));
        }
        let integration = self.projects.integration(&self.home, &found).await?;
        let committed = integration.commit(&format!("{message}\n")).await?;
        self.check_dependencies(Some(project)).await?;
        Ok(committed)
    }

    /// The worktree that has the record of that path, where that is one of a commission under way.
    fn attempt_with(&self, project: &str, path: &str) -> Option<PathBuf> {
        let now = self.cell(dependencies::commission(path)?.as_str()).ok()?.now();
        now.worktree_dir.clone().filter(|_| now.status.is_active() && now.project_name == project)
    }

    /// The worktree that has the documents of a project in which work is permitted. The name of another one may lead anywhere.
    fn documents(&self, project: &str) -> Result<PathBuf, HallError> {
        match &self.project(project)?.permit {
            Ok(_) => Ok(self.home.integration(project)),
            Err(why) => Err(HallError::Conflict(format!("project {project:?} cannot be worked on: {why}"))),
        }
    }
}
