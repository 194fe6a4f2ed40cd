//! What becomes of that which a worker reports in a meeting.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{Author, MeetingId},
};

use super::{Hall, NewRequest};
use crate::{commission::record::check_room, meeting::Meeting, tools::meeting::MeetingReport};

/// The most entries in a meeting's log that its worker makes, and artifacts that it links.
const MAX_REPORTS: usize = 500;

impl Hall {
    /// Notes a report of an open meeting. What the worker is told.
    pub(in crate::hall) async fn report_in_meeting(
        self: &Arc<Self>,
        id: &MeetingId,
        report: MeetingReport,
    ) -> Result<String, OperationError> {
        let (cell, time) = (self.meeting(id.as_str())?, self.time());
        let (reason, artifacts) = match report {
            MeetingReport::FollowUp { reason, artifacts } => (reason, artifacts),
            report => return self.change(&cell, |meeting| note(meeting, report, time)).await,
        };
        let now = cell.now();
        if !now.is_open() {
            return Err(over(&now));
        }
        let proposed = self.request_meeting(NewRequest {
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
            "the meeting's log has {MAX_REPORTS} entries, and takes no more"
        )));
    }
    if let MeetingReport::Progress { summary: text } | MeetingReport::Title { title: text } = &report {
        check_room(&meeting.record.meeting_log, text)?;
    }
    Ok(match report {
        MeetingReport::Artifact { path } if meeting.record.linked_artifacts.contains(&path) => {
            format!("{path} was linked before.")
        }
        MeetingReport::Artifact { path } => {
            if meeting.record.linked_artifacts.len() >= MAX_REPORTS {
                return Err(OperationError::Conflict(format!(
                    "{MAX_REPORTS} artifacts are linked, and no more can be"
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
        // Reported otherwise.
        MeetingReport::FollowUp { .. } => String::new(),
    })
}
