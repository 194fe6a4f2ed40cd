//! Parses and displays durations and times.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp, civil::Date, tz::TimeZone};

/// Parses an age: `12h`, `30d`, `2w`. A day has 24 hours; months and years, which vary, are refused.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|_| "a time is a number and a unit, such as 12h, 30d or 2w".to_owned())?;
    let exact = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "months and years vary in length; use days (d) or weeks (w)".to_owned())?;
    Duration::try_from(exact).map_err(|_| "a time cannot be negative".to_owned())
}

/// Parses a time in the past: an age, a date (midnight UTC), or an RFC 3339 time.
pub(crate) fn since(text: &str) -> Result<Timestamp, String> {
    moment(text, |age| Timestamp::now().checked_sub(age).map_err(|_| "the time is too long ago".to_owned()))
}

/// Parses a time in the future: a duration from now, a date (midnight UTC), or an RFC 3339 time.
pub(crate) fn until(text: &str) -> Result<Timestamp, String> {
    let moment =
        moment(text, |span| Timestamp::now().checked_add(span).map_err(|_| "the time is too late".to_owned()))?;
    if moment > Timestamp::now() { Ok(moment) } else { Err("the time is in the past".to_owned()) }
}

fn moment(text: &str, of_span: impl FnOnce(Duration) -> Result<Timestamp, String>) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    if let Ok(date) = text.parse::<Date>() {
        return date.to_zoned(TimeZone::UTC).map(|day| day.timestamp()).map_err(|e| e.to_string());
    }
    of_span(parse(text).map_err(|why| format!("{why}, or a date such as 2026-01-01"))?)
}

/// A duration in its two largest units: `2 h 05 min`.
pub(crate) fn span(seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and a duration is not negative"
    )]
    let whole = seconds as u64;
    match whole {
        ..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The age of an RFC 3339 timestamp in its largest unit: `3 min ago`. `None` if it cannot be parsed.
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
    fn a_moment_is_an_age_or_a_date() {
        assert_eq!(since("2026-01-01").unwrap(), "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(since("2026-01-01T12:00:00+02:00").unwrap(), "2026-01-01T10:00:00Z".parse().unwrap());
        let then = since("7d").unwrap();
        let week = Timestamp::now().duration_since(then).as_secs();
        assert!((7 * 86_400..7 * 86_400 + 60).contains(&week), "{week}");
        assert!(since("last week").unwrap_err().ends_with("12h, 30d or 2w, or a date such as 2026-01-01"));
    }

    #[test]
    fn a_future_moment_is_a_span_or_a_date_and_not_over() {
        let day = until("1d").unwrap().duration_since(Timestamp::now()).as_secs();
        assert!((86_340..=86_400).contains(&day), "{day}");
        assert_eq!(until("2999-01-01").unwrap(), "2999-01-01T00:00:00Z".parse().unwrap());
        for (text, why) in [("2020-01-01", "in the past"), ("0s", "in the past"), ("soon", "number and a unit")] {
            assert!(until(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_span_is_shown_in_its_two_largest_units() {
        assert_eq!([0.26, 42.9, 65.0, 7505.0].map(span), ["0.3 s", "42 s", "1 min 05 s", "2 h 05 min"]);
    }

    #[test]
    fn an_old_timestamp_is_shown_in_its_largest_unit() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(ago("2026-01-01T23:59:30Z", now).unwrap(), "30 s ago");
        assert_eq!(ago("2026-01-01T20:00:00.5Z", now).unwrap(), "3 h ago");
        assert_eq!(ago("2025-12-30T00:00:00Z", now).unwrap(), "3 days ago");
        assert_eq!(ago("2027-01-01T00:00:00Z", now).unwrap(), "just now");
        assert_eq!(ago("yesterday", now), None);
    }
}
