//! Defines the events of jobs, and the trait that receives them.
//!
//! An event is published after its change is stored. The events of one job are in the order of their changes.

use guild_contract::{EventDetail, JobId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// The time of the change.
    pub time: Timestamp,
    /// The job.
    pub job: JobId,
    /// The change; long texts are cut.
    pub detail: EventDetail,
    /// Whether a text was cut.
    pub truncated: bool,
}

/// Receives the events of a store.
pub trait Subscriber: Send + Sync {
    /// Takes an event. The thread that changes the job calls it while it holds locks of the job, so it must only queue
    /// the event.
    fn receive(&self, event: JobEvent);
}
