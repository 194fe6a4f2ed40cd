//! What the jobs and the memory of a member have used, summed from its files.
//!
//! It only reads the files, and needs no owner of the member.

use std::{collections::BTreeMap, io};

use cap_std::fs::Dir;
use guild_contract::{JobStatus, JobUsage, Limits, Meta};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{MemoryStore, Records, removed};

/// What a member has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberUsage {
    /// Jobs that have ended, those that were removed since among them, by runtime and models.
    pub jobs: Vec<Sum>,
    /// Compactions of its memory, by runtime and models.
    pub compactions: Vec<Sum>,
    /// Jobs that run. What they use is written into their `meta.json` when they end.
    pub running: u64,
    /// How many of the jobs were removed since, by `guild delete` or `guild prune`.
    pub removed: u64,
    /// Jobs that have ended without a record of what they used, as those of the original.
    pub unrecorded: u64,
    /// Jobs whose `meta.json` cannot be read.
    pub unreadable: u64,
}

/// What the jobs, or compactions, with the same runtime and models used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sum {
    /// The runtime.
    pub agent: String,
    /// The models that answered, in the order of their first use; empty if the runtime has none.
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
    /// How many have a cost that is partly unknown, which is not in `cost_usd`.
    pub unknown_costs: u64,
    /// The sum of their durations in seconds.
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

/// Sums by runtime and models.
type Sums = BTreeMap<(String, Vec<String>), Sum>;

fn of<'a>(sums: &'a mut Sums, agent: &str, models: &[String]) -> &'a mut Sum {
    let (agent, models) = (agent.to_owned(), models.to_vec());
    let sum = sums.entry((agent.clone(), models.clone()));
    sum.or_insert_with(|| Sum { agent, models, ..Sum::default() })
}

/// What the member in the directory `member` has used: by the jobs and the compactions that ended at `since` or later; by all of
/// them without `since`. Jobs that were removed count, too.
///
/// # Errors
/// If `jobs/`, or a ledger, cannot be read.
pub fn of_member(member: &Dir, since: Option<Timestamp>, limits: &Limits) -> io::Result<MemberUsage> {
    let (mut usage, mut jobs, mut compactions) = (MemberUsage::default(), Sums::new(), Sums::new());
    let counts = |ended: &str| {
        let ended = ended.parse::<Timestamp>().ok();
        // A time that does not parse, as after an edit, must not hide a cost.
        since.zip(ended).is_none_or(|(since, ended)| ended >= since)
    };
    let records = Records::open(member)?.map(|records| records.all(limits)).transpose()?;
    for (id, read) in records.into_iter().flatten() {
        match read {
            Ok(Meta { status: JobStatus::Running, .. }) => usage.running += 1,
            Ok(meta) if !counts(meta.completed_at.as_ref().unwrap_or(&meta.started_at)) => {}
            Ok(Meta { usage: Some(used), .. }) => of(&mut jobs, &used.agent, &used.models).add(&used),
            Ok(_) => usage.unrecorded += 1,
            Err(e) => {
                tracing::debug!(job = %id, "its meta.json cannot be read: {e}");
                usage.unreadable += 1;
            }
        }
    }
    for line in removed::read(member)? {
        if since.is_none_or(|since| line.is_since(since)) {
            of(&mut jobs, &line.sum.agent, &line.sum.models).plus(&line.sum);
            usage.removed += line.sum.count;
        }
    }
    for compaction in MemoryStore::compactions(member)? {
        if counts(&compaction.at) {
            let used = &compaction.usage;
            of(&mut compactions, &used.agent, &used.models).add(used);
        }
    }
    let sums = |sums: Sums| sums.into_values().collect();
    Ok(MemberUsage { jobs: sums(jobs), compactions: sums(compactions), ..usage })
}
