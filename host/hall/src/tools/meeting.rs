//! The tools of a session in a meeting (REQ-WKR-11): what belongs to it, what comes next, where it stands, and its
//! name.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer, blocking, define, is_offered,
    lore::LoreTools,
    report::{Report, Reports},
};

const LINK: &str = "link_artifact";
const FOLLOW_UP: &str = "propose_followup";
const SUMMARIZE: &str = "summarize_progress";
const RENAME: &str = "rename_meeting";

/// Characters of a title.
const MAX_TITLE: usize = 200;

/// What a worker reports in a meeting.
#[derive(Clone, Debug, PartialEq)]
pub enum MeetingReport {
    /// An artifact belongs to it.
    Artifact {
        /// Its path below `.lore/`. It is there.
        path: String,
    },
    /// There should be another meeting.
    FollowUp {
        /// Why.
        reason: String,
        /// Paths of artifacts below `.lore/`. They are there.
        artifacts: Vec<String>,
    },
    /// Where it stands.
    Progress {
        /// In the worker's words.
        summary: String,
    },
    /// What it is called from now on.
    Title {
        /// The title.
        title: String,
    },
}

/// Where the reports of one meeting go.
pub trait MeetingReports: Send + Sync {
    /// Notes a report, and says what came of it. It blocks.
    ///
    /// # Errors
    /// What the worker is told.
    fn report(&self, report: MeetingReport) -> Result<String, ToolError>;
}

/// Takes reports that nobody needs: what was written in a meeting is merged with it.
pub(super) struct NoReports;

impl Reports for NoReports {
    fn report(&self, _: Report) -> Result<(), ToolError> {
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
    /// The tools of a session whose artifacts are those of `lore`.
    pub fn new(lore: LoreTools, reports: Arc<dyn MeetingReports>) -> Self {
        Self { lore, reports }
    }

    fn call_blocking(&self, ToolCall { name, input, .. }: ToolCall) -> Result<Value, ToolError> {
        let report = match name.as_str() {
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
        };
        Ok(answer(&self.reports.report(report)?))
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

/// Link an artifact that is there to this meeting, so that people find it from the meeting's record.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LinkArtifact {
    /// Its path from `.lore/`, as `list_artifacts` names it, for instance `specs/plan.md`.
    #[serde(alias = "path")]
    artifact_path: String,
}

/// Propose another meeting with you. The user accepts or declines it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProposeFollowup {
    /// What it would be about, and why.
    reason: String,
    /// Artifacts that belong to it: paths from `.lore/` of files that are there.
    #[serde(default)]
    referenced_artifacts: Option<Vec<String>>,
}

/// Note where the meeting stands in its record. Call it when something is settled.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SummarizeProgress {
    /// What is settled so far, in a few sentences.
    summary: String,
}

/// Give this meeting a title by which the user finds it again. Call it once you know what it is about.
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
        let tools = self.clone();
        blocking(move || tools.call_blocking(call)).await
    }
}
