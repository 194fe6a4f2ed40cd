//! Defines the reports of a worker on its commission.

use async_trait::async_trait;
use guild_contract::Decision;
use guild_session::tools::ToolError;

/// A worker's report on its commission.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The worker summarizes the progress.
    Progress {
        /// The summary in the worker's words.
        summary: String,
    },
    /// The worker submitted its result.
    Result {
        /// The result.
        summary: String,
        /// The paths of the result's existing artifacts, below `.lore/`.
        artifacts: Vec<String>,
    },
    /// A question that only a person can answer.
    Question {
        /// The question.
        question: String,
    },
    /// A judgment call.
    Decision(Decision),
    /// The worker wrote an artifact.
    Artifact {
        /// The artifact's path below `.lore/`.
        path: String,
    },
}

/// The receiver of one attempt's reports.
#[async_trait]
pub trait Reports: Send + Sync {
    /// Records a report of a running job. After a crash, a recorded report can be repeated.
    ///
    /// # Errors
    ///
    /// Returns the error for the worker, which may report again.
    async fn report(&self, report: Report) -> Result<(), ToolError>;
}
