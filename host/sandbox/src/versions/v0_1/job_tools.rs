//! Implements `job-tools`: the internal tools on this job, which sessions call too.

use std::sync::Arc;

use guild_contract::{
    Decision,
    capability::{ARTIFACTS, JOB_TOOLS},
};
use guild_jobs::{JobReport, Reporting};
use guild_session::tools::ToolError;

use super::{
    HostResult,
    bindings::guild::worker::{job_tools::Host, types},
    named,
};
use crate::state::{CallContext, State};

impl Host for State {
    async fn update_summary(&mut self, summary: String) -> HostResult<()> {
        report(&self.context, "job-tools.update-summary", JobReport::Summary(summary)).await
    }

    async fn record_decision(&mut self, decision: types::Decision) -> HostResult<()> {
        let types::Decision { question, decision, reasoning } = decision;
        let decision = Decision { question, decision, reasoning };
        report(&self.context, "job-tools.record-decision", JobReport::Decision(decision)).await
    }

    async fn log_question(&mut self, question: String) -> HostResult<()> {
        report(&self.context, "job-tools.log-question", JobReport::Question(question)).await
    }

    async fn write_artifact(&mut self, path: String, contents: Vec<u8>) -> HostResult<()> {
        report(&self.context, "job-tools.write-artifact", JobReport::Artifact { path, contents }).await
    }

    async fn submit_result(&mut self, output: String) -> HostResult<()> {
        report(&self.context, "job-tools.submit-result", JobReport::Result(output)).await
    }
}

/// Reports on the job. `function` is the tool's name in WIT.
async fn report(context: &CallContext, function: &'static str, report: JobReport) -> HostResult<()> {
    Ok(match receiver(context, function, &report) {
        Ok(receiver) => receiver.report(report, None).await.map_err(Into::into),
        Err(e) => Err(e.into()),
    })
}

/// The receiver of a report that is granted.
fn receiver(
    context: &CallContext,
    function: &'static str,
    report: &JobReport,
) -> Result<Arc<dyn Reporting>, ToolError> {
    let receiver = context.job(&JOB_TOOLS, function)?.reporting().clone();
    if let JobReport::Artifact { path, .. } = report {
        // Every job may write its own files unless the operator denies it.
        let kind = receiver.artifacts_need();
        if *kind != ARTIFACTS || !context.grants.artifacts {
            context.granted(kind)?;
        }
        named("the path", path)?;
    }
    Ok(receiver)
}
