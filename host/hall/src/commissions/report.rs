//! Records a worker's reports on its commission in the timeline, and announces them.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{
    JobId, OperationError,
    hall::{CommissionId, HallEvent},
};
use guild_session::tools::ToolError;

use super::{Commissions, commission::Commission};
use crate::tools::report::{Report, Reports};

/// The most characters of a report in the timeline. The whole report is in the progress or the body.
const NOTED_CHARS: usize = 2000;
/// The most progress reports in the timeline of one attempt; the last one is always shown.
const MAX_PROGRESS: usize = 100;

const PROGRESS: &str = "progress_report";

impl Commissions {
    /// Records a report of an attempt. A late report of an attempt that is over is dropped.
    async fn report(&self, id: &CommissionId, job: &JobId, report: Report) -> Result<(), OperationError> {
        let (stored, time) = (self.get(id.as_str())?, self.core.time());
        let is_noted = self
            .records
            .change(&stored, |commission| {
                let attempt = commission.attempt.as_ref();
                let is_under_way = commission.status.is_active()
                    && attempt.is_some_and(|attempt| attempt.job == *job && attempt.end.is_none());
                if is_under_way {
                    note(commission, &report, time);
                }
                Ok(is_under_way)
            })
            .await?;
        let commission_id = id.clone();
        let event = match report {
            Report::Progress { summary } => HallEvent::CommissionProgress { commission_id, summary },
            Report::Result { summary, artifacts } => {
                let artifacts = Some(artifacts).filter(|artifacts| !artifacts.is_empty());
                HallEvent::CommissionResult { commission_id, summary, artifacts }
            }
            Report::Artifact { path } => HallEvent::CommissionArtifact { commission_id, artifact_path: path },
            // Questions and decisions are stored with the job; the record gets the decisions together with the result.
            Report::Question { .. } | Report::Decision(_) => return Ok(()),
        };
        if is_noted {
            self.core.tell(event);
        }
        Ok(())
    }
}

fn note(commission: &mut Commission, report: &Report, time: String) {
    match report {
        Report::Progress { summary } => {
            commission.record.current_progress.clone_from(summary);
            note_once(commission, PROGRESS, summary, time);
        }
        Report::Result { summary, artifacts } => {
            let linked = &mut commission.record.linked_artifacts;
            linked.extend(artifacts.iter().filter(|path| !linked.contains(path)).cloned().collect::<Vec<_>>());
            note_once(commission, "result_submitted", summary, time);
        }
        Report::Question { question } => note_once(commission, "question", question, time),
        Report::Decision(_) | Report::Artifact { .. } => {}
    }
}

/// Adds an event unless this attempt has it already: after a crash a report can be repeated.
pub(super) fn note_once(commission: &mut Commission, event: &str, text: &str, time: String) {
    let reason: String = text.chars().take(NOTED_CHARS).collect();
    let timeline = &commission.record.activity_timeline;
    let begun = timeline.iter().rposition(|entry| entry.event == "status_dispatched").unwrap_or(0);
    let of_event = || timeline.iter().skip(begun).filter(|entry| entry.event == event);
    let is_full = event == PROGRESS && of_event().count() >= MAX_PROGRESS;
    if !is_full && !of_event().any(|entry| entry.reason == reason) {
        commission.note(event, &reason, time);
    }
}

/// Records the reports of one attempt.
pub(crate) struct AttemptReports {
    pub(crate) commissions: Arc<Commissions>,
    pub(crate) commission: CommissionId,
    pub(crate) job: JobId,
}

#[async_trait]
impl Reports for AttemptReports {
    async fn report(&self, report: Report) -> Result<(), ToolError> {
        let noted = self.commissions.report(&self.commission, &self.job, report).await;
        noted.map_err(|e| ToolError::Unavailable(format!("the report cannot be recorded: {e}")))
    }
}
