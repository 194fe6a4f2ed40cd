//! The hall as a component reads it: its workers, commissions and meetings.

use async_trait::async_trait;
use guild_contract::hall::CommissionView;

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

/// A meeting, or a request for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HallMeeting {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// What it is called.
    pub title: String,
    /// Where it is: `requested`, `open`, `closed`, `declined`.
    pub status: String,
    /// The worker's name for people.
    pub worker: String,
    /// What it is about.
    pub agenda: String,
    /// The notes, once it is closed.
    pub notes: String,
    /// Paths of artifacts below `.lore/` that belong to it.
    pub artifacts: Vec<String>,
    /// When it was opened, else asked for.
    pub started: String,
}

/// Reads a hall.
#[async_trait]
pub trait HallView: Send + Sync {
    /// The workers that can be commissioned now.
    async fn workers(&self) -> Result<Vec<HallWorker>, ToolError>;

    /// The commissions of a project, or of all: what waits, what runs, what went wrong, what is over. Its texts are cut.
    async fn commissions(&self, project: Option<&str>) -> Result<Vec<CommissionView>, ToolError>;

    /// The meetings of a project, or of all, and the requests for them; the newest first. Its texts are cut.
    async fn meetings(&self, project: Option<&str>) -> Result<Vec<HallMeeting>, ToolError>;

    /// One commission.
    async fn commission(&self, id: &str) -> Result<Option<CommissionView>, ToolError>;
}
