//! Defines the events of a hall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommissionId, CommissionStatus, MeetingId};

/// An event, as the stream of events has it: one object with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HallEvent {
    /// A commission has another state. The change is stored.
    CommissionStatus {
        /// The commission.
        commission_id: CommissionId,
        /// The state.
        status: CommissionStatus,
        /// The state before, as the original names it.
        #[serde(default)]
        old_status: CommissionStatus,
        /// The state before.
        #[serde(default)]
        from: CommissionStatus,
        /// The state.
        #[serde(default)]
        to: CommissionStatus,
        /// The project.
        #[serde(default)]
        project_name: String,
        /// Why.
        #[serde(default)]
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
        /// Paths of documents below `.lore/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifacts: Option<Vec<String>>,
    },
    /// A worker wrote a document.
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
    /// A commission waits no longer.
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
        /// The project. The original has no such field.
        #[serde(default)]
        project_name: String,
    },
    /// A meeting is over, or was declined.
    MeetingEnded {
        /// The meeting.
        meeting_id: MeetingId,
        /// The project. The original has no such field.
        #[serde(default)]
        project_name: String,
    },
    /// Somebody asks the user for a meeting. The original has no such event.
    MeetingRequested {
        /// The meeting.
        meeting_id: MeetingId,
        /// The worker's name for people.
        worker: String,
        /// The project.
        project_name: String,
    },
    /// An event of a host of a later version.
    #[serde(other)]
    Unknown,
}

impl HallEvent {
    /// The commission, if the event is about one.
    pub fn commission(&self) -> Option<&CommissionId> {
        match self {
            Self::CommissionStatus { commission_id, .. }
            | Self::CommissionProgress { commission_id, .. }
            | Self::CommissionResult { commission_id, .. }
            | Self::CommissionArtifact { commission_id, .. }
            | Self::CommissionManagerNote { commission_id, .. }
            | Self::CommissionQueued { commission_id, .. }
            | Self::CommissionDequeued { commission_id, .. } => Some(commission_id),
            Self::MeetingStarted { .. } | Self::MeetingEnded { .. } | Self::MeetingRequested { .. } | Self::Unknown => {
                None
            }
        }
    }
}
