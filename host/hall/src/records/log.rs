//! Handles the log and the body of a record, for commissions and meetings alike.

use std::fmt::Write as _;

use guild_contract::{Decision, OperationError, hall::TimelineEntry};
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

/// The most bytes of a log to which people and workers add, and the bytes that each entry counts besides its text.
const LOG_BYTES: usize = 2 * 1024 * 1024;
const ENTRY_BYTES: usize = 128;
/// The most bytes of a result, or of notes, in a record.
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// The event that lists the overrides that exceeded the operator's bounds, with the bounds in place of them.
pub(crate) const CUT: &str = "overrides_cut";

/// The bytes of a log.
pub(crate) fn bytes(log: &[TimelineEntry]) -> usize {
    log.iter().map(|entry| entry.reason.len() + ENTRY_BYTES).sum()
}

/// Refuses another entry of that text if a log is full. The hall's own entries are not bounded.
///
/// # Errors
///
/// Returns an error when the log is full.
pub(crate) fn check_room(log: &[TimelineEntry], text: &str) -> Result<(), OperationError> {
    let all = bytes(log) + text.len() + ENTRY_BYTES;
    if all <= LOG_BYTES {
        return Ok(());
    }
    Err(OperationError::Conflict(format!("the log would have {all} bytes, more than {LOG_BYTES}")))
}

/// The beginning of a result or of notes, as long as a record can hold.
pub(crate) fn fitting(mut text: String) -> String {
    let whole = text.len();
    if whole > BODY_BYTES {
        text.truncate(text.floor_char_boundary(BODY_BYTES));
        text.push_str(&format!("\n\n(The rest of the {whole} bytes is left out.)"));
    }
    text
}

/// A [`TimelineEntry`] in its written form.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    timestamp: &'a str,
    event: &'a str,
    reason: DoubleQuoted<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<DoubleQuoted<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<DoubleQuoted<&'a str>>,
}

impl<'a> Line<'a> {
    pub(crate) fn of(entry: &'a TimelineEntry) -> Self {
        Self {
            timestamp: &entry.timestamp,
            event: &entry.event,
            reason: DoubleQuoted(&entry.reason),
            from: entry.from.as_deref().map(DoubleQuoted),
            to: entry.to.as_deref().map(DoubleQuoted),
        }
    }
}

/// The entries of a list in frontmatter.
pub(crate) fn entries(data: &Value, key: &str) -> Vec<TimelineEntry> {
    let entries = data.get(key).and_then(Value::as_array).into_iter().flatten();
    entries.filter(|entry| entry.is_object()).map(read_entry).collect()
}

fn read_entry(value: &Value) -> TimelineEntry {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    TimelineEntry {
        timestamp: text("timestamp").unwrap_or_default(),
        event: text("event").unwrap_or_default(),
        reason: text("reason").unwrap_or_default(),
        from: text("from"),
        to: text("to"),
    }
}

/// The body of a record with the result `result`, followed by the decisions.
pub(crate) fn body(result: &str, decisions: &[Decision]) -> String {
    let mut body = result.trim_end().to_owned();
    if !body.is_empty() {
        body.push('\n');
    }
    if !decisions.is_empty() {
        body.push_str("\n## Decisions\n");
    }
    for Decision { question, decision, reasoning } in decisions {
        // Writing to a text cannot fail.
        let _ = write!(body, "\n**{}**\n{}\n*Reasoning: {}*\n", question.trim(), decision.trim(), reasoning.trim());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_and_a_result_end_where_a_record_would_be_too_large_to_be_read_again() {
        let entry = |bytes: usize| TimelineEntry { reason: "é".repeat(bytes / 2), ..TimelineEntry::default() };
        check_room(&[], &"x".repeat(1024 * 1024)).unwrap();
        let full = check_room(&[entry(1024 * 1024)], &"x".repeat(1024 * 1024)).unwrap_err().to_string();
        assert!(full.contains("2097408 bytes") && full.contains("2097152"), "{full}");
        check_room(&vec![TimelineEntry::default(); LOG_BYTES / ENTRY_BYTES], "").unwrap_err();

        assert_eq!(fitting("short".to_owned()), "short");
        let long = fitting("é".repeat(BODY_BYTES));
        assert!(long.len() < BODY_BYTES + 200 && long.ends_with("(The rest of the 8388608 bytes is left out.)"));
    }
}
