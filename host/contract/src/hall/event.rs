//! Defines the events of a hall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommissionId, CommissionStatus, MeetingId};

/// An event in the hall's event stream: one object with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HallEvent {
    /// A commission changed its state. The change is stored.
    CommissionStatus {
        /// The commission.
        commission_id: CommissionId,
        /// The state.
        status: CommissionStatus,
        /// The previous state, by the original's field name.
        #[serde(default)]
        old_status: CommissionStatus,
        /// The previous state.
        #[serde(default)]
        from: CommissionStatus,
        /// The state.
        #[serde(default)]
        to: CommissionStatus,
        /// The project's name.
        #[serde(default)]
        project_name: String,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// A worker reports its progress.
    CommissionProgress {
        /// The commission.
        commission_id: CommissionId,
        /// The worker's progress text.
        summary: String,
    },
    /// A worker submitted its result.
    CommissionResult {
        /// The commission.
        commission_id: CommissionId,
        /// The result.
        summary: String,
        /// Paths of the result's documents below `.lore/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifacts: Option<Vec<String>>,
    },
    /// A worker wrote a document.
    CommissionArtifact {
        /// The commission.
        commission_id: CommissionId,
        /// The document's path below `.lore/`.
        artifact_path: String,
    },
    /// A note was added to a commission.
    CommissionManagerNote {
        /// The commission.
        commission_id: CommissionId,
        /// The note.
        content: String,
    },
    /// A commission was dispatched, and has to wait.
    CommissionQueued {
        /// The commission.
        commission_id: CommissionId,
        /// The reason for the wait.
        reason: String,
    },
    /// A commission does not wait any longer.
    CommissionDequeued {
        /// The commission.
        commission_id: CommissionId,
        /// The reason.
        reason: String,
    },
    /// A meeting is open: the user and the worker can talk.
    MeetingStarted {
        /// The meeting.
        meeting_id: MeetingId,
        /// The worker's display name.
        worker: String,
        /// The project's name. The original has no such field.
        #[serde(default)]
        project_name: String,
    },
    /// A meeting was closed or declined.
    MeetingEnded {
        /// The meeting.
        meeting_id: MeetingId,
        /// The project's name. The original has no such field.
        #[serde(default)]
        project_name: String,
    },
    /// A worker or the manager requests a meeting with the user. The original has no such event.
    MeetingRequested {
        /// The meeting.
        meeting_id: MeetingId,
        /// The worker's display name.
        worker: String,
        /// The project's name.
        project_name: String,
    },
    /// An event of a later version of the host.
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
