//! Converts meetings to the form that callers see.

use guild_contract::hall::{MeetingView, OpenMeetingView};

use super::meeting::Meeting;
use crate::records::page::{Item, bytes_of, shortened};

/// The view of a meeting for callers.
pub(crate) fn meeting(meeting: &Meeting) -> MeetingView {
    meeting_with(meeting, str::to_owned)
}

/// The view of a meeting whose long texts are passed through `text`.
fn meeting_with(meeting: &Meeting, text: fn(&str) -> String) -> MeetingView {
    let record = &meeting.record;
    MeetingView {
        id: meeting.meeting_id.clone(),
        status: meeting.status,
        resource_overrides: meeting.overrides.clone(),
        created_by: meeting.created_by,
        job: meeting.session.as_ref().map(|session| session.job.to_string()),
        title: text(&record.title),
        worker: record.worker.clone(),
        agenda: text(&record.agenda),
        date: record.date.clone(),
        deferred_until: record.deferred_until.clone(),
        linked_artifacts: record.linked_artifacts.clone(),
        notes: text(record.body.trim()),
        worker_display_title: text(&record.worker_display_title),
        project_name: meeting.project_name.clone(),
    }
}

impl Item for MeetingView {
    type Of = Meeting;

    fn listed(of: &Meeting) -> Self {
        meeting_with(of, shortened)
    }

    fn bytes(&self) -> usize {
        bytes_of(&[&self.title, &self.agenda, &self.notes, &self.worker_display_title], &[&self.linked_artifacts])
    }
}

/// The view of an open meeting for callers.
pub(crate) fn open_meeting(meeting: &Meeting) -> OpenMeetingView {
    OpenMeetingView {
        meeting_id: meeting.meeting_id.clone(),
        project_name: meeting.project_name.clone(),
        worker_name: meeting.record.worker.clone(),
        started_at: meeting.started().to_owned(),
        status: meeting.status,
    }
}
