//! What happens in a hall, for those who listen.

use serde::Serialize;

use crate::{
    commission::{CommissionId, Status},
    meeting::MeetingId,
};

/// Something that happened, as the event stream has it: one object with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HallEvent {
    /// A commission has another state. The change is stored.
    CommissionStatus {
        /// The commission.
        commission_id: CommissionId,
        /// The state.
        status: Status,
        /// The state before, as the original names it.
        old_status: Status,
        /// The state before.
        from: Status,
        /// The state.
        to: Status,
        /// Its project.
        project_name: String,
        /// Why.
        reason: String,
    },
    /// A worker says where its work stands.
    CommissionProgress {
        /// The commission.
        commission_id: CommissionId,
        /// The worker's words.
        summary: String,
    },
    /// A worker submitted its result.
    CommissionResult {
        /// The commission.
        commission_id: CommissionId,
        /// The result.
        summary: String,
        /// Paths of artifacts below `.lore/`.
        #[serde(skip_serializing_if = "Option::is_none")]
        artifacts: Option<Vec<String>>,
    },
    /// A worker wrote an artifact.
    CommissionArtifact {
        /// The commission.
        commission_id: CommissionId,
        /// The path below `.lore/`.
        artifact_path: String,
    },
    /// Somebody added a note.
    CommissionManagerNote {
        /// The commission.
        commission_id: CommissionId,
        /// The note.
        content: String,
    },
    /// A commission whose dispatch was asked for has to wait.
    CommissionQueued {
        /// The commission.
        commission_id: CommissionId,
        /// For what.
        reason: String,
    },
    /// It waits no longer.
    CommissionDequeued {
        /// The commission.
        commission_id: CommissionId,
        /// Why.
        reason: String,
    },
    /// A user and a worker can talk.
    MeetingStarted {
        /// The meeting.
        meeting_id: MeetingId,
        /// The worker's name for people.
        worker: String,
        /// Its project. The original has no such field.
        project_name: String,
    },
    /// A meeting is over, or was declined.
    MeetingEnded {
        /// The meeting.
        meeting_id: MeetingId,
        /// Its project. The original has no such field.
        project_name: String,
    },
    /// Somebody asks the user for a meeting. The original has no such event.
    MeetingRequested {
        /// The meeting.
        meeting_id: MeetingId,
        /// The worker's name for people.
        worker: String,
        /// Its project.
        project_name: String,
    },
}
