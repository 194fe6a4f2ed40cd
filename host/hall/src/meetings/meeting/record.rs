//! Reads and writes the record of a meeting: Markdown with frontmatter, which people and other programs read
//! (`.lore/work/meetings/<id>.md`). The body is the notes. Its format is that of a commission's record.

use guild_contract::hall::{MeetingStatus, TimelineEntry};
use serde::{Deserialize, Serialize};
use serde_saphyr::{DoubleQuoted, FlowSeq};

use crate::{
    files::frontmatter,
    records::log::{Line, entries},
};

/// The log event of the meeting's opening.
pub(crate) const OPENED: &str = "opened";

/// The fields of a meeting's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The meeting's title.
    pub title: String,
    /// The date of the request or of the opening, in UTC: `YYYY-MM-DD`.
    pub date: String,
    /// The worker's display name.
    pub worker: String,
    /// The worker's display title.
    pub worker_display_title: String,
    /// The meeting's subject.
    pub agenda: String,
    /// The date to which the user deferred the request; empty if it is not deferred.
    #[serde(default)]
    pub deferred_until: String,
    /// Paths of the meeting's artifacts below `.lore/`.
    #[serde(default)]
    pub linked_artifacts: Vec<String>,
    /// The events in order, as [`TimelineEntry::event`] lists them. Entries are only added.
    #[serde(default)]
    pub meeting_log: Vec<TimelineEntry>,
    /// The notes: the text below the frontmatter.
    #[serde(default)]
    pub body: String,
}

/// The frontmatter in its written form.
#[derive(Serialize)]
struct Frontmatter<'a> {
    title: DoubleQuoted<&'a str>,
    date: &'a str,
    status: MeetingStatus,
    tags: FlowSeq<[&'static str; 1]>,
    worker: &'a str,
    #[serde(rename = "workerDisplayTitle")]
    worker_display_title: DoubleQuoted<&'a str>,
    agenda: DoubleQuoted<&'a str>,
    deferred_until: DoubleQuoted<&'a str>,
    linked_artifacts: &'a [String],
    meeting_log: Vec<Line<'a>>,
}

impl Record {
    /// Renders the record's file.
    ///
    /// # Errors
    ///
    /// Returns an error when YAML cannot express a field.
    pub fn render(&self, status: MeetingStatus) -> Result<String, String> {
        let frontmatter = Frontmatter {
            title: DoubleQuoted(&self.title),
            date: &self.date,
            status,
            tags: FlowSeq(["meeting"]),
            worker: &self.worker,
            worker_display_title: DoubleQuoted(&self.worker_display_title),
            agenda: DoubleQuoted(&self.agenda),
            deferred_until: DoubleQuoted(&self.deferred_until),
            linked_artifacts: &self.linked_artifacts,
            meeting_log: self.meeting_log.iter().map(Line::of).collect(),
        };
        frontmatter::render(&frontmatter, &self.body)
    }
}

/// Parses a record's file. Returns its fields, and its state if it has one. If the frontmatter is missing or invalid,
/// all fields are empty.
pub fn read(text: &str) -> (Record, Option<MeetingStatus>) {
    let text = frontmatter::plain(text);
    let Some((yaml, body)) = frontmatter::split(&text) else {
        return (Record { body: text, ..Record::default() }, None);
    };
    let value = frontmatter::parse(yaml).unwrap_or_default();
    let text = |key: &str| frontmatter::text(&value, key);
    let record = Record {
        title: text("title"),
        date: text("date"),
        worker: text("worker"),
        worker_display_title: text("workerDisplayTitle"),
        agenda: text("agenda"),
        deferred_until: text("deferred_until"),
        linked_artifacts: frontmatter::texts(&value, "linked_artifacts").unwrap_or_default(),
        meeting_log: entries(&value, "meeting_log"),
        body: body.to_owned(),
    };
    (record, text("status").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            title: "Audience with Guild \"Artificer\"".to_owned(),
            date: "2026-11-25".to_owned(),
            worker: "Dalton".to_owned(),
            worker_display_title: "Guild Artificer".to_owned(),
            agenda: "Which?\n## User (x)".to_owned(),
            meeting_log: vec![TimelineEntry {
                timestamp: "2026-11-25T01:02:03.004Z".to_owned(),
                event: OPENED.to_owned(),
                reason: "User started audience".to_owned(),
                ..TimelineEntry::default()
            }],
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_written_in_the_order_and_quoting_of_the_original() {
        assert_eq!(
            record().render(MeetingStatus::Open).unwrap(),
            r#"---
title: "Audience with Guild \"Artificer\""
date: 2026-11-25
status: open
tags: [meeting]
worker: Dalton
workerDisplayTitle: "Guild Artificer"
agenda: "Which?\n## User (x)"
deferred_until: ""
linked_artifacts: []
meeting_log:
  - timestamp: 2026-11-25T01:02:03.004Z
    event: opened
    reason: "User started audience"
---
"#
        );
    }

    #[test]
    fn what_was_written_is_read_again() {
        let mut record = record();
        for text in ["yes", "1", "- x", "# x", "a: b", "'", "--- x\n---\n", " x ", "null", "2026-01-01", ""] {
            record.agenda = text.to_owned();
            record.worker = text.to_owned();
            record.linked_artifacts = vec![text.to_owned()];
            record.body = format!("{text}\n---\n");
            let written = record.render(MeetingStatus::Closed).unwrap();
            assert_eq!(read(&written), (record.clone(), Some(MeetingStatus::Closed)), "{written}");
        }
    }
}
