//! Implements `job-tools`: the internal tools on this job, which sessions call too.

use guild_contract::{
    Decision,
    capability::{ARTIFACTS, JOB_TOOLS},
};
use guild_jobs::Reporting;
use guild_session::tools::ToolError;

use super::{
    HostResult,
    bindings::guild::worker::{job_tools::Host, types},
    named,
};
use crate::state::{CallContext, State};

impl Host for State {
    async fn update_summary(&mut self, summary: String) -> HostResult<()> {
        on_job(self, "job-tools.update-summary", move |_, job| job.update_summary(&summary)).await
    }

    async fn record_decision(&mut self, decision: types::Decision) -> HostResult<()> {
        let types::Decision { question, decision, reasoning } = decision;
        let decision = Decision { question, decision, reasoning };
        on_job(self, "job-tools.record-decision", move |_, job| job.record_decision(decision, None)).await
    }

    async fn log_question(&mut self, question: String) -> HostResult<()> {
        on_job(self, "job-tools.log-question", move |_, job| job.log_question(&question)).await
    }

    async fn write_artifact(&mut self, path: String, contents: Vec<u8>) -> HostResult<()> {
        on_job(self, "job-tools.write-artifact", move |context, job| {
            // Every job may write its own files unless the operator denies it.
            if *job.artifacts_need() != ARTIFACTS || !context.grants.artifacts {
                context.granted(job.artifacts_need())?;
            }
            named("the path", &path)?;
            job.write_artifact(&path, &contents)
        })
        .await
    }

    async fn submit_result(&mut self, output: String) -> HostResult<()> {
        on_job(self, "job-tools.submit-result", move |_, job| job.submit_result(&output, None)).await
    }
}

/// Calls an internal tool on the job, off the threads that answer. `function` is the tool's name in WIT.
async fn on_job(
    state: &mut State,
    function: &'static str,
    call: impl FnOnce(&CallContext, &dyn Reporting) -> Result<(), ToolError> + Send + 'static,
) -> HostResult<()> {
    state.blocking(move |context| call(context, &**context.job(&JOB_TOOLS, function)?.reporting())).await
}
