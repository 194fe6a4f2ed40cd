//! What a hall is configured by. `config.yaml` is read whenever it has changed, so nothing here makes a change take effect.

use std::path::Path;

use guild_contract::{
    OperationError,
    hall::{Reloaded, Validation},
};

use super::{Hall, blocking};
use crate::{
    project::{Project, Projects},
    settings::Settings,
};

impl Hall {
    /// What `config.yaml` says.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn settings(&self) -> Result<Settings, OperationError> {
        Ok(self.projects.now(&self.home)?.0)
    }

    /// Reads `config.yaml` now, and says which projects are new since somebody last asked for any.
    ///
    /// # Errors
    /// Where it cannot be used; what it said before still holds then.
    pub async fn reload(&self) -> Result<Reloaded, OperationError> {
        let home = self.home.clone();
        let read = blocking(move || Projects::read(&home)?.0).await;
        read.map_err(|e| OperationError::Conflict(format!("{e}; what it said before still holds")))?;
        let before = self.projects.known();
        let settings = self.settings()?;
        let names = settings.projects().iter().map(|project| project.name.clone());
        let new_projects = names.filter(|name| !before.contains(name)).collect();
        Ok(Reloaded { reloaded: true, project_count: settings.projects().len(), new_projects })
    }

    /// Reads `config.yaml` and `guild.toml` as they are now, and looks for the projects. Nothing is put in service.
    ///
    /// # Errors
    /// Where the host is starting, or stopping.
    pub async fn validate(&self) -> Result<Validation, OperationError> {
        let (home, workers, permits) = (self.home.clone(), self.workers()?.clone(), self.projects.permits());
        blocking(move || {
            let mut found = Validation::default();
            found.issues.extend(workers.check_settings().err().map(|e| format!("guild.toml: {e}")));
            match Projects::read(&home).and_then(|(read, _)| read) {
                Ok(settings) => {
                    found.project_count = Some(settings.projects().len());
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

/// Looks for a project. It blocks.
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
