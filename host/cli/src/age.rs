//! Spans of time, as people write and read them.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};

/// Parses an age: `12h`, `30d`, `2w`. A day has 24 hours; months and years, which vary, are refused.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|_| "a time is a number and a unit, as 12h, 30d or 2w".to_owned())?;
    let exact = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "months and years vary in length; use days (d) or weeks (w)".to_owned())?;
    Duration::try_from(exact).map_err(|_| "a time cannot be negative".to_owned())
}

/// How long ago a timestamp of the wire was, in its largest unit: `3 min ago`. `None` where it is not RFC 3339.
pub(crate) fn ago(timestamp: &str, now: Timestamp) -> Option<String> {
    let then: Timestamp = timestamp.parse().ok()?;
    let seconds = now.duration_since(then).as_secs();
    Some(match seconds {
        ..1 => "just now".to_owned(),
        1..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse("1w 12h"), Ok(Duration::from_secs(7 * 86_400 + 43_200)));
        for (text, reason) in [("30", "number and a unit"), ("1mo", "months"), ("-1d", "negative"), ("", "number")] {
            assert!(parse(text).unwrap_err().contains(reason), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn an_old_timestamp_is_told_in_its_largest_unit() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(ago("2026-01-01T23:59:30Z", now).unwrap(), "30 s ago");
        assert_eq!(ago("2026-01-01T20:00:00.5Z", now).unwrap(), "3 h ago");
        assert_eq!(ago("2025-12-30T00:00:00Z", now).unwrap(), "3 days ago");
        assert_eq!(ago("2027-01-01T00:00:00Z", now).unwrap(), "just now");
        assert_eq!(ago("yesterday", now), None);
    }
}
