//! Defines the data of a job in its files and on the wire (REQ-WD-11, REQ-WD-21).

pub mod bounds;
pub mod event;
pub mod retention;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::ids::JobId;

// A failed job has to be cancelled before it can be deleted (REQ-WD-17).
/// The status of a job. `running` changes to one of the others, which are final, except that a failed job can be
/// cancelled.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// The job's work is running, or waits for its turn.
    Running,
    /// The job has a result.
    Completed,
    /// The job ended without a result; `error` has the reason.
    Failed,
    /// A caller cancelled the job.
    Cancelled,
}

impl JobStatus {
    /// All statuses.
    pub const ALL: &'static [Self] = Self::VARIANTS;
    /// The statuses of a job that has ended.
    pub const ENDED: [Self; 3] = [Self::Completed, Self::Failed, Self::Cancelled];

    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `meta.json`: the job's authoritative record. Files of the original have the same format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The job, and the name of its directory.
    pub job_id: JobId,
    /// The status of the job.
    pub status: JobStatus,
    /// The short label of the dispatch (REQ-WD-6).
    pub description: String,
    /// The time at which the job was created: RFC 3339 in UTC.
    pub started_at: String,
    /// The time at which the job ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// The reason of the job's failure. It stays when a failed job is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The usage of the job's sessions; absent while the job runs, and in jobs of the original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<JobUsage>,
    /// The number of times that a host resumed the job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resumes: u32,
    /// The name of the token with which the job was dispatched, if there was one. The job's spending counts for the
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The way in which the job was last resumed, until it has run for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumption: Option<Resumption>,
    /// The earlier job that this one continues, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<JobId>,
    /// The key of the job's dispatch, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<DispatchKey>,
}

/// The key of a dispatch, by which the host knows a repeated one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchKey {
    /// The text of the caller.
    pub key: String,
    /// The SHA-256 of the other parameters, in hex. A dispatch with the same key and others is an error of the caller.
    pub params: String,
}

/// The way in which a job was resumed a short while ago. If the host stops now without a clean shutdown, the job is a
/// suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resumption {
    /// Other jobs were resumed at the same time, or the job has made a turn since. After a crash it is resumed alone.
    Together,
    /// No other job was resumed at the same time. After a crash it is held back.
    Alone,
    /// A host stopped while the job was resumed alone. The job does not run until a user resumes it.
    HeldBack,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The usage of a turn, a session, or all sessions of a job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The model's turns.
    pub turns: u32,
    /// Tokens sent, including those that the provider had in its cache.
    pub input_tokens: u64,
    /// Tokens sent that the provider had in its cache.
    pub cached_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// US dollars; null if the cost of some part is not known.
    pub cost_usd: Option<f64>,
    /// US dollars of the parts whose cost is known; present only if the cost of the whole is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub known_cost_usd: Option<f64>,
}

impl Default for Usage {
    /// No usage, at a cost of zero.
    fn default() -> Self {
        Self {
            turns: 0,
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            cost_usd: Some(0.0),
            known_cost_usd: None,
        }
    }
}

impl Usage {
    /// Adds other usage. An unknown cost makes the sum unknown, except for its known part.
    pub fn add(&mut self, other: &Self) {
        let known = self.known_cost() + other.known_cost();
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|_| known);
        self.known_cost_usd = self.cost_usd.is_none().then_some(known);
    }

    /// The dollars that are known to be spent, a lower bound of the cost.
    pub fn known_cost(&self) -> f64 {
        self.cost_usd.or(self.known_cost_usd).unwrap_or(0.0)
    }

    /// Adds a part of unknown cost.
    #[must_use]
    pub fn and_unknown(self) -> Self {
        Self { cost_usd: None, known_cost_usd: Some(self.known_cost()), ..self }
    }

    /// All tokens, sent and received.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// The usage of a job's sessions, with their runtime and models: the sum over all of them, up to the last turn while
/// the job
/// runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobUsage {
    /// The runtime of the job's sessions.
    pub agent: String,
    /// The models that answered.
    pub models: Vec<String>,
    /// The sum over all sessions.
    #[serde(flatten)]
    pub usage: Usage,
    /// Seconds for which the job's work was running, without the time in the queue.
    pub wall_seconds: f64,
    /// Whether the job waits for a free session of its runtime; absent if it does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

// REQ-WD-13.
/// A judgment call that the worker made on its own, for a person to review.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The open question.
    pub question: String,
    /// The decision.
    pub decision: String,
    /// The reason for the decision.
    pub reasoning: String,
}
