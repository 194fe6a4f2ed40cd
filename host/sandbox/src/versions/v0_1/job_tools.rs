//! `job-tools`: the internal tools on this job, by the same implementation that sessions call.

use guild_contract::{Decision, grants::Capability, manifest::Interface};

use super::{
    Answer,
    bindings::guild::worker::{job_tools::Host, types},
    blocking, named,
};
use crate::state::State;

impl Host for State {
    async fn update_summary(&mut self, summary: String) -> Answer<()> {
        let reach = self.reach.clone();
        blocking(move || reach.job(Interface::JobTools, "job-tools.update-summary")?.update_summary(&summary)).await
    }

    async fn record_decision(&mut self, decision: types::Decision) -> Answer<()> {
        let reach = self.reach.clone();
        let types::Decision { question, decision, reasoning } = decision;
        blocking(move || {
            let decision = Decision { question, decision, reasoning };
            reach.job(Interface::JobTools, "job-tools.record-decision")?.record_decision(decision, None)
        })
        .await
    }

    async fn log_question(&mut self, question: String) -> Answer<()> {
        let reach = self.reach.clone();
        blocking(move || reach.job(Interface::JobTools, "job-tools.log-question")?.log_question(&question)).await
    }

    async fn write_artifact(&mut self, path: String, contents: Vec<u8>) -> Answer<()> {
        let reach = self.reach.clone();
        blocking(move || {
            let tools = reach.job(Interface::JobTools, "job-tools.write-artifact")?;
            reach.granted_too(reach.grants.artifacts, &Capability::Artifacts, r#""artifacts": {}"#)?;
            named("the path", &path)?;
            tools.write_artifact(&path, &contents)
        })
        .await
    }

    async fn submit_result(&mut self, output: String) -> Answer<()> {
        let reach = self.reach.clone();
        blocking(move || reach.job(Interface::JobTools, "job-tools.submit-result")?.submit_result(&output, None)).await
    }
}
