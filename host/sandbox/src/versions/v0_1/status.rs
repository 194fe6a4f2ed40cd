//! Implements `status`: the job's own record.

use guild_contract::{JobStatus, capability::STATUS};

use super::{
    HostResult,
    bindings::guild::worker::{
        status::{Host, Snapshot},
        types,
    },
};
use crate::state::State;

impl Host for State {
    async fn current(&mut self) -> HostResult<Snapshot> {
        Ok(self.context.job(&STATUS, "status.current").map_err(Into::into).map(|tools| {
            let view = tools.job().snapshot();
            let decision = |d: guild_contract::Decision| types::Decision {
                question: d.question,
                decision: d.decision,
                reasoning: d.reasoning,
            };
            Snapshot {
                job: view.job_id.into(),
                status: match view.status {
                    JobStatus::Running => types::JobStatus::Running,
                    JobStatus::Completed => types::JobStatus::Completed,
                    JobStatus::Failed => types::JobStatus::Failed,
                    JobStatus::Cancelled => types::JobStatus::Cancelled,
                },
                description: view.description,
                summary: view.summary,
                questions: view.questions.unwrap_or_default(),
                decisions: view.decisions.unwrap_or_default().into_iter().map(decision).collect(),
                started_at: view.started_at,
            }
        }))
    }
}
