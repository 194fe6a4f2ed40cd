//! Compares two readings of `guild.toml`, key by key.

use std::collections::BTreeMap;

use guild_contract::{Limits, limits::Setting};
use toml::{Table, Value};

/// The most characters of a value that are shown.
const SHOWN_CHARS: usize = 300;
/// The text for a key that is missing in the file.
const NOT_SET: &str = "not set";

/// A key whose value has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The full key, such as `limits.task_bytes`.
    pub key: String,
    /// The old and the new value, or the removed and added items of a list.
    pub text: String,
    /// Whether the change needs a restart of the host.
    pub at_start: bool,
}

/// The changes, by key. The file contains no secrets, only the places of secrets.
pub fn changes(old: &Table, new: &Table) -> Vec<Change> {
    let (before, now) = (leaves(old), leaves(new));
    let keys: Vec<_> = before.keys().chain(now.keys().filter(|key| !before.contains_key(*key))).collect();
    let mut changes: Vec<_> = keys
        .into_iter()
        .filter(|key| before.get(*key) != now.get(*key))
        .map(|key| Change {
            key: key.iter().map(|part| written(part)).collect::<Vec<_>>().join("."),
            text: difference(before.get(key).copied(), now.get(key).copied()),
            at_start: is_at_start(key)
                || key.first() == Some(&"tls") && old.contains_key("tls") != new.contains_key("tls"),
        })
        .collect();
    changes.sort_by(|one, other| one.key.cmp(&other.key));
    changes
}

/// All values that are not tables, by their paths of keys.
fn leaves(table: &Table) -> BTreeMap<Vec<&str>, &Value> {
    let (mut leaves, mut tables) = (BTreeMap::new(), vec![(Vec::new(), table)]);
    while let Some((path, table)) = tables.pop() {
        for (key, value) in table {
            let path = [&path[..], &[key.as_str()]].concat();
            match value {
                Value::Table(inner) if !inner.is_empty() => tables.push((path, inner)),
                value => drop(leaves.insert(path, value)),
            }
        }
    }
    leaves
}

/// The key as it is written in the file.
fn written(key: &str) -> String {
    let is_bare = !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'));
    if is_bare { key.to_owned() } else { format!("{key:?}") }
}

fn difference(old: Option<&Value>, new: Option<&Value>) -> String {
    let (Value::Array(before), Value::Array(now)) = (list(old), list(new)) else {
        let shown = |value: Option<&Value>| value.map_or_else(|| NOT_SET.to_owned(), |value| cut(&value.to_string()));
        return format!("{} -> {}", shown(old), shown(new));
    };
    let only = |these: &[Value], others: &[Value]| {
        let only: Vec<_> = these.iter().filter(|value| !others.contains(value)).map(ToString::to_string).collect();
        (!only.is_empty()).then(|| cut(&only.join(", ")))
    };
    match (only(&before, &now), only(&now, &before)) {
        (Some(gone), Some(added)) => format!("removed {gone}; added {added}"),
        (Some(gone), None) => format!("removed {gone}"),
        (None, Some(added)) => format!("added {added}"),
        (None, None) if old.is_none() || new.is_none() => {
            let shown = |value: Option<&Value>| if value.is_some() { "[]" } else { NOT_SET };
            format!("{} -> {}", shown(old), shown(new))
        }
        (None, None) => "the same values, in another order or with other repetitions".to_owned(),
    }
}

/// The value as a list; an empty list if there is no value.
fn list(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| Value::Array(Vec::new()))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Whether a running host keeps the value from its start.
fn is_at_start(key: &[&str]) -> bool {
    match key {
        ["members" | "bind" | "port" | "behind_proxy"] | ["hall", "home"] | ["member", _, "mcp"] | ["cluster", ..] => {
            true
        }
        ["extractive" | "claude" | "api" | "scripted", name] => *name == "sessions",
        ["limits", name] | ["member", _, "limits", name] => {
            Limits::ALL.iter().any(|limit| limit.name == *name && limit.setting == Setting::KeyAtStart)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(old: &str, new: &str) -> Vec<(String, String, bool)> {
        let changes = changes(&old.parse().unwrap(), &new.parse().unwrap());
        changes.into_iter().map(|Change { key, text, at_start }| (key, text, at_start)).collect()
    }

    #[test]
    fn each_key_that_differs_is_named_with_what_it_was_and_is() {
        assert_eq!(of("agent = 'claude'\n[limits]\ntables = 3", "agent = 'claude'\n[limits]\ntables = 3"), []);
        let change = |key: &str, text: &str, at_start| (key.to_owned(), text.to_owned(), at_start);
        assert_eq!(
            of(
                "port = 1\n[limits]\ntask_bytes = 3\nrunning_jobs = 5\n[member.'a/b']\nallow = ['log', 'web']",
                "[limits]\ntask_bytes = 4\nrunning_jobs = 6\n[member.'a/b']\nallow = ['log', 'memory']\n[member.c]\nmcp = 'any'"
            ),
            [
                change("limits.running_jobs", "5 -> 6", true),
                change("limits.task_bytes", "3 -> 4", false),
                change("member.\"a/b\".allow", "removed \"web\"; added \"memory\"", false),
                change("member.c.mcp", "not set -> \"any\"", true),
                change("port", "1 -> not set", true),
            ]
        );
    }

    #[test]
    fn of_a_list_of_tables_only_what_is_new_and_gone_is_told() {
        let roots =
            |paths: &[&str]| paths.iter().map(|path| format!("[[roots]]\npath = '{path}'\n")).collect::<String>();
        let change = |old: &[&str], new: &[&str]| of(&roots(old), &roots(new)).remove(0).1;
        assert_eq!(change(&["a"], &["a", "b"]), "added { path = \"b\" }");
        assert_eq!(change(&["a", "b"], &["b"]), "removed { path = \"a\" }");
        assert_eq!(change(&["a", "b"], &["b", "a"]), "the same values, in another order or with other repetitions");
        assert_eq!(change(&[], &["a"]), "added { path = \"a\" }");
    }

    #[test]
    fn a_long_value_is_cut() {
        let long = "x".repeat(2000);
        let [(_, text, _)] = &of("", &format!("members = '{long}'"))[..] else { panic!("one change") };
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn tls_that_comes_or_goes_needs_a_start_and_another_certificate_does_not() {
        let tls = |certificate: &str| format!("[tls]\ncertificate = '{certificate}'\nkey = 'k'");
        assert!(of("", &tls("a")).iter().all(|(.., at_start)| *at_start));
        assert!(of(&tls("a"), "").iter().all(|(.., at_start)| *at_start));
        assert!(!of(&tls("a"), &tls("b"))[0].2);
    }
}
