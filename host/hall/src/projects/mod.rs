//! Manages the projects of a hall: their settings, their `claude/main`, and the state of their work.
//!
//! The module is above meetings and commissions: a sync or a pull request waits for both.

mod briefing;
pub mod inspect;
mod pulls;
mod settings;
mod tidy;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use guild_contract::{
    OperationError,
    hall::{ProjectSettings, ProjectView},
};

use crate::{commissions::Commissions, core::Core, meetings::Meetings};

/// The projects of a hall.
pub struct Projects {
    core: Arc<Core>,
    meetings: Arc<Meetings>,
    commissions: Arc<Commissions>,
    /// The time after which branches of finished work are removed, if they are.
    tidy_after: Mutex<Option<Duration>>,
}

impl Projects {
    pub(crate) fn new(core: Arc<Core>, meetings: Arc<Meetings>, commissions: Arc<Commissions>) -> Self {
        Self { core, meetings, commissions, tidy_after: Mutex::default() }
    }

    /// The projects, in the order of `config.yaml`.
    ///
    /// # Errors
    ///
    /// Returns an error when `config.yaml` cannot be read.
    pub fn list(&self) -> Result<Vec<ProjectView>, OperationError> {
        self.core.projects.views(&self.core.home)
    }

    /// The settings of a project in `config.yaml`.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub fn settings_of(&self, name: &str) -> Result<ProjectSettings, OperationError> {
        Ok(self.core.project(name)?.settings.clone())
    }
}
