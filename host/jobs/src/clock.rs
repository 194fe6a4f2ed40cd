//! Time, as the stores see it: injected, so that a test can move it.

use jiff::{Timestamp, Unit};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// RFC 3339 in UTC, to the millisecond: how every file and every answer spells a time.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.round(Unit::Millisecond).unwrap_or(time).to_string()
}
