//! Registering projects.

use std::path::Path;

use super::{Hall, blocking};
use crate::{
    error::HallError,
    project::{Projects, check_name},
    settings::ProjectSettings,
    view::ProjectView,
};

/// What is to be registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewProject {
    /// Its name.
    pub name: String,
    /// The top directory of the user's working tree.
    pub path: String,
    /// The branch that work begins from; found where it is `None`.
    pub branch: Option<String>,
}

impl Hall {
    /// Examines a project and adds it to `config.yaml`, without making anything in it. The operator's permission is not
    /// given by this.
    ///
    /// # Errors
    /// Why it cannot be a project.
    pub async fn add_project(&self, new: NewProject) -> Result<ProjectView, HallError> {
        check_name(&new.name)?;
        let git = self.projects.git().await?;
        let repository = guild_git::Repository::open(git, Path::new(&new.path), new.branch.as_deref()).await;
        let repository = repository.map_err(|e| HallError::Invalid(e.to_string()))?;
        let (path, branch) = (repository.path().display().to_string(), repository.default_branch().to_owned());
        let (settings, _) = self.projects.now(&self.home)?;
        if let Some(known) = settings.projects().iter().find(|known| known.path == path && known.name != new.name) {
            return Err(HallError::Conflict(format!("{path} is already registered as project '{}'", known.name)));
        }
        let project = ProjectSettings {
            name: new.name.clone(),
            path: path.clone(),
            default_branch: Some(branch),
            ..ProjectSettings::default()
        };
        let settings = settings.with(&project)?;
        let home = self.home.clone();
        blocking(move || Projects::write(&home, &settings)).await?;
        Ok(ProjectView { name: new.name, path, group: None, status: "registered", problem: None })
    }

    /// Takes a project out of `config.yaml`. Its branches, worktrees and records stay.
    ///
    /// # Errors
    /// Where there is none, or work is under way in it.
    pub async fn remove_project(&self, name: &str) -> Result<(), HallError> {
        let (settings, _) = self.projects.now(&self.home)?;
        if self.all().iter().any(|cell| cell.now().project_name == name && cell.now().status.is_active()) {
            return Err(HallError::Conflict(format!(
                "project '{name}' has active activities; stop them before deregistering"
            )));
        }
        let settings = settings.without(name)?;
        let home = self.home.clone();
        blocking(move || Projects::write(&home, &settings)).await
    }
}
