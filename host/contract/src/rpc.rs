//! Methods, parameters and results of `worker/*` (REQ-WD-3, REQ-WD-5 to REQ-WD-17), and JSON-RPC's codes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ids::JobId,
    job::{Decision, JobStatus, JobUsage},
};

/// The names of the six worker methods.
pub mod method {
    /// Accept a task, answer with a job id.
    pub const DISPATCH: &str = "worker/dispatch";
    /// Enumerate jobs.
    pub const LIST: &str = "worker/list";
    /// One job's state.
    pub const STATUS: &str = "worker/status";
    /// A completed job's output.
    pub const RESULT: &str = "worker/result";
    /// End a running job.
    pub const CANCEL: &str = "worker/cancel";
    /// Remove a completed or cancelled job.
    pub const DELETE: &str = "worker/delete";
}

/// JSON-RPC error codes.
pub mod code {
    /// The body is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The body is JSON, but no request.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method here.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters are not acceptable; the message says which and why.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The host could not do it.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// The host is at one of its limits; the same request may succeed later.
    pub const BUSY: i32 = -32000;
    /// The caller's token is not for this; of a request that stands alone, HTTP 403 says so.
    pub const FORBIDDEN: i32 = -32003;
}

/// Parameters of `worker/dispatch` (REQ-WD-5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchParams {
    /// A short label, for lists (REQ-WD-6). Not empty.
    pub description: String,
    /// The whole prompt. Not empty.
    pub task: String,
    /// What the plugin defines; an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// The runtime of the job's sessions, where the operator lets callers choose. The host's own addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Result of `worker/dispatch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatched {
    /// The new job.
    pub job_id: JobId,
}

/// How much `worker/list` tells (REQ-WD-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// Id and status.
    #[default]
    Simple,
    /// Description and summary too.
    Detailed,
}

/// Parameters of `worker/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListParams {
    /// How much to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// A glob over the whole description; empty is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// One job in the answer to `worker/list` (REQ-WD-9, REQ-WD-10).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The job.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// Only in detailed lists.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub details: Option<ListedDetails>,
}

/// What a detailed list adds (REQ-WD-10).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedDetails {
    /// The label of the dispatch.
    pub description: String,
    /// The first KiB of the worker's own summary; null while it has written none.
    pub summary: Option<String>,
}

/// Result of `worker/list`: newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    /// The jobs that match.
    pub jobs: Vec<Listed>,
}

/// Parameters of `worker/status`, `result`, `cancel` and `delete`.
///
/// The id is any text: one that is not a job of this member is an unknown job, whatever it looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobParams {
    /// The job.
    pub job_id: String,
}

/// Result of `worker/status`: nine fields, nulls written out (REQ-WD-11), and what the job used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The job.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// The label of the dispatch.
    pub description: String,
    /// The worker's own summary; null while it has written none.
    pub summary: Option<String>,
    /// What only a person can answer (REQ-WD-12); null if there is nothing.
    pub questions: Option<Vec<String>>,
    /// Judgment calls (REQ-WD-13); null if there are none.
    pub decisions: Option<Vec<Decision>>,
    /// Why it failed.
    pub error: Option<String>,
    /// RFC 3339 in UTC.
    pub started_at: String,
    /// RFC 3339 in UTC; null while it runs.
    pub completed_at: Option<String>,
    /// What its sessions used; absent where that is not known, as in jobs of the original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<JobUsage>,
}

/// Result of `worker/result` (REQ-WD-15).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultView {
    /// The job.
    pub job_id: JobId,
    /// The worker's text.
    pub output: String,
    /// Files under the job's `artifacts/`, relative to the job's directory, sorted; null if there are none.
    pub artifacts: Option<Vec<String>>,
}

/// Result of `worker/cancel` (REQ-WD-16).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelView {
    /// The job.
    pub job_id: JobId,
    /// What it is now: `cancelled`, or `completed` where there was nothing to cancel.
    pub status: JobStatus,
}

/// Result of `worker/delete` (REQ-WD-17).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The job that was.
    pub job_id: JobId,
    /// Always true.
    pub deleted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_writes_its_nulls_out() {
        let view = StatusView {
            job_id: "j".parse().unwrap(),
            status: JobStatus::Running,
            description: "d".into(),
            summary: None,
            questions: None,
            decisions: None,
            error: None,
            started_at: "2026-01-01T00:00:00Z".into(),
            completed_at: None,
            usage: None,
        };
        assert_eq!(
            serde_json::to_string(&view).unwrap(),
            r#"{"jobId":"j","status":"running","description":"d","summary":null,"questions":null,"decisions":null,"error":null,"startedAt":"2026-01-01T00:00:00Z","completedAt":null}"#
        );
    }

    #[test]
    fn a_simple_list_has_two_fields_and_a_detailed_one_four() {
        let mut listed = Listed { job_id: "j".parse().unwrap(), status: JobStatus::Completed, details: None };
        assert_eq!(serde_json::to_string(&listed).unwrap(), r#"{"jobId":"j","status":"completed"}"#);
        listed.details = Some(ListedDetails { description: "d".into(), summary: None });
        let text = serde_json::to_string(&listed).unwrap();
        assert_eq!(text, r#"{"jobId":"j","status":"completed","description":"d","summary":null}"#);
        assert_eq!(serde_json::from_str::<Listed>(&text).unwrap(), listed);
    }
}
