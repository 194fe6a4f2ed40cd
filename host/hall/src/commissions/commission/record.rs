//! Reads and writes the record of a commission: Markdown with frontmatter, which people and other programs read
//! (`.lore/work/commissions/<id>.md`).
//!
//! The order and the quoting are those that the readers of the original expect, some of which read lines and not YAML:
//! texts are in double quotes on one line, names and times are plain.

use guild_contract::hall::{CommissionStatus, Origin, Overrides, TimelineEntry};
use serde::{Deserialize, Serialize};
use serde_saphyr::{DoubleQuoted, FlowSeq};

use crate::{
    files::frontmatter,
    records::log::{Line, entries},
};

/// The fields of a commission's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// `Commission: ` and a short label.
    pub title: String,
    /// The creation date, in UTC: `YYYY-MM-DD`.
    pub date: String,
    /// The source, if the commission was not created by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Origin>,
    /// The worker's display name.
    pub worker: String,
    /// The worker's display title.
    pub worker_display_title: String,
    /// The prompt.
    pub prompt: String,
    /// The dependencies: other commissions, and paths of artifacts.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Paths of the artifacts that the commission produced, below `.lore/`.
    #[serde(default)]
    pub linked_artifacts: Vec<String>,
    /// The model and bounds in place of the worker's own.
    #[serde(default)]
    pub resource_overrides: Overrides,
    /// The events in order. Entries are only added.
    #[serde(default)]
    pub activity_timeline: Vec<TimelineEntry>,
    /// The state of the work, in the worker's words.
    #[serde(default)]
    pub current_progress: String,
    /// The project's name.
    pub project_name: String,
    /// The result: the text below the frontmatter.
    #[serde(default)]
    pub body: String,
}

/// The frontmatter in its written form.
#[derive(Serialize)]
struct Frontmatter<'a> {
    title: DoubleQuoted<&'a str>,
    date: &'a str,
    status: CommissionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source<'a>>,
    tags: FlowSeq<[&'static str; 1]>,
    worker: &'a str,
    #[serde(rename = "workerDisplayTitle")]
    worker_display_title: DoubleQuoted<&'a str>,
    prompt: DoubleQuoted<&'a str>,
    dependencies: &'a [String],
    linked_artifacts: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_overrides: Option<&'a Overrides>,
    activity_timeline: Vec<Line<'a>>,
    current_progress: DoubleQuoted<&'a str>,
    #[serde(rename = "projectName")]
    project_name: &'a str,
}

#[derive(Serialize)]
struct Source<'a> {
    description: DoubleQuoted<&'a str>,
}

impl Record {
    /// Renders the record's file.
    ///
    /// # Errors
    ///
    /// Returns an error when YAML cannot express a field.
    pub fn render(&self, status: CommissionStatus) -> Result<String, String> {
        let frontmatter = Frontmatter {
            title: DoubleQuoted(&self.title),
            date: &self.date,
            status,
            source: self.source.as_ref().map(|source| Source { description: DoubleQuoted(&source.description) }),
            tags: FlowSeq(["commission"]),
            worker: &self.worker,
            worker_display_title: DoubleQuoted(&self.worker_display_title),
            prompt: DoubleQuoted(&self.prompt),
            dependencies: &self.dependencies,
            linked_artifacts: &self.linked_artifacts,
            resource_overrides: (!self.resource_overrides.is_empty()).then_some(&self.resource_overrides),
            activity_timeline: self.activity_timeline.iter().map(Line::of).collect(),
            current_progress: DoubleQuoted(&self.current_progress),
            project_name: &self.project_name,
        };
        frontmatter::render(&frontmatter, &self.body)
    }
}

/// A parsed record, whichever program wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// The record's fields. A field of a wrong type counts as missing.
    pub record: Record,
    /// The state, if the record has one.
    pub status: Option<CommissionStatus>,
}

/// Parses a record's file. If its frontmatter is missing or invalid, all fields are empty: the commission still exists.
pub fn read(text: &str) -> Read {
    let text = frontmatter::plain(text);
    let Some((yaml, body)) = frontmatter::split(&text) else {
        return Read { record: Record { body: text, ..Record::default() }, status: None };
    };
    let value = frontmatter::parse(yaml).unwrap_or_default();
    let text = |key: &str| frontmatter::text(&value, key);
    let list = |key: &str| frontmatter::texts(&value, key).unwrap_or_default();
    let overrides = value.get("resource_overrides").cloned().unwrap_or_default();
    let record = Record {
        title: text("title"),
        date: text("date"),
        source: value.get("source").and_then(|source| serde_json::from_value(source.clone()).ok()),
        worker: text("worker"),
        worker_display_title: text("workerDisplayTitle"),
        prompt: text("prompt"),
        dependencies: list("dependencies"),
        linked_artifacts: list("linked_artifacts"),
        resource_overrides: serde_json::from_value(overrides).unwrap_or_default(),
        activity_timeline: entries(&value, "activity_timeline"),
        current_progress: text("current_progress"),
        project_name: text("projectName"),
        body: body.to_owned(),
    };
    Read { record, status: text("status").parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let entry = |event: &str, reason: &str, states: Option<(&str, &str)>| TimelineEntry {
            timestamp: "2026-11-23T18:34:41.872Z".to_owned(),
            event: event.to_owned(),
            reason: reason.to_owned(),
            from: states.map(|(from, _)| from.to_owned()),
            to: states.map(|(_, to)| to.to_owned()),
        };
        Record {
            title: "Commission: Add \"x\"".to_owned(),
            date: "2026-11-23".to_owned(),
            worker: "Dalton".to_owned(),
            worker_display_title: "Guild Artificer".to_owned(),
            prompt: "Line1\nLine2 \"q\" \\ $' é\u{7}\u{2028}\r".to_owned(),
            dependencies: vec!["specs/a.md".to_owned()],
            resource_overrides: Overrides { model: Some("haiku".to_owned()), ..Overrides::default() },
            activity_timeline: vec![
                entry("created", "Commission created", None),
                entry("status_dispatched", "Dispatched to worker", Some(("pending", "dispatched"))),
            ],
            project_name: "demo".to_owned(),
            body: "All done.\n".to_owned(),
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_written_as_readers_of_lines_expect_it() {
        assert_eq!(
            record().render(CommissionStatus::Dispatched).unwrap(),
            r#"---
title: "Commission: Add \"x\""
date: 2026-11-23
status: dispatched
tags: [commission]
worker: Dalton
workerDisplayTitle: "Guild Artificer"
prompt: "Line1\nLine2 \"q\" \\ $' é\a\L\r"
dependencies:
  - specs/a.md
linked_artifacts: []
resource_overrides:
  model: haiku
activity_timeline:
  - timestamp: 2026-11-23T18:34:41.872Z
    event: created
    reason: "Commission created"
  - timestamp: 2026-11-23T18:34:41.872Z
    event: status_dispatched
    reason: "Dispatched to worker"
    from: "pending"
    to: "dispatched"
current_progress: ""
projectName: demo
---
All done.
"#
        );
    }

    #[test]
    fn what_was_written_is_read_again() {
        let mut record = record();
        for text in ["yes", "1", "- x", "# x", "a: b", "'", "--- x\n---\n", " x ", "null", "~", "2026-01-01", ""] {
            record.prompt = text.to_owned();
            record.worker = text.to_owned();
            record.dependencies = vec![text.to_owned()];
            record.body = format!("{text}\n---\n");
            let written = record.render(CommissionStatus::Pending).unwrap();
            let read = read(&written);
            assert_eq!((read.record, read.status), (record.clone(), Some(CommissionStatus::Pending)), "{written}");
        }
    }

    #[test]
    fn a_record_of_another_hand_is_read_as_far_as_it_goes() {
        let text = "---\r\ntitle: T\r\nstatus: \"failed\"\r\ndate: 2026-01-02\r\ndependencies: \r\nlinked_artifacts:\r\n\r\n  - a\r\n  - 7\r\n\
                    activity_timeline:\r\n  - x\r\n  - timestamp: 2026-01-02T03:04:05.000Z\r\n    event: e\r\n---\r\n\r\nBody\r\n";
        let Read { record, status } = read(text);
        assert_eq!((record.title.as_str(), status), ("T", Some(CommissionStatus::Failed)));
        assert_eq!((record.date.as_str(), record.dependencies.len()), ("2026-01-02", 0));
        assert_eq!((record.linked_artifacts, record.body.as_str()), (vec!["a".to_owned()], "\nBody\n"));
        assert_eq!(record.activity_timeline.len(), 1);
        for broken in ["", "no frontmatter", "---\ntitle: [\n---\nx", "---\ntitle: a\ntitle: b\n---\nx", "---\nopen"] {
            assert_eq!(read(broken).status, None, "{broken}");
        }
    }
}
