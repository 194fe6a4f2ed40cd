//! What a job is, as its files and the wire spell it (REQ-WD-11, REQ-WD-21).

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// Where a job is. `running` ends in one of the other three; those are final, but for
/// `failed -> cancelled`, which lets a failed job be deleted (REQ-WD-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Its session, or its component's `run`, is under way.
    Running,
    /// It has a result.
    Completed,
    /// It ended without a result; `error` says why.
    Failed,
    /// A caller ended it.
    Cancelled,
}

impl JobStatus {
    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for JobStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `meta.json`: the job's authoritative record. Files of the original are read as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The job, and the name of its directory.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// The short label of the dispatch (REQ-WD-6).
    pub description: String,
    /// When it was made: RFC 3339 in UTC.
    pub started_at: String,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Why it failed. It stays when a failed job is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A judgment call that the worker made on its own, for a person to review (REQ-WD-13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What was open.
    pub question: String,
    /// What was decided.
    pub decision: String,
    /// Why.
    pub reasoning: String,
}
