//! Defines `worker/usage`: what the jobs of a member used over time.
//!
//! Callers read these doc comments in the JSON Schemas that are made from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    job::{JobStatus, JobUsage},
    operation::{Access, Operation, Row},
    rpc::method,
};

/// The most periods in an answer to `worker/usage`.
pub const PERIODS: i64 = 100;
/// The upper bounds of [`Amounts::durations`] in seconds. The last number of jobs is of those above all bounds.
pub const DURATION_BOUNDS: [u32; 14] = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200];

/// The length of the periods of `worker/usage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// An hour.
    Hour,
    /// A day of UTC.
    Day,
}

impl Period {
    /// Its length in seconds.
    pub fn seconds(self) -> i64 {
        match self {
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }
}

/// Parameters of `worker/usage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageParams {
    /// The time from which on jobs count by their end: RFC 3339. The default is 30 days before `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// The time until which jobs count by their end: RFC 3339. The default is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,
    /// The length of the periods. The default is `hour` for up to three days, and else `day`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
}

/// Result of `worker/usage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// The start of the first period.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// The end of the last period.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// The length of the periods.
    pub period: Period,
    /// The amounts by period, runtime and models; periods without any are left out. Deleted jobs count. Models beyond
    /// the ten most used ones are together under the runtime `other`.
    pub used: Vec<Used>,
    /// The number of running jobs, which do not count yet.
    pub running: u32,
    /// The number of jobs that do not count because their record cannot be read.
    pub unreadable: u32,
}

/// The amounts of one period, runtime and set of models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Used {
    /// The start of the period: RFC 3339 in UTC. For deleted jobs whose end is not known that precisely any more it is
    /// shorter, such as `2026-01`; it is empty if the end is unknown.
    pub at: String,
    /// The runtime; empty if the jobs have no record of their usage.
    pub agent: String,
    /// The models that answered; empty if the runtime has none.
    pub models: Vec<String>,
    /// The amounts.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// The sum of the usage of jobs and of compactions of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Jobs that ended with a result.
    pub completed: u64,
    /// Jobs that ended without a result.
    pub failed: u64,
    /// Cancelled jobs.
    pub cancelled: u64,
    /// Deleted jobs whose last status was not recorded.
    pub unknown: u64,
    /// Compactions of the member's memory.
    pub compactions: u64,
    /// Turns of a model.
    pub turns: u64,
    /// Tokens sent, including those that the provider had in its cache.
    pub input_tokens: u64,
    /// Tokens sent that the provider had in its cache.
    pub cached_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// The known US dollars.
    pub cost_usd: f64,
    /// The number of jobs and compactions with a partly unknown cost, whose unknown part is not in `costUsd`.
    pub unknown_costs: u64,
    /// Seconds for which the jobs' work was running, without the time in the queue.
    pub wall_seconds: f64,
    /// The number of jobs by those seconds: at most 1, 2, 5, 10 and 30 seconds; 1, 2, 5, 10 and 30 minutes; 1, 2, 4
    /// and 12 hours; and more. Deleted jobs of which only a sum is kept are left out.
    pub durations: [u64; DURATION_BOUNDS.len() + 1],
}

impl Amounts {
    /// The number of jobs.
    pub fn jobs(&self) -> u64 {
        [self.completed, self.failed, self.cancelled, self.unknown]
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The tokens sent and received.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Counts jobs by their last status, if it is known.
    pub fn count(&mut self, status: Option<JobStatus>, jobs: u64) {
        let count = match status {
            Some(JobStatus::Completed) => &mut self.completed,
            Some(JobStatus::Failed) => &mut self.failed,
            Some(JobStatus::Cancelled) => &mut self.cancelled,
            Some(JobStatus::Running) | None => &mut self.unknown,
        };
        *count = count.saturating_add(jobs);
    }

    /// Adds the duration of one job to the histogram.
    pub fn lasted(&mut self, seconds: f64) {
        let bucket = DURATION_BOUNDS.iter().position(|bound| seconds <= f64::from(*bound));
        if let Some(count) = self.durations.get_mut(bucket.unwrap_or(DURATION_BOUNDS.len())) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the tokens and the cost of a job or a compaction.
    pub fn add(&mut self, used: &JobUsage) {
        self.plus(&Self {
            turns: used.usage.turns.into(),
            input_tokens: used.usage.input_tokens,
            cached_tokens: used.usage.cached_tokens,
            output_tokens: used.usage.output_tokens,
            cost_usd: used.usage.known_cost(),
            unknown_costs: used.usage.cost_usd.is_none().into(),
            ..Self::default()
        });
    }

    /// Adds other amounts.
    pub fn plus(&mut self, other: &Self) {
        let counts = [
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.cancelled, other.cancelled),
            (&mut self.unknown, other.unknown),
            (&mut self.compactions, other.compactions),
            (&mut self.turns, other.turns),
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.cached_tokens, other.cached_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.unknown_costs, other.unknown_costs),
        ];
        for (count, more) in counts.into_iter().chain(self.durations.iter_mut().zip(other.durations)) {
            *count = count.saturating_add(more);
        }
        self.cost_usd += other.cost_usd;
        self.wall_seconds += other.wall_seconds;
    }

    /// The bound within which this share of the jobs ended, in seconds: infinite above the last bound, and none
    /// without jobs.
    pub fn share_within(&self, share: f64) -> Option<f64> {
        let all = self.durations.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let wanted = share * all as f64;
        let (mut below, bounds) = (0_u64, DURATION_BOUNDS.map(f64::from).into_iter().chain([f64::INFINITY]));
        let found = self.durations.iter().zip(bounds).find(|(count, _)| {
            below = below.saturating_add(**count);
            below as f64 >= wanted
        });
        found.filter(|_| all > 0).map(|(_, bound)| bound)
    }
}

/// Reads the usage of a member over time.
#[derive(Debug)]
pub struct ReadUsage;

impl Operation for ReadUsage {
    type Input = UsageParams;
    type Output = UsageView;
    const ROW: Row = Row::new(
        method::USAGE,
        Access::Reads,
        "Returns what the member's jobs, and compactions of its memory, used over time: the number of jobs by their last \
         status, tokens, cost and durations, by hour or day, runtime and models. Deleted jobs count.",
    )
    .refuses("`since` or `until` is not a time, or there are more than 100 periods between them.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_jobs_ended_within_the_bound_of_its_bucket() {
        let mut amounts = Amounts::default();
        assert_eq!(amounts.share_within(0.5), None);
        [0.2, 1.0, 4.0, 50.0].into_iter().for_each(|seconds| amounts.lasted(seconds));
        assert_eq!([0.5, 0.75, 0.95].map(|share| amounts.share_within(share)), [Some(1.0), Some(5.0), Some(60.0)]);
        amounts.lasted(1e9);
        assert_eq!(amounts.share_within(0.95), Some(f64::INFINITY));
        let mut twice = amounts.clone();
        twice.plus(&amounts);
        assert_eq!((twice.durations[0], twice.durations[14]), (4, 2));
    }
}
