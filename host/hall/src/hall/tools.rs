//! The tools of an attempt or a meeting, and what becomes of that which its worker reports.

use std::sync::Arc;

use guild_contract::{
    Grants, JobId, Limits, OperationError,
    capability::{LORE_WRITE, WORKTREE_WRITE},
    hall::{CommissionId, HallEvent, MeetingId},
};
use guild_jobs::JobTools;
use guild_session::tools::ToolError;
use tokio::runtime::Handle;

use super::{Hall, blocking, project_tools::ProjectTools};
use crate::{
    commission::Commission,
    meeting::MeetingScope,
    tools::{
        ActivityTools, Worktree,
        meeting::{MeetingReport, MeetingReports},
        report::{Report, Reports},
    },
    workers::{Activity, Attempt},
};

/// Characters of a report in the timeline. The whole of it is the progress, or the body.
const NOTED_CHARS: usize = 2000;
/// Reports of progress in the timeline of one attempt; the last one is shown all the same.
const MAX_PROGRESS: usize = 100;

const PROGRESS: &str = "progress_report";

impl Hall {
    /// The tools of an attempt under way, or of a meeting. `job` has the tools on its job that these grants allow, with the
    /// memories that they do. What is reported by them is noted in the commission's or the meeting's record.
    ///
    /// # Errors
    /// Where the attempt's worktree or its job cannot be read.
    pub async fn tools(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: JobTools,
        grants: &Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<ActivityTools, OperationError> {
        let project = self.project(&attempt.project)?;
        let integration = self.projects.integration(&self.home, &project).await?;
        let of_project = Arc::new(ProjectTools::new(self.clone(), attempt, grants));
        let grants = match &attempt.activity {
            // The integration worktree is only read: what is written there is committed for everybody.
            Activity::Meeting(_, MeetingScope::Project) => {
                let base = grants.base.clone().without(&[&LORE_WRITE, &WORKTREE_WRITE]);
                Arc::new(Grants { base, ..(**grants).clone() })
            }
            _ => grants.clone(),
        };
        let writes = grants.base.holds(&LORE_WRITE) || grants.base.holds(&WORKTREE_WRITE);
        let links = if writes { integration.repository().links(&attempt.worktree).await? } else { Vec::new() };
        let (home, at, running) = (self.home.clone(), attempt.clone(), job.job().clone());
        let repository = integration.repository().clone();
        let worktree = blocking(move || Worktree::open(&home, repository, (&at, links), running, limits)).await?;
        let worktree = (Arc::new(worktree), attempt.checkout);
        let (hall, runtime) = (self.clone(), Handle::current());
        let tools = match attempt.activity.clone() {
            Activity::Commission(commission) => {
                let reports = ToHall { hall, commission, job: attempt.job.clone(), runtime };
                ActivityTools::of_commission(job, &grants, worktree, Arc::new(reports))
            }
            Activity::Meeting(meeting, _) => {
                let reports = InMeeting { hall, meeting, runtime };
                ActivityTools::of_meeting(job, &grants, worktree, Arc::new(reports))
            }
        };
        Ok(tools.with(of_project))
    }

    /// Notes a report of an attempt. One that comes late is of an attempt that is over, and is dropped.
    async fn report(&self, id: &CommissionId, job: &JobId, report: Report) -> Result<(), OperationError> {
        let (cell, time) = (self.cell(id.as_str())?, self.time());
        let is_noted = self
            .change(&cell, |commission| {
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
            // They are with the job, and the decisions end up in the record with its result.
            Report::Question { .. } | Report::Decision(_) => return Ok(()),
        };
        if is_noted {
            self.tell(event);
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

/// Notes what was not noted in this attempt: after a crash a report can come again.
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

/// Where the reports of one attempt go.
struct ToHall {
    hall: Arc<Hall>,
    commission: CommissionId,
    job: JobId,
    runtime: Handle,
}

impl Reports for ToHall {
    fn report(&self, report: Report) -> Result<(), ToolError> {
        let noted = self.runtime.block_on(self.hall.report(&self.commission, &self.job, report));
        noted.map_err(|e| ToolError::Unavailable(format!("the report cannot be noted: {e}")))
    }
}

/// Where the reports of one meeting go.
struct InMeeting {
    hall: Arc<Hall>,
    meeting: MeetingId,
    runtime: Handle,
}

impl MeetingReports for InMeeting {
    fn report(&self, report: MeetingReport) -> Result<String, ToolError> {
        let noted = self.runtime.block_on(self.hall.report_in_meeting(&self.meeting, report));
        noted.map_err(|e| ToolError::Unavailable(format!("it cannot be noted: {e}")))
    }
}
