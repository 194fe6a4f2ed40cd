//! Defines failures of requests: their reason, whether a repetition may succeed, and the pause before it.

use std::{
    error::Error as _,
    iter,
    time::{Duration, SystemTime},
};

use guild_contract::{secret::Secret, text::cut};
use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde_json::Value;

/// The longest pause between two requests, unless the provider asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Characters of an error that are shown; a provider may send any amount.
const ERROR_CHARS: usize = 1000;

/// A request that failed.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    /// The reason, for the job's error.
    pub(crate) text: String,
    /// Whether the same request may succeed later.
    pub(crate) again: bool,
    /// Whether it is known that the request cost nothing: it was never sent, or refused with a status.
    pub(crate) unpaid: bool,
    /// The pause that the provider asks for.
    pub(crate) after: Option<Duration>,
}

impl Failure {
    /// A permanent failure: the same request would fail again.
    pub(crate) fn last(text: impl Into<String>) -> Self {
        Self { text: text.into(), again: false, unpaid: false, after: None }
    }

    /// A request that was not sent, and would fail again.
    pub(crate) fn unsent(text: impl Into<String>) -> Self {
        Self { unpaid: true, ..Self::last(text) }
    }

    /// A temporary failure: the same request may succeed later.
    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), again: true, unpaid: false, after: None }
    }

    /// A connection that failed, or that broke.
    pub(crate) fn of_connection(error: reqwest::Error) -> Self {
        let again = !error.is_builder();
        let error = error.without_url();
        // Only the innermost cause is useful: "connection refused", "certificate has expired".
        let cause = iter::successors(error.source(), |cause| (*cause).source()).last();
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        let what = if error.is_connect() { "the provider cannot be reached" } else { "the connection broke" };
        let unpaid = error.is_connect() || error.is_builder();
        Self { text: format!("{what}{cause}"), again, unpaid, after: None }
    }

    /// An answer with a status other than success. `key` names the source of the key, for a 401.
    pub(crate) fn of_status(status: StatusCode, body: &str, headers: &HeaderMap, key: Option<&str>) -> Self {
        let said = match message(body) {
            said if said.is_empty() => String::new(),
            said => format!(": {said}"),
        };
        let hint = match (status, key) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(key)) => format!(" (the key is that of {key})"),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => {
                " (no key was sent: set key_env or key_file under [api] in guild.toml)".to_owned()
            }
            _ => String::new(),
        };
        let again = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY);
        let text = format!("the provider answered {status}{said}{hint}");
        Self { text, again, unpaid: true, after: retry_after(headers) }
    }

    /// An error that the provider reports in place of an answer, or in the middle of one.
    pub(crate) fn of_event(error: &Value) -> Self {
        let said = message(&error.to_string());
        let kind = ["type", "status"].iter().find_map(|field| error.get(field)?.as_str()).unwrap_or_default();
        let lasting = ["invalid", "authentication", "permission", "not_found", "NOT_FOUND", "INVALID", "PERMISSION"];
        let again = !lasting.iter().any(|word| kind.contains(word));
        let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
        Self { text: format!("the provider broke off its answer: {said}{kind}"), again, unpaid: false, after: None }
    }

    /// The pause before the `attempt`-th repetition: the provider's own, or else one that grows with each attempt. It
    /// has a random part, so that requests that failed together are not repeated together.
    pub(crate) fn pause(&self, first: Duration, attempt: u32) -> Duration {
        let doubled = first.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(LONGEST_PAUSE);
        match self.after {
            Some(after) => after.saturating_add(first.mul_f64(fastrand::f64())),
            None => doubled.mul_f64(0.5 + fastrand::f64() / 2.0),
        }
    }

    /// The failure without the key, wherever it was quoted, and cut to [`ERROR_CHARS`].
    pub(crate) fn without(mut self, key: Option<&Secret>) -> Self {
        if let Some(key) = key {
            self.text = self.text.replace(key.expose(), "***");
        }
        if let (start, false) = cut(&self.text, ERROR_CHARS) {
            self.text = format!("{start}…");
        }
        self
    }
}

/// The message in the body of an error: a field of the JSON that providers send, else the body's text.
fn message(body: &str) -> String {
    let json: Option<Value> = serde_json::from_str(body).ok();
    let said = json.as_ref().and_then(|json| {
        // Some gateways wrap the object in a list.
        let json = json.get(0).unwrap_or(json);
        ["/error/message", "/message", "/error", "/detail", ""].iter().find_map(|path| json.pointer(path)?.as_str())
    });
    said.unwrap_or(body).trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The pause in `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(value: &str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        retry_after(&headers)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("soon"), None);
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        let wait = after(&date).unwrap();
        assert!((Duration::from_secs(85)..=Duration::from_secs(90)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn pauses_grow_differ_and_end_somewhere() {
        let failure = Failure::passing("");
        let first = Duration::from_secs(1);
        for (attempt, longest) in [(1, 1), (2, 2), (3, 4), (7, 60), (200, 60)] {
            let longest = Duration::from_secs(longest);
            let pauses: Vec<Duration> = (0..50).map(|_| failure.pause(first, attempt)).collect();
            assert!(pauses.iter().all(|pause| *pause >= longest / 2 && *pause <= longest), "{attempt}");
            assert!(pauses.iter().any(|pause| pause != &pauses[0]), "{attempt}");
        }
        let asked = Failure { after: Some(Duration::from_secs(20)), ..failure };
        let pause = asked.pause(first, 1);
        assert!(pause >= Duration::from_secs(20) && pause <= Duration::from_secs(21));
    }

    #[test]
    fn the_message_is_found_in_what_providers_send() {
        for body in [
            r#"{"type":"error","error":{"type":"x","message":"too long"}}"#,
            r#"{"error":{"message":"too long","code":null}}"#,
            r#"[{"error":{"code":400,"message":"too long"}}]"#,
            r#"{"error":"too long"}"#,
            r#"{"detail":"too long"}"#,
            "  too long\n",
        ] {
            assert_eq!(message(body), "too long", "{body}");
        }
    }
}
