//! What happens to jobs, told as it happens to whoever has to tell others.
//!
//! It is told after the change is stored, and of each job in the order in which it happened.

use guild_contract::{JobId, News};
use jiff::Timestamp;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEvent {
    /// When.
    pub time: Timestamp,
    /// Which job.
    pub job: JobId,
    /// What; its texts are cut.
    pub news: News,
    /// Whether a text was.
    pub truncated: bool,
}

/// Is told what happens to jobs.
///
/// A job's own thread tells it, with locks of the job held: it must take no longer than it takes to put an event away,
/// however many there are who wait for it.
pub trait Listener: Send + Sync {
    /// Takes note of an event.
    fn tell(&self, event: JobEvent);
}
