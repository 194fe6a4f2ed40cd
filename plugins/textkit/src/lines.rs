//! `sort_lines`.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BTreeSet},
};

use guild_plugin_sdk::toolbox::ToolError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The lines.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// The order: `text`, the default, is alphabetical, capital and small letters beside each other; `number` goes by the
    /// number that a line begins with (lines without one last), `count` by how often a line is there, the most frequent
    /// first; `none` leaves the lines as they come.
    #[serde(default)]
    order: Order,
    /// Whether the order is turned around.
    #[serde(default)]
    reverse: bool,
    /// Whether each line is kept only once, where it is first.
    #[serde(default)]
    unique: bool,
    /// Whether capital and small letters are the same.
    #[serde(default)]
    ignore_case: bool,
    /// Whether each line is preceded by how often it was there and a tab; then each is kept only once.
    #[serde(default)]
    counts: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Text,
    None,
    Number,
    Count,
}

/// The lines in their order. Blank lines at the end are left out.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Sorted {
    /// How many lines there are now.
    lines: usize,
    /// How many were left out, because they were there before.
    dropped: usize,
    /// The lines.
    text: String,
}

/// A line, what it is compared by, and how often it is there.
struct Line<'a> {
    text: &'a str,
    key: String,
    count: usize,
}

pub(crate) fn sort_lines(input: Input) -> Result<Sorted, ToolError> {
    let key = |line: &str| if input.ignore_case { line.to_lowercase() } else { line.to_owned() };
    let all = input.text.trim_end_matches(['\n', '\r']).lines();
    let total = all.clone().count();
    let mut counts = BTreeMap::<String, usize>::new();
    for line in all.clone() {
        *counts.entry(key(line)).or_default() += 1;
    }
    let lines = all.map(|text| {
        let key = key(text);
        let count = counts.get(&key).copied().unwrap_or_default();
        Line { text, key, count }
    });
    let mut lines: Vec<Line<'_>> = lines.collect();
    if input.unique || input.counts {
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert(line.key.clone()));
    }
    // A stable order: what is equal stays as it came.
    match input.order {
        Order::None => {}
        Order::Text => lines.sort_by_cached_key(|line| (line.text.to_lowercase(), line.key.clone())),
        Order::Number => lines.sort_by_cached_key(|line| Number(leading(line.text))),
        Order::Count => lines.sort_by_key(|line| Reverse(line.count)),
    }
    if input.reverse {
        lines.reverse();
    }
    let mut text = String::new();
    for line in &lines {
        if input.counts {
            text.push_str(&format!("{}\t", line.count));
        }
        text.push_str(line.text);
        text.push('\n');
    }
    Ok(Sorted { lines: lines.len(), dropped: total - lines.len(), text })
}

/// The number that a line begins with.
fn leading(line: &str) -> Option<f64> {
    let line = line.trim_start();
    let end = line.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(line.len());
    line.get(..end)?.trim_end_matches('.').parse().ok()
}

/// In order of size, none last.
#[derive(PartialEq)]
struct Number(Option<f64>);

impl Eq for Number {}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::call;

    fn sorted(mut input: Value, text: &str) -> String {
        input["text"] = text.into();
        call("sort_lines", input).unwrap()["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn lines_are_sorted_in_each_order() {
        assert_eq!(sorted(json!({"order": "text"}), "b\na\nC\nA\n"), "A\na\nb\nC\n");
        assert_eq!(sorted(json!({"order": "text", "ignoreCase": true, "reverse": true}), "b\na\nC"), "C\nb\na\n");
        assert_eq!(sorted(json!({"order": "number"}), "x\n10. b\n-2\n9.5 a\n"), "-2\n9.5 a\n10. b\nx\n");
        assert_eq!(sorted(json!({"order": "count", "counts": true}), "a\nb\nb\nc\n"), "2\tb\n1\ta\n1\tc\n");
    }

    #[test]
    fn a_line_that_was_there_is_dropped_and_counted() {
        let once = json!({"text": "b\nA\na\nb\n\n", "order": "none", "unique": true, "ignoreCase": true});
        assert_eq!(call("sort_lines", once).unwrap(), json!({"lines": 2, "dropped": 2, "text": "b\nA\n"}));
    }

    #[test]
    fn lines_are_sorted_where_nothing_else_is_asked_for() {
        assert_eq!(sorted(json!({}), "b\na\nb"), "a\nb\nb\n");
        assert_eq!(sorted(json!({"order": "none"}), "b\n\na\nb"), "b\n\na\nb\n");
    }
}
