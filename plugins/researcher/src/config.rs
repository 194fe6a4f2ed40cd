//! What a caller can set, in a dispatch's `config`.

use guild_plugin_sdk::{Bounds, Refusal, Request, config};

/// A dispatch's `config`. Every key is optional.
pub(crate) struct Config {
    /// `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`, where the caller sets them (REQ-WD-32).
    pub(crate) bounds: Bounds,
    /// `model`: the model's name, as the host's runtime knows it.
    pub(crate) model: Option<String>,
    /// `focus`: what to concentrate on.
    focus: Option<String>,
}

impl Config {
    pub(crate) fn of(request: &Request) -> Result<Self, Refusal> {
        let mut config = config::Config::of(request)?;
        let parsed = Self { bounds: config.bounds()?, model: config.text("model")?, focus: config.text("focus")? };
        config.finish()?;
        Ok(parsed)
    }

    /// The task, and the focus where there is one.
    pub(crate) fn task(&self, task: &str) -> String {
        match &self.focus {
            Some(focus) => format!("{task}\n\nFocus on: {focus}"),
            None => task.to_owned(),
        }
    }
}
