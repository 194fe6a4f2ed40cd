//! Reads the configuration of a hall. `config.yaml` is read whenever it has changed, so a change takes effect without a
//! request.

use std::path::Path;

use guild_contract::{
    OperationError,
    hall::{Reloaded, Validation},
};

use super::Projects;
use crate::{
    blocking::blocking,
    home::{
        project_list::{Project, ProjectList},
        settings::Settings,
    },
    offline::register,
};

/// The most characters of a project's group.
const GROUP_CHARS: usize = 200;

impl Projects {
    /// The settings in `config.yaml`.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be read.
    pub fn settings(&self) -> Result<Settings, OperationError> {
        Ok(self.core.projects.now(&self.core.home)?.0)
    }

    /// Reads `config.yaml` now, and returns the projects that are new since the last request for projects.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be used; its previous content then stays in effect.
    pub async fn reload(&self) -> Result<Reloaded, OperationError> {
        let home = self.core.home.clone();
        let read = blocking(move || ProjectList::read(&home)?.0).await;
        read.map_err(|e| OperationError::Conflict(format!("{e}; its previous content stays in effect")))?;
        let before = self.core.projects.known();
        let settings = self.settings()?;
        let names = settings.projects().iter().map(|project| project.name.clone());
        let new_projects = names.filter(|name| !before.contains(name)).collect();
        Ok(Reloaded { reloaded: true, project_count: settings.projects().len(), new_projects })
    }

    /// Changes the group of a project, and returns the stored group. An empty group removes the project from its group.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, the group is not one line, or `config.yaml` cannot be changed.
    pub async fn group(&self, name: &str, group: &str) -> Result<String, OperationError> {
        self.core.project(name)?;
        if group.chars().count() > GROUP_CHARS || group.contains(char::is_control) {
            return Err(OperationError::Invalid(format!("group is one line of at most {GROUP_CHARS} characters")));
        }
        let (home, name, group) = (self.core.home.path().to_owned(), name.to_owned(), group.trim().to_owned());
        blocking(move || {
            register::group_project(&home, &name, Some(group.as_str()).filter(|group| !group.is_empty()))?;
            Ok(group)
        })
        .await
    }

    /// Checks the current `config.yaml` and `guild.toml`, and the projects. The running configuration does not change.
    ///
    /// # Errors
    ///
    /// Returns an error when the host is starting or stopping.
    pub async fn validate(&self) -> Result<Validation, OperationError> {
        let (home, workers, permits) =
            (self.core.home.clone(), self.core.workers()?.clone(), self.core.projects.permits());
        blocking(move || {
            let mut found = Validation::default();
            found.issues.extend(workers.check_settings().err().map(|e| format!("guild.toml: {e}")));
            match ProjectList::read(&home).and_then(|(read, _)| read) {
                Ok(settings) => {
                    found.project_count = Some(settings.projects().len());
                    found.warnings.extend(settings.unused());
                    for settings in settings.projects() {
                        look(&Project::new(settings.clone(), &permits), &mut found);
                    }
                }
                Err(e) => found.issues.push(format!("Config error: {e}")),
            }
            found.valid = found.issues.is_empty();
            Ok(found)
        })
        .await
    }
}

/// Checks a project. It blocks.
fn look(project: &Project, found: &mut Validation) {
    let Project { settings, permit, .. } = project;
    let (name, path) = (&settings.name, Path::new(&settings.path));
    let shown = path.display();
    found.warnings.extend(permit.as_ref().err().map(|why| format!("{name}: {why}")));
    if !path.exists() {
        return found.issues.push(format!("{name}: path '{shown}' does not exist"));
    }
    if !path.is_dir() {
        return found.issues.push(format!("{name}: '{shown}' is not a directory"));
    }
    if !path.join(".git").exists() {
        found.issues.push(format!("{name}: '{shown}' does not contain a .git/ directory"));
    }
    if !path.join(".lore").exists() {
        found.warnings.push(format!("{name}: '{shown}' does not contain a .lore/ directory"));
    }
}
