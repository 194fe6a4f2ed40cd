//! Time, as the stores see it: injected, so that a test can move it.

use std::time::{SystemTime, UNIX_EPOCH};

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
        let now = SystemTime::now();
        Timestamp::try_from(now).unwrap_or(if now < UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX })
    }
}

/// Whether the system's clock says a time that files, answers and tokens can have: one from 1970 to 9999. Libraries that
/// spell times panic at others.
///
/// # Errors
/// A sentence that tells what to do.
pub fn check(now: SystemTime) -> Result<(), &'static str> {
    if now >= UNIX_EPOCH && Timestamp::try_from(now).is_ok() {
        return Ok(());
    }
    Err("this machine's clock says a time before 1970 or after 9999; set the clock")
}

/// RFC 3339 in UTC, to the millisecond: how every file and every answer spells a time.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.round(Unit::Millisecond).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_is_sound_from_1970_to_9999() {
        for (seconds, sound) in [(0, true), (1_800_000_000, true), (253_402_000_000, true), (253_402_300_800, false)] {
            assert_eq!(check(UNIX_EPOCH + Duration::from_secs(seconds)).is_ok(), sound, "{seconds}");
        }
        assert!(check(UNIX_EPOCH - Duration::from_nanos(1)).unwrap_err().contains("set the clock"));
    }
}
