//! Sums the usage of a member's jobs and memory, from its files.
//!
//! It only reads files, and needs no owner of the member.

pub(crate) mod over_time;
pub(crate) mod removed;
mod sum;

use std::{collections::BTreeMap, io};

use cap_std::fs::Dir;
use guild_contract::{JobStatus, Limits, Meta};
use jiff::Timestamp;
use serde::Serialize;

pub use self::sum::Sum;
use crate::{MemoryStore, Records};

/// The usage of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberUsage {
    /// Ended jobs, with removed ones, by runtime and models.
    pub jobs: Vec<Sum>,
    /// Compactions of its memory, by runtime and models.
    pub compactions: Vec<Sum>,
    /// Running jobs. Their usage is written to `meta.json` when they end.
    pub running: u64,
    /// The number of jobs that were removed by `guild delete` or `guild prune`.
    pub removed: u64,
    /// Ended jobs without a record of their usage, such as the original's.
    pub unrecorded: u64,
    /// Jobs whose `meta.json` cannot be read.
    pub unreadable: u64,
}

/// Sums by runtime and models.
type Sums = BTreeMap<(String, Vec<String>), Sum>;

fn of<'a>(sums: &'a mut Sums, agent: &str, models: &[String]) -> &'a mut Sum {
    let (agent, models) = (agent.to_owned(), models.to_vec());
    let sum = sums.entry((agent.clone(), models.clone()));
    sum.or_insert_with(|| Sum { agent, models, ..Sum::default() })
}

/// The usage of the member in the directory `member`, by jobs and compactions that ended at `since` or later, or by all
/// without `since`. Removed jobs count, too.
///
/// # Errors
///
/// Returns an error when `jobs/`, or a ledger, cannot be read.
pub fn of_member(member: &Dir, since: Option<Timestamp>, limits: &Limits) -> io::Result<MemberUsage> {
    let (mut usage, mut jobs, mut compactions) = (MemberUsage::default(), Sums::new(), Sums::new());
    let counts = |ended: &str| {
        let ended = ended.parse::<Timestamp>().ok();
        // A job whose time does not parse, as after an edit, counts, so that no cost is hidden.
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
