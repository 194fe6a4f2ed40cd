//! Defines the heartbeat: standing orders of a project, which the manager carries out when a user requests a tick.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommissionId, DispatchStatus, ProjectParams};
use crate::operation::{Access, Operation, Row};

/// The state of a project's heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatStatus {
    /// Whether `.lore/heartbeat.md` has text below its first heading of the second level.
    pub has_content: bool,
    /// The number of standing orders.
    pub standing_order_count: usize,
    /// The time of the last tick, in milliseconds since 1970; null if there was none.
    pub last_tick: Option<i64>,
    /// The number of commissions that the manager has created in the last tick so far.
    pub commissions_created_last_tick: usize,
    /// Always null: ticks happen only on request.
    pub interval_minutes: Option<u32>,
}

/// Reads the state of a project's heartbeat.
#[derive(Debug)]
pub struct ReadHeartbeat;

impl Operation for ReadHeartbeat {
    type Input = ProjectParams;
    type Output = HeartbeatStatus;
    const ROW: Row = Row::new(
        "heartbeat/status",
        Access::Reads,
        "Counts the standing orders in a project's `.lore/heartbeat.md`, and returns the time of the last tick.",
    )
    .get("/heartbeat/{projectName}/status");
}

/// A tick that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatTicked {
    /// Always true: a tick that cannot start is an error.
    pub triggered: bool,
    /// The manager's commission. The original has no such field.
    pub commission_id: CommissionId,
    /// Whether the commission starts now. The original has no such field.
    pub status: DispatchStatus,
    /// The reason that the commission waits, if it does. The original has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Commissions the manager with the standing orders of a project.
#[derive(Debug)]
pub struct TickHeartbeat;

impl Operation for TickHeartbeat {
    type Input = ProjectParams;
    type Output = HeartbeatTicked;
    const ROW: Row = Row::new(
        "heartbeat/tick",
        Access::Dispatches,
        "Commissions the manager with the standing orders of a project. The manager creates a commission for each \
         order that is due.",
    )
    .post("/heartbeat/{projectName}/tick");
}
