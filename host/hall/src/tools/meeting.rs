//! Implements the tools of a session in a meeting (REQ-WKR-11): to link artifacts, to propose a follow-up, to record
//! progress, and to rename the meeting.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_session::{
    task::blocking,
    tools::{ToolCall, ToolDefinition, ToolError, Tools, parse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer, define, is_offered,
    lore::LoreTools,
    report::{Report, Reports},
};
use crate::blocking::in_background;

const LINK: &str = "link_artifact";
const FOLLOW_UP: &str = "propose_followup";
const SUMMARIZE: &str = "summarize_progress";
const RENAME: &str = "rename_meeting";

/// The most characters of a title.
const MAX_TITLE: usize = 200;

/// A worker's report in a meeting.
#[derive(Clone, Debug, PartialEq)]
pub enum MeetingReport {
    /// An artifact belongs to the meeting.
    Artifact {
        /// The path of the existing artifact below `.lore/`.
        path: String,
    },
    /// The worker proposes another meeting.
    FollowUp {
        /// The reason.
        reason: String,
        /// Paths of existing artifacts below `.lore/`.
        artifacts: Vec<String>,
    },
    /// The worker summarizes the progress.
    Progress {
        /// The summary in the worker's words.
        summary: String,
    },
    /// The worker renames the meeting.
    Title {
        /// The title.
        title: String,
    },
}

/// The receiver of one meeting's reports.
#[async_trait]
pub trait MeetingReports: Send + Sync {
    /// Records a report, and returns the answer for the worker.
    ///
    /// # Errors
    ///
    /// Returns the error for the worker.
    async fn report(&self, report: MeetingReport) -> Result<String, ToolError>;
}

/// Ignores the reports of artifacts, since a meeting's documents are merged with it.
pub(super) struct NoReports;

#[async_trait]
impl Reports for NoReports {
    async fn report(&self, _: Report) -> Result<(), ToolError> {
        Ok(())
    }
}

/// The tools of one meeting.
#[derive(Clone)]
pub struct MeetingTools {
    lore: LoreTools,
    reports: Arc<dyn MeetingReports>,
}

impl MeetingTools {
    /// The tools of a session whose artifacts are in `lore`.
    pub fn new(lore: LoreTools, reports: Arc<dyn MeetingReports>) -> Self {
        Self { lore, reports }
    }

    /// The report of a call. It blocks on the file system.
    fn report_of(&self, ToolCall { name, input, .. }: ToolCall) -> Result<MeetingReport, ToolError> {
        Ok(match name.as_str() {
            LINK => {
                let LinkArtifact { artifact_path } = parse(LINK, input)?;
                MeetingReport::Artifact { path: self.lore.existing(&artifact_path)? }
            }
            FOLLOW_UP => {
                let ProposeFollowup { reason, referenced_artifacts } = parse(FOLLOW_UP, input)?;
                let paths = referenced_artifacts.unwrap_or_default();
                let artifacts = paths.iter().map(|path| self.lore.existing(path)).collect::<Result<_, _>>()?;
                MeetingReport::FollowUp { reason: text("reason", &reason)?, artifacts }
            }
            SUMMARIZE => {
                let SummarizeProgress { summary } = parse(SUMMARIZE, input)?;
                MeetingReport::Progress { summary: text("summary", &summary)? }
            }
            _ => {
                let title = text("title", &parse::<RenameMeeting>(RENAME, input)?.title)?;
                if title.chars().count() > MAX_TITLE || title.contains(char::is_control) {
                    return Err(ToolError::InvalidInput(format!(
                        "a title is one line of at most {MAX_TITLE} characters, none of them a control character"
                    )));
                }
                MeetingReport::Title { title }
            }
        })
    }
}

/// The text of a field that must not be empty.
fn text(field: &str, text: &str) -> Result<String, ToolError> {
    let text = text.trim();
    if text.is_empty() {
        Err(ToolError::InvalidInput(format!("{field} must not be empty")))
    } else {
        Ok(text.to_owned())
    }
}

/// Link an existing artifact to this meeting, so that people find it from the meeting's record.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LinkArtifact {
    /// The path from `.lore/`, as in `list_artifacts`, for instance `specs/plan.md`.
    #[serde(alias = "path")]
    artifact_path: String,
}

/// Propose another meeting between you and the user. The user accepts or declines it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProposeFollowup {
    /// The subject of the meeting, and its reason.
    reason: String,
    /// Artifacts that belong to the meeting: paths from `.lore/` of existing files.
    #[serde(default)]
    referenced_artifacts: Option<Vec<String>>,
}

/// Record the state of the meeting. Call it when a point is settled.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SummarizeProgress {
    /// The settled points so far, in a few sentences.
    summary: String,
}

/// Give this meeting a title by which the user finds it again. Call it once the subject is clear.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RenameMeeting {
    /// The title: one line.
    title: String,
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 4]> = LazyLock::new(|| {
    [
        define::<LinkArtifact>(LINK, "Link artifact", false),
        define::<ProposeFollowup>(FOLLOW_UP, "Propose follow-up", false),
        define::<SummarizeProgress>(SUMMARIZE, "Summarize progress", false),
        define::<RenameMeeting>(RENAME, "Rename meeting", false),
    ]
});

#[async_trait]
impl Tools for MeetingTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        DEFINITIONS.to_vec()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        is_offered(self, &call.name)?;
        let (tools, reports) = (self.clone(), self.reports.clone());
        in_background(async move {
            let report = blocking(move || tools.report_of(call)).await?;
            Ok(answer(&reports.report(report).await?))
        })
        .await
    }
}
