//! The reports of a worker on its commission.

use guild_contract::Decision;
use guild_session::tools::ToolError;

/// What a worker reports on its commission.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Where its work stands.
    Progress {
        /// In its words.
        summary: String,
    },
    /// It submitted its result.
    Result {
        /// The result.
        summary: String,
        /// The artifacts that belong to it, as paths below `.lore/`. They are there.
        artifacts: Vec<String>,
    },
    /// A question that only a person can answer.
    Question {
        /// The question.
        question: String,
    },
    /// A judgment call.
    Decision(Decision),
    /// It wrote an artifact.
    Artifact {
        /// Its path below `.lore/`.
        path: String,
    },
}

/// Where reports of one attempt go.
pub trait Reports: Send + Sync {
    /// Notes a report of a job that runs. It blocks. After a crash, a report that was noted can come again.
    ///
    /// # Errors
    /// What the worker is told: it may report again.
    fn report(&self, report: Report) -> Result<(), ToolError>;
}
