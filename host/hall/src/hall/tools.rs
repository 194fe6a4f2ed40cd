//! Assembles the tools of an attempt or a meeting.

use std::sync::Arc;

use guild_contract::{
    Grants, Limits, OperationError,
    capability::{LORE_WRITE, WORKTREE_WRITE},
};
use guild_jobs::JobTools;

use super::{Hall, project_tools::ProjectTools};
use crate::{
    blocking::blocking,
    commissions::AttemptReports,
    core::workers::{Activity, Attempt, MeetingScope},
    meetings::ReportsInMeeting,
    tools::{ActivityTools, Worktree},
};

/// The reason that sessions of a meeting on a whole project change nothing: a change of the integration worktree would
/// be committed for all workers.
const READ_ONLY: &str = "a meeting on a whole project changes no documents but the heartbeat; commission the change";

impl Hall {
    /// The tools of a running attempt or an open meeting. `job` has the tools and the memories that these grants allow.
    /// Reports are recorded in the commission or the meeting.
    ///
    /// # Errors
    ///
    /// Returns an error when the attempt's worktree or its job cannot be read.
    pub async fn tools(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: JobTools,
        grants: &Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<ActivityTools, OperationError> {
        let (_, integration) = self.core.integration(&attempt.project).await?;
        let of_project = Arc::new(ProjectTools::new(self.clone(), attempt, grants));
        let grants = match &attempt.activity {
            Activity::Meeting(_, MeetingScope::Project) => {
                let base = grants.base.clone().without(&[&LORE_WRITE, &WORKTREE_WRITE], READ_ONLY);
                Arc::new(Grants { base, ..(**grants).clone() })
            }
            _ => grants.clone(),
        };
        let writes = grants.base.holds(&LORE_WRITE) || grants.base.holds(&WORKTREE_WRITE);
        let links = if writes { integration.repository().links(&attempt.worktree).await? } else { Vec::new() };
        let (home, at, running) = (self.core.home.clone(), attempt.clone(), job.job().clone());
        let repository = integration.repository().clone();
        let worktree = blocking(move || Worktree::open(&home, repository, &at, links, running, limits)).await?;
        let (worktree, checkout) = (Arc::new(worktree), attempt.checkout);
        let tools = match attempt.activity.clone() {
            Activity::Commission(commission) => {
                let (commissions, job_id) = (self.commissions.clone(), attempt.job.clone());
                let reports = AttemptReports { commissions, commission, job: job_id };
                ActivityTools::of_commission(job, &grants, worktree, checkout, Arc::new(reports))
            }
            Activity::Meeting(meeting, _) => {
                let reports = ReportsInMeeting { meetings: self.meetings.clone(), meeting };
                ActivityTools::of_meeting(job, &grants, worktree, checkout, Arc::new(reports))
            }
        };
        Ok(tools.with(of_project))
    }
}
