//! Renders parts that several pages have.

use std::{borrow::Cow, fmt::Write as _};

use guild_contract::{JobStatus, JobUsage, text::harmless};
use jiff::Timestamp;
use maud::{Markup, html};

/// The field of a form with the viewer's secret.
pub const CSRF_FIELD: &str = "csrf";
/// The path of the form that asks for a token.
pub const SIGN_IN: &str = "/page/sign-in";
/// The path that ends a session.
pub const SIGN_OUT: &str = "/page/sign-out";

/// The path of the first page of the hall.
pub const HALL: &str = "/page/hall";
/// The path of the page of what members used.
pub const USAGE: &str = "/page/usage";
/// The path of the page of the host itself.
pub const HOST: &str = "/page/host";

/// The person who looks at a page.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// The name of the session's token; none for a caller on this machine that needs no token.
    pub token: Option<String>,
    /// The secret that forms send back, which pages of other sites cannot read.
    pub csrf: String,
}

/// The path of a job's page.
pub fn job_path(member: &str, job: &str) -> String {
    format!("/page/jobs/{job}/{member}")
}

/// The path of a member's page.
pub fn member_path(member: &str) -> String {
    format!("/page/members/{member}")
}

/// A text of anybody, without control characters; maud escapes it.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    harmless(text)
}

/// The hidden field that forms need.
pub(crate) fn csrf(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(viewer.csrf); }
}

/// The state of a job, in a word.
pub(crate) fn status(status: JobStatus, queued: bool, held_back: bool) -> Markup {
    let (class, word) = match status {
        JobStatus::Running if held_back => ("held", "held back"),
        JobStatus::Running if queued => ("queued", "queued"),
        other => (other.as_str(), other.as_str()),
    };
    html! { span class={ "status " (class) } { (word) } }
}

/// A time, as RFC 3339 and to be read: the date and the time in UTC, to the second.
pub(crate) fn time(at: &str) -> Markup {
    let shown = at
        .parse::<Timestamp>()
        .map_or_else(|_| text(at).into_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    html! { time datetime=(at) { (shown) } }
}

/// A path as a part of a path, or as the value of a query.
pub(crate) fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => encoded.push(char::from(byte)),
            other => _ = write!(encoded, "%{other:02X}"),
        }
    }
    encoded
}

/// A duration to be read.
pub(crate) fn seconds(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let whole = seconds.max(0.0) as u64;
    match whole {
        0 => format!("{:.0} ms", seconds.max(0.0) * 1000.0),
        1..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A number with spaces between its thousands.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// The path of a line from one point to another, in a picture; both its ends are level for `bend`.
pub(crate) fn curve((x1, y1): (usize, usize), (x2, y2): (usize, usize), bend: usize) -> String {
    format!("M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend))
}

/// The tokens and the cost of a job.
pub(crate) fn usage(used: &JobUsage) -> Markup {
    let cost = match (used.usage.cost_usd, used.usage.known_cost()) {
        (Some(cost), _) => format!("${cost:.4}"),
        (None, 0.0) => "unknown cost".to_owned(),
        (None, known) => format!("more than ${known:.4}"),
    };
    html! {
        span { (text(&used.agent)) }
        @for model in &used.models { " " code { (text(model)) } }
        " · " (number(used.usage.turns.into())) @if used.usage.turns == 1 { " turn · " } @else { " turns · " }
        (number(used.usage.tokens())) " tokens · " (cost) " · " (seconds(used.wall_seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_can_be_read() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        assert_eq!([0.25, 1.0, 61.0, 7384.0].map(seconds), ["250 ms", "1.0 s", "1 min 1 s", "2 h 3 min"]);
    }
}
