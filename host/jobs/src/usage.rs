//! What the jobs and the memory of a member have used, summed from its files.
//!
//! The files are read as they are: no owner is asked, none is needed, and nothing is repaired.

use std::{collections::BTreeMap, io};

use cap_std::fs::Dir;
use guild_contract::{JobStatus, JobUsage, Limits, Meta};
use jiff::Timestamp;
use serde::Serialize;

use crate::{MemoryStore, Records};

/// What a member has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberUsage {
    /// Jobs that have ended, by runtime and models.
    pub jobs: Vec<Sum>,
    /// Compactions of its memory, by runtime and models.
    pub compactions: Vec<Sum>,
    /// Jobs that run. What they use is written into their `meta.json` when they end.
    pub running: u64,
    /// Jobs that have ended and say nothing of what they used, as those of the original.
    pub unrecorded: u64,
    /// Jobs whose `meta.json` cannot be read.
    pub unreadable: u64,
}

/// What was used by those of the same runtime and models.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sum {
    /// The runtime.
    pub agent: String,
    /// The models that answered, in the order of their first use; none where it has none.
    pub models: Vec<String>,
    /// How many jobs, or compactions.
    pub count: u64,
    /// Turns of a model.
    pub turns: u64,
    /// Tokens that were sent, cached ones among them.
    pub input_tokens: u64,
    /// Of those, what the provider had in its cache.
    pub cached_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
    /// US dollars, as far as they are known.
    pub cost_usd: f64,
    /// How many there are of which a part of the cost is not known: it comes on top.
    pub unknown_costs: u64,
    /// Seconds for which they were under way, one after the other.
    pub wall_seconds: f64,
}

impl Sum {
    /// Adds what one job, or one compaction, used.
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

    /// Adds another sum, whatever its runtime and models are.
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

/// Sums up by runtime and models.
#[derive(Default)]
struct Sums(BTreeMap<(String, Vec<String>), Sum>);

impl Sums {
    fn add(&mut self, used: JobUsage) {
        let (agent, models) = (used.agent.clone(), used.models.clone());
        let sum = self.0.entry((agent.clone(), models.clone()));
        sum.or_insert_with(|| Sum { agent, models, ..Sum::default() }).add(&used);
    }

    fn into_vec(self) -> Vec<Sum> {
        self.0.into_values().collect()
    }
}

/// What a member has used: by the jobs, and the compactions, that ended at `since` or later; by all of them without it.
/// `member` is the member's directory.
///
/// # Errors
/// Where `jobs/`, or the ledger of compactions, cannot be read.
pub fn of_member(member: &Dir, since: Option<Timestamp>, limits: &Limits) -> io::Result<MemberUsage> {
    let (mut usage, mut jobs, mut compactions) = (MemberUsage::default(), Sums::default(), Sums::default());
    let counts = |ended: &str| {
        let ended = ended.parse::<Timestamp>().ok();
        // A moment that a person misspelled is no reason to hide a cost.
        since.zip(ended).is_none_or(|(since, ended)| ended >= since)
    };
    let records = Records::open(member)?.map(|records| records.all(limits)).transpose()?;
    for (id, read) in records.into_iter().flatten() {
        match read {
            Ok(Meta { status: JobStatus::Running, .. }) => usage.running += 1,
            Ok(meta) if !counts(meta.completed_at.as_ref().unwrap_or(&meta.started_at)) => {}
            Ok(Meta { usage: Some(used), .. }) => jobs.add(used),
            Ok(_) => usage.unrecorded += 1,
            Err(e) => {
                tracing::debug!(job = %id, "its meta.json cannot be read: {e}");
                usage.unreadable += 1;
            }
        }
    }
    for compaction in MemoryStore::compactions(member)? {
        if counts(&compaction.at) {
            compactions.add(compaction.usage);
        }
    }
    Ok(MemberUsage { jobs: jobs.into_vec(), compactions: compactions.into_vec(), ..usage })
}
