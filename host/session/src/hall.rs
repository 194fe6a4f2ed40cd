//! The hall as a component reads it: its workers, commissions and meetings.

use async_trait::async_trait;

use crate::tools::ToolError;

/// A worker that can be commissioned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HallWorker {
    /// Its key in the roster.
    pub key: String,
    /// Its name for people, by which it is commissioned.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// What it does.
    pub description: String,
    /// What it was granted, by the names of grants and tools.
    pub can: Vec<String>,
}

/// A commission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HallCommission {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// What it is about.
    pub title: String,
    /// Where it is: `pending`, `in_progress` and so on.
    pub status: String,
    /// The worker's name for people.
    pub worker: String,
    /// Whether the manager made it.
    pub by_manager: bool,
    /// What has to be there first.
    pub dependencies: Vec<String>,
    /// What is asked.
    pub prompt: String,
    /// Where the work stands, in the worker's words.
    pub progress: String,
    /// The result.
    pub result: String,
    /// When it changed last: RFC 3339 in UTC.
    pub changed: String,
    /// The job of its last attempt.
    pub job: Option<String>,
}

/// Reads a hall.
#[async_trait]
pub trait HallView: Send + Sync {
    /// The workers that can be commissioned now.
    async fn workers(&self) -> Result<Vec<HallWorker>, ToolError>;

    /// The commissions of a project, or of all: what waits, what runs, what went wrong, what is over. Its texts are cut.
    async fn commissions(&self, project: Option<&str>) -> Result<Vec<HallCommission>, ToolError>;

    /// One commission.
    async fn commission(&self, id: &str) -> Result<Option<HallCommission>, ToolError>;
}
