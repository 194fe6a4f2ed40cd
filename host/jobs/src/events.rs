//! Events of jobs, for whoever passes them on to clients.
//!
//! An event is published after its change is stored, and the events of one job in the order of their changes.

use guild_contract::{JobId, News};
use jiff::Timestamp;

/// A change of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEvent {
    /// When it happened.
    pub time: Timestamp,
    /// The job.
    pub job: JobId,
    /// What happened; its texts are cut.
    pub news: News,
    /// Whether a text was cut.
    pub truncated: bool,
}

/// Receives the events of a store.
pub trait Subscriber: Send + Sync {
    /// Takes an event. The job's own thread calls it, with locks of the job held: it must only put the event away.
    fn receive(&self, event: JobEvent);
}
