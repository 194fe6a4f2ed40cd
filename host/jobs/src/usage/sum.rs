//! Sums the usage of several jobs.

use guild_contract::JobUsage;
use serde::{Deserialize, Serialize};

/// The usage of jobs or compactions with the same runtime and models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sum {
    /// The runtime.
    pub agent: String,
    /// The models that answered, in the order of their first use; empty if the runtime has none.
    pub models: Vec<String>,
    /// The number of jobs or compactions.
    pub count: u64,
    /// Turns of a model.
    pub turns: u64,
    /// Tokens that were sent, with cached ones.
    pub input_tokens: u64,
    /// The sent tokens that the provider had in its cache.
    pub cached_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// The known US dollars.
    pub cost_usd: f64,
    /// The number of jobs or compactions with a partly unknown cost, whose unknown part is not in `cost_usd`.
    pub unknown_costs: u64,
    /// The sum of their durations in seconds.
    pub wall_seconds: f64,
}

impl Sum {
    /// Adds the usage of a job or a compaction.
    pub fn add(&mut self, used: &JobUsage) {
        self.plus(&Self {
            count: 1,
            turns: used.usage.turns.into(),
            input_tokens: used.usage.input_tokens,
            cached_tokens: used.usage.cached_tokens,
            output_tokens: used.usage.output_tokens,
            cost_usd: used.usage.known_cost(),
            unknown_costs: used.usage.cost_usd.is_none().into(),
            wall_seconds: used.wall_seconds,
            ..Self::default()
        });
    }

    /// Adds another sum, of any runtime and models.
    pub fn plus(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd += other.cost_usd;
        self.unknown_costs = self.unknown_costs.saturating_add(other.unknown_costs);
        self.wall_seconds += other.wall_seconds;
    }
}
