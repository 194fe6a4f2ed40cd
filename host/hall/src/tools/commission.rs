//! Implements the tools with which a session reports on its commission, and the same functions for a component.
//!
//! The job stores the reports, and the hall records them in the commission and announces them. A component's
//! `job-tools` and the tools of its sessions both use [`CommissionReporting`].

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use guild_contract::capability::{Kind, LORE_WRITE};
use guild_jobs::{JobReport, Reporting, RunningJob};
use guild_session::{
    task::blocking,
    tools::{ToolCall, ToolDefinition, ToolError, Tools, parse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::{runtime::Handle, sync::Mutex};

use super::{
    answer, define, is_offered,
    lore::LoreTools,
    report::{Report, Reports},
};
use crate::blocking::{in_background, on_runtime};

const PROGRESS: &str = "report_progress";
const SUBMIT: &str = "submit_result";

/// The most artifacts that a result names.
const MAX_ARTIFACTS: usize = 256;

/// The reports of a commission's worker, from its component or from a session. The job stores them before the hall,
/// except a session's result: once the job has the result, a restart does not request it again.
pub struct CommissionReporting {
    job: Arc<RunningJob>,
    lore: LoreTools,
    reports: Arc<dyn Reports>,
    /// Held while a report is recorded, so that the job and the hall get the reports in the same order.
    recording: Mutex<()>,
    /// The host's runtime. Components report from another one.
    runtime: Handle,
}

impl CommissionReporting {
    /// The reports of the worker of `job`, whose artifacts are in `lore`. It is called on the host's runtime.
    pub fn new(job: Arc<RunningJob>, lore: LoreTools, reports: Arc<dyn Reports>) -> Self {
        Self { job, lore, reports, recording: Mutex::default(), runtime: Handle::current() }
    }

    /// Submits the result, once. A repeated `call` gets its first answer.
    ///
    /// # Errors
    ///
    /// Returns an error when there is already a result or an artifact is missing, and the errors of
    /// [`RunningJob::submit_result`].
    async fn submit_once(&self, summary: String, artifacts: Vec<String>, call: String) -> Result<(), ToolError> {
        if artifacts.len() > MAX_ARTIFACTS {
            return Err(ToolError::OverLimit(format!("a result names at most {MAX_ARTIFACTS} artifacts")));
        }
        let _recording = self.recording.lock().await;
        let (job, lore, output, id) = (self.job.clone(), self.lore.clone(), summary.clone(), call.clone());
        let check = move || {
            let existing = artifacts.iter().map(|path| lore.existing(path)).collect::<Result<BTreeSet<_>, _>>()?;
            Ok((existing, job.has_submitted(&output, &id)?))
        };
        let (artifacts, is_repeated) = blocking(check).await?;
        if is_repeated {
            return Ok(());
        }
        let artifacts = artifacts.into_iter().collect();
        self.reports.report(Report::Result { summary: summary.clone(), artifacts }).await?;
        self.job.clone().report(JobReport::Result(summary), Some(call)).await
    }

    /// Records a report of the component, or of a tool of jobs, in the job and in the hall.
    async fn record(&self, report: JobReport, call: Option<String>) -> Result<(), ToolError> {
        let (of_job, of_hall) = match report {
            JobReport::Artifact { path, contents } => return self.lore.write(&path, contents, None).await,
            JobReport::Summary(summary) => (JobReport::Summary(summary.clone()), Report::Progress { summary }),
            JobReport::Decision(decision) => (JobReport::Decision(decision.clone()), Report::Decision(decision)),
            JobReport::Question(question) => (JobReport::Question(question.clone()), Report::Question { question }),
            JobReport::Result(summary) => {
                (JobReport::Result(summary.clone()), Report::Result { summary, artifacts: Vec::new() })
            }
        };
        let _recording = self.recording.lock().await;
        self.job.clone().report(of_job, call).await?;
        self.reports.report(of_hall).await
    }
}

/// The implementation for a component follows the description of `job-tools` in WIT: the last submitted result counts.
/// Files become artifacts of the project.
#[async_trait]
impl Reporting for CommissionReporting {
    fn artifacts_need(&self) -> &'static Kind {
        &LORE_WRITE
    }

    async fn report(self: Arc<Self>, report: JobReport, call: Option<String>) -> Result<(), ToolError> {
        let runtime = self.runtime.clone();
        on_runtime(&runtime, async move { self.record(report, call).await }).await
    }
}

/// The tools with which a session reports on its commission. The tools of jobs report its decisions and questions.
pub struct ReportTools(Arc<CommissionReporting>);

impl ReportTools {
    /// The tools of a session.
    pub fn new(reporting: Arc<CommissionReporting>) -> Self {
        Self(reporting)
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
        let (ToolCall { id, name, input }, reporting) = (call, self.0.clone());
        if name == PROGRESS {
            let ReportProgress { summary } = parse(PROGRESS, input)?;
            reporting.report(JobReport::Summary(summary), Some(id)).await?;
            return Ok(answer("The progress is reported."));
        }
        let SubmitResult { summary, artifacts } = parse(SUBMIT, input)?;
        let artifacts = artifacts.unwrap_or_default();
        in_background(async move { reporting.submit_once(summary, artifacts, id).await }).await?;
        Ok(answer("The result is submitted. Your work is done."))
    }

    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}
