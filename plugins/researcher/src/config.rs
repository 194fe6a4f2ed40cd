//! What a caller can set, in a dispatch's `config`.

use guild_plugin_sdk::{Bounds, Refusal, Request, config, smaller};

/// Bounds where the caller sets none (REQ-WD-32). Real research takes many more turns than one expects: 30 were too few.
const DEFAULT_TURNS: u32 = 150;
const DEFAULT_BUDGET_USD: f64 = 0.50;

/// A dispatch's `config`. Every key is optional.
pub(crate) struct Config {
    /// `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`.
    bounds: Bounds,
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

    /// The caller's bounds, else the defaults; never above the job's ceiling.
    pub(crate) fn bounds(&self, ceiling: Bounds) -> Bounds {
        let wanted = Bounds {
            max_turns: self.bounds.max_turns.or(Some(DEFAULT_TURNS)),
            max_budget_usd: self.bounds.max_budget_usd.or(Some(DEFAULT_BUDGET_USD)),
            deadline_seconds: self.bounds.deadline_seconds,
        };
        smaller(wanted, ceiling)
    }
}
