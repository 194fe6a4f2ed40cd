//! Records a worker's reports in a meeting.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{
    OperationError,
    hall::{Author, MeetingId},
};
use guild_session::tools::ToolError;

use super::{Meetings, NewRequest, meeting::Meeting};
use crate::{
    records::log::check_room,
    tools::meeting::{MeetingReport, MeetingReports},
};

/// The most log entries that the worker of a meeting adds, and the most artifacts that it links.
const MAX_REPORTS: usize = 500;

impl Meetings {
    /// Records a report of an open meeting. Returns the answer for the worker.
    pub(crate) async fn report(
        self: &Arc<Self>,
        id: &MeetingId,
        report: MeetingReport,
    ) -> Result<String, OperationError> {
        let (stored, time) = (self.get(id.as_str())?, self.core.time());
        let (reason, artifacts) = match report {
            MeetingReport::FollowUp { reason, artifacts } => (reason, artifacts),
            report => return self.records.change(&stored, |meeting| note(meeting, report, time)).await,
        };
        let now = stored.now();
        if !now.is_open() {
            return Err(over(&now));
        }
        let proposed = self.request(NewRequest {
            project: now.project_name.clone(),
            worker: now.worker_name.clone(),
            reason,
            artifacts,
            author: Author::Worker,
            follows: Some(id.clone()),
            call: None,
        });
        Ok(format!("The follow-up is proposed: {}. The user accepts or declines it.", proposed.await?))
    }
}

fn over(meeting: &Meeting) -> OperationError {
    OperationError::Conflict(format!("meeting {} is over", meeting.meeting_id))
}

fn note(meeting: &mut Meeting, report: MeetingReport, time: String) -> Result<String, OperationError> {
    if !meeting.is_open() {
        return Err(over(meeting));
    }
    if meeting.record.meeting_log.len() > MAX_REPORTS {
        return Err(OperationError::Conflict(format!(
            "the meeting's log has {MAX_REPORTS} entries, which is the limit"
        )));
    }
    if let MeetingReport::Progress { summary: text } | MeetingReport::Title { title: text } = &report {
        check_room(&meeting.record.meeting_log, text)?;
    }
    Ok(match report {
        MeetingReport::Artifact { path } if meeting.record.linked_artifacts.contains(&path) => {
            format!("{path} was already linked.")
        }
        MeetingReport::Artifact { path } => {
            if meeting.record.linked_artifacts.len() >= MAX_REPORTS {
                return Err(OperationError::Conflict(format!(
                    "{MAX_REPORTS} artifacts are linked, which is the limit"
                )));
            }
            let answer = format!("{path} is linked.");
            meeting.record.linked_artifacts.push(path);
            answer
        }
        MeetingReport::Progress { summary } => {
            meeting.note("progress_summary", &summary, time);
            "The progress is noted.".to_owned()
        }
        MeetingReport::Title { title } if meeting.record.title == title => "It has that title already.".to_owned(),
        MeetingReport::Title { title } => {
            meeting.note("renamed", &format!("Renamed to: {title}"), time);
            let answer = format!("The meeting is called {title:?} now.");
            meeting.record.title = title;
            answer
        }
        // Follow-ups were handled above.
        MeetingReport::FollowUp { .. } => String::new(),
    })
}

/// Records the reports of one meeting.
pub(crate) struct ReportsInMeeting {
    pub(crate) meetings: Arc<Meetings>,
    pub(crate) meeting: MeetingId,
}

#[async_trait]
impl MeetingReports for ReportsInMeeting {
    async fn report(&self, report: MeetingReport) -> Result<String, ToolError> {
        let noted = self.meetings.report(&self.meeting, report).await;
        noted.map_err(|e| ToolError::Unavailable(format!("the report cannot be recorded: {e}")))
    }
}
