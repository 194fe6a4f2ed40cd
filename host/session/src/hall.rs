//! Defines the hall as a component reads it: its workers, commissions and meetings.

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
    /// Its title for people.
    pub title: String,
    /// A description of its work.
    pub description: String,
    /// Its granted capabilities and tools, by name.
    pub can: Vec<String>,
}

/// A meeting, or a request for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HallMeeting {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// Its title.
    pub title: String,
    /// Its state: `requested`, `open`, `closed`, `declined`.
    pub status: String,
    /// The worker's name for people.
    pub worker: String,
    /// Its agenda.
    pub agenda: String,
    /// The notes of a closed meeting.
    pub notes: String,
    /// Paths of its artifacts below `.lore/`.
    pub artifacts: Vec<String>,
    /// The time at which it was opened, else requested.
    pub started: String,
}

/// Reads a hall.
#[async_trait]
pub trait HallView: Send + Sync {
    /// The workers that can be commissioned now.
    async fn workers(&self) -> Result<Vec<HallWorker>, ToolError>;

    /// The commissions of a project or of all projects: waiting, running, failed and ended ones. Texts are cut.
    async fn commissions(&self, project: Option<&str>) -> Result<Vec<CommissionView>, ToolError>;

    /// The meetings of a project or of all projects, and the requests for them, newest first. Texts are cut.
    async fn meetings(&self, project: Option<&str>) -> Result<Vec<HallMeeting>, ToolError>;

    /// One commission.
    async fn commission(&self, id: &str) -> Result<Option<CommissionView>, ToolError>;
}
