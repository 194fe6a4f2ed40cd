//! Implements the tools with which a session reports on its commission, and the same functions for a component.
//!
//! The job stores the reports, and the hall records them in the commission and announces them. A component's
//! `job-tools` and the tools of its sessions both use [`CommissionReporting`].

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{
    Decision,
    capability::{Kind, LORE_WRITE},
};
use guild_jobs::{Reporting, RunningJob};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer, blocking, define, is_offered,
    lore::LoreTools,
    report::{Report, Reports},
};

const PROGRESS: &str = "report_progress";
const SUBMIT: &str = "submit_result";

/// The most artifacts that a result names.
const MAX_ARTIFACTS: usize = 256;

/// The reports of a commission's worker, from its component or from a session. The job stores them before the hall,
/// except a session's result: once the job has the result, a restart does not request it again.
#[derive(Clone)]
pub struct CommissionReporting {
    job: Arc<RunningJob>,
    lore: LoreTools,
    reports: Arc<dyn Reports>,
}

impl CommissionReporting {
    /// The reports of the worker of `job`, whose artifacts are in `lore`.
    pub fn new(job: Arc<RunningJob>, lore: LoreTools, reports: Arc<dyn Reports>) -> Self {
        Self { job, lore, reports }
    }

    /// Submits the result, once. A repeated `call` gets its first answer. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when there is already a result or an artifact is missing, and the errors of
    /// [`RunningJob::submit_result`].
    pub fn submit_once(&self, summary: &str, artifacts: &[String], call: &str) -> Result<(), ToolError> {
        if artifacts.len() > MAX_ARTIFACTS {
            return Err(ToolError::OverLimit(format!("a result names at most {MAX_ARTIFACTS} artifacts")));
        }
        let mut there: Vec<String> = artifacts.iter().map(|path| self.lore.existing(path)).collect::<Result<_, _>>()?;
        there.sort_unstable();
        there.dedup();
        self.job.submit_once(summary, call, || {
            self.reports.report(Report::Result { summary: summary.to_owned(), artifacts: there })
        })
    }
}

/// The implementation for a component follows the description of `job-tools` in WIT: the last submitted result counts.
/// Files become artifacts of the project.
impl Reporting for CommissionReporting {
    fn job(&self) -> &RunningJob {
        &self.job
    }

    fn update_summary(&self, summary: &str) -> Result<(), ToolError> {
        self.job.update_summary(summary)?;
        self.reports.report(Report::Progress { summary: summary.to_owned() })
    }

    fn record_decision(&self, decision: Decision, call: Option<&str>) -> Result<(), ToolError> {
        self.job.record_decision(decision.clone(), call)?;
        self.reports.report(Report::Decision(decision))
    }

    fn log_question(&self, question: &str) -> Result<(), ToolError> {
        self.job.log_question(question)?;
        self.reports.report(Report::Question { question: question.to_owned() })
    }

    fn artifacts_need(&self) -> &'static Kind {
        &LORE_WRITE
    }

    fn write_artifact(&self, path: &str, contents: &[u8]) -> Result<(), ToolError> {
        self.lore.write(path, contents, None)
    }

    fn submit_result(&self, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        self.job.submit_result(output, call)?;
        self.reports.report(Report::Result { summary: output.to_owned(), artifacts: Vec::new() })
    }
}

/// The tools with which a session reports on its commission. The tools of jobs report its decisions and questions.
#[derive(Clone)]
pub struct ReportTools(CommissionReporting);

impl ReportTools {
    /// The tools of a session.
    pub fn new(reporting: CommissionReporting) -> Self {
        Self(reporting)
    }

    fn call_blocking(&self, ToolCall { id, name, input }: ToolCall) -> Result<Value, ToolError> {
        if name == PROGRESS {
            self.0.update_summary(&parse::<ReportProgress>(PROGRESS, input)?.summary)?;
            return Ok(answer("The progress is reported."));
        }
        let SubmitResult { summary, artifacts } = parse(SUBMIT, input)?;
        self.0.submit_once(&summary, &artifacts.unwrap_or_default(), &id)?;
        Ok(answer("The result is submitted. Your work is done."))
    }
}

/// Report the state of the work, for the people who follow it. Call it when you have a plan, and after each noteworthy
/// step.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReportProgress {
    /// The state of the work, in a few sentences. It replaces the last report.
    summary: String,
}

/// Submit the result of the commission. Call it once, at the end: a commission without a result has failed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubmitResult {
    /// The result, as Markdown: the work done, and its outcome.
    #[serde(alias = "output")]
    summary: String,
    /// Artifacts that belong to the result: paths from `.lore/` of existing files.
    #[serde(default)]
    artifacts: Option<Vec<String>>,
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 2]> = LazyLock::new(|| {
    [
        define::<ReportProgress>(PROGRESS, "Report progress", false),
        define::<SubmitResult>(SUBMIT, "Submit result", false),
    ]
});

#[async_trait]
impl Tools for ReportTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        DEFINITIONS.to_vec()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        is_offered(self, &call.name)?;
        let tools = self.clone();
        blocking(move || tools.call_blocking(call)).await
    }
}
