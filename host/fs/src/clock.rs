//! The clock of the stores, which a test can replace.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::{Timestamp, Unit};

/// A source of the time.
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

/// Checks that the system's time is from 1970 to 9999. Libraries that format times panic at others.
///
/// # Errors
/// A sentence that says what to do.
pub fn check(now: SystemTime) -> Result<(), &'static str> {
    if now >= UNIX_EPOCH && Timestamp::try_from(now).is_ok() {
        return Ok(());
    }
    Err("this machine's clock says a time before 1970 or after 9999; set the clock")
}

/// The format of times in files and answers: RFC 3339 in UTC, always with three decimals, so that times align and sort as
/// texts.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{:.3}", time.round(Unit::Millisecond).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_keeps_its_zeros() {
        for (nanoseconds, spelled) in [
            (1_800_000_000_000_000_000, "2027-01-15T08:00:00.000Z"),
            (1_800_000_000_120_000_000, "2027-01-15T08:00:00.120Z"),
            (1_800_000_000_999_600_000, "2027-01-15T08:00:01.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_nanosecond(nanoseconds).unwrap()), spelled);
        }
    }

    #[test]
    fn a_clock_is_valid_from_1970_to_9999() {
        for (seconds, sound) in [(0, true), (1_800_000_000, true), (253_402_000_000, true), (253_402_300_800, false)] {
            assert_eq!(check(UNIX_EPOCH + Duration::from_secs(seconds)).is_ok(), sound, "{seconds}");
        }
        assert!(check(UNIX_EPOCH - Duration::from_nanos(1)).unwrap_err().contains("set the clock"));
    }
}
