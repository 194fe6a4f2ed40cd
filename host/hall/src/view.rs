//! What callers see of commissions, meetings and projects: the fields of the original's API, in its order.

use std::{fmt, ops::Deref, sync::Arc};

use serde::Serialize;

use crate::{
    commission::{Author, Commission, CommissionId, Entry, Overrides, Status, record::Origin},
    meeting::{Meeting, MeetingId, MeetingStatus, transcript::Message},
};

/// The most bytes of a text in a list. What is cut ends in `…`; whoever reads the one has the whole.
const LISTED_BYTES: usize = 2048;
/// The most bytes of the texts of one list.
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// What one item of a list counts besides its texts.
const ITEM_BYTES: usize = 512;

/// The items of a list that one answer has.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, from the asked position on.
    pub items: Vec<T>,
    /// How many follow.
    pub more: usize,
}

impl<T> Deref for Page<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// An item of a list.
pub trait Item {
    /// What it is made of.
    type Of;

    /// The item, with its texts cut.
    fn listed(of: &Self::Of) -> Self;

    /// The bytes of its texts.
    fn bytes(&self) -> usize;
}

impl<T: Item> Page<T> {
    /// Of these, as many as one answer has, from a position on.
    pub(crate) fn of(all: &[Arc<T::Of>], offset: usize) -> Self {
        let mut bytes = 0;
        let rest = all.get(offset..).unwrap_or_default();
        let items: Vec<T> = rest
            .iter()
            .map(|of| T::listed(of))
            .take_while(|item| {
                bytes += item.bytes() + ITEM_BYTES;
                bytes <= PAGE_BYTES
            })
            .collect();
        let more = rest.len() - items.len();
        Self { items, more }
    }
}

fn cut(text: &str) -> String {
    match text.get(..text.floor_char_boundary(LISTED_BYTES)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…"),
        _ => text.to_owned(),
    }
}

fn bytes_of(texts: &[&str], lists: &[&[String]]) -> usize {
    texts.iter().map(|text| text.len()).sum::<usize>()
        + lists.iter().copied().flatten().map(|text| text.len() + size_of::<String>()).sum::<usize>()
}

/// A dependency that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// As the commission names it.
    pub dependency: String,
    /// Why what depends on it cannot go on.
    pub why: String,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.dependency, self.why)
    }
}

/// What came of making a commission, or of changing one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Its name.
    pub commission_id: CommissionId,
    /// Where it is: pending, or blocked.
    pub status: Status,
    /// What it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<Blocker>,
    /// A sentence for each bound that was above what the operator allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

/// A commission in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommissionView {
    /// Its name.
    #[serde(rename = "commissionId")]
    pub id: CommissionId,
    /// `Commission: ` and what it is about.
    pub title: String,
    /// Where it is.
    pub status: Status,
    /// Whether it begins by itself as soon as it can. The original has no such field.
    pub queued: bool,
    /// What it waits for. The original has no such field.
    #[serde(rename = "blockedBy", skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<Blocker>,
    /// The worker's name for people.
    pub worker: String,
    /// What the worker is, for people.
    #[serde(rename = "workerDisplayTitle")]
    pub worker_display_title: String,
    /// What is asked.
    pub prompt: String,
    /// What has to be there first.
    pub dependencies: Vec<String>,
    /// What came of it.
    pub linked_artifacts: Vec<String>,
    /// In place of the worker's own.
    pub resource_overrides: Overrides,
    /// Where the work stands.
    pub current_progress: String,
    /// The result.
    pub result_summary: String,
    /// Its project.
    #[serde(rename = "projectName")]
    pub project_name: String,
    /// The day when it was made.
    pub date: String,
    /// The time that a list shows.
    #[serde(rename = "relevantDate")]
    pub relevant_date: String,
    /// What made it, where that was no person.
    pub source: Option<Origin>,
    /// Who made it. The original has no such field.
    #[serde(rename = "createdBy")]
    pub created_by: Author,
    /// The job of its last attempt: its transcript, meters and log. The original has no such field.
    #[serde(rename = "jobId", skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl CommissionView {
    pub(crate) fn of(commission: &Commission) -> Self {
        Self::with(commission, str::to_owned)
    }

    /// With its long texts as `text` has them.
    fn with(commission: &Commission, text: fn(&str) -> String) -> Self {
        let record = &commission.record;
        Self {
            id: commission.commission_id.clone(),
            relevant_date: commission.relevant_date().to_owned(),
            status: commission.status,
            queued: commission.is_queued(),
            blocked_by: Vec::new(),
            created_by: commission.created_by,
            job: commission.attempt.as_ref().map(|attempt| attempt.job.to_string()),
            title: text(&record.title),
            worker: record.worker.clone(),
            worker_display_title: text(&record.worker_display_title),
            prompt: text(&record.prompt),
            dependencies: record.dependencies.clone(),
            linked_artifacts: record.linked_artifacts.clone(),
            resource_overrides: record.resource_overrides.clone(),
            current_progress: text(&record.current_progress),
            result_summary: text(record.body.trim()),
            project_name: commission.project_name.clone(),
            date: record.date.clone(),
            source: record.source.clone(),
        }
    }
}

impl Item for CommissionView {
    type Of = Commission;

    fn listed(of: &Commission) -> Self {
        Self::with(of, cut)
    }

    fn bytes(&self) -> usize {
        let texts =
            [&*self.title, &self.worker_display_title, &self.prompt, &self.current_progress, &self.result_summary];
        bytes_of(&texts, &[&self.dependencies, &self.linked_artifacts])
    }
}

/// One commission, with all that happened to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommissionDetail {
    /// As a list has it.
    pub commission: CommissionView,
    /// What happened, in order.
    pub timeline: Vec<Entry>,
    /// The text of its record.
    pub raw_content: String,
}

/// Which commissions depend on which.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Graph {
    /// The commissions.
    pub nodes: Vec<Node>,
    /// From what is depended on to what depends on it.
    pub edges: Vec<Edge>,
}

/// A commission in a [`Graph`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub id: CommissionId,
    /// What it is about.
    pub title: String,
    /// Where it is.
    pub status: Status,
    /// The worker's name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Its project.
    pub project_name: String,
}

/// A dependency in a [`Graph`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Edge {
    /// What is depended on.
    pub from: CommissionId,
    /// What depends on it.
    pub to: CommissionId,
}

/// A project in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProjectView {
    /// Its name.
    pub name: String,
    /// The top directory of the user's working tree.
    pub path: String,
    /// What it is shown with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `registered`.
    pub status: &'static str,
    /// Why nothing is done in it, where that is so. The original has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether the files that a hall is configured by can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Whether there are no issues.
    pub valid: bool,
    /// What is wrong.
    pub issues: Vec<String>,
    /// What may be meant so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The projects of `config.yaml`, where that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_count: Option<usize>,
}

/// What came of reading `config.yaml` again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// That it was read.
    pub reloaded: bool,
    /// Its projects.
    pub project_count: usize,
    /// Those that were not known before.
    pub new_projects: Vec<String>,
}

/// A meeting in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeetingView {
    /// Its name.
    #[serde(rename = "meetingId")]
    pub id: MeetingId,
    /// What it is called.
    pub title: String,
    /// Where it is.
    pub status: MeetingStatus,
    /// The worker's name for people.
    pub worker: String,
    /// What it is about.
    pub agenda: String,
    /// The day when it was asked for or opened.
    pub date: String,
    /// Until when the user put it off; empty where they did not.
    pub deferred_until: String,
    /// Paths of artifacts below `.lore/` that belong to it.
    pub linked_artifacts: Vec<String>,
    /// The notes, once it is closed.
    pub notes: String,
    /// What the worker is, for people.
    #[serde(rename = "workerDisplayTitle")]
    pub worker_display_title: String,
    /// Its project.
    #[serde(rename = "projectName")]
    pub project_name: String,
    /// In place of the worker's own bounds, for each turn. The original has no such field.
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    pub resource_overrides: Overrides,
    /// Who asked for it. The original has no such field.
    #[serde(rename = "createdBy")]
    pub created_by: Author,
    /// The job of its session: its transcript, meters and log. The original has no such field.
    #[serde(rename = "jobId", skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl MeetingView {
    pub(crate) fn of(meeting: &Meeting) -> Self {
        Self::with(meeting, str::to_owned)
    }

    /// With its long texts as `text` has them.
    fn with(meeting: &Meeting, text: fn(&str) -> String) -> Self {
        let record = &meeting.record;
        Self {
            id: meeting.meeting_id.clone(),
            status: meeting.status,
            resource_overrides: meeting.overrides.clone(),
            created_by: meeting.created_by,
            job: meeting.session.as_ref().map(|session| session.job.to_string()),
            title: text(&record.title),
            worker: record.worker.clone(),
            agenda: text(&record.agenda),
            date: record.date.clone(),
            deferred_until: record.deferred_until.clone(),
            linked_artifacts: record.linked_artifacts.clone(),
            notes: text(record.body.trim()),
            worker_display_title: text(&record.worker_display_title),
            project_name: meeting.project_name.clone(),
        }
    }
}

impl Item for MeetingView {
    type Of = Meeting;

    fn listed(of: &Meeting) -> Self {
        Self::with(of, cut)
    }

    fn bytes(&self) -> usize {
        bytes_of(&[&self.title, &self.agenda, &self.notes, &self.worker_display_title], &[&self.linked_artifacts])
    }
}

/// One meeting, with what was said in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeetingDetail {
    /// As a list has it.
    pub meeting: MeetingView,
    /// What was said, as Markdown; empty where it is not there any more.
    pub transcript: String,
    /// The same in parts.
    pub parsed_messages: Vec<Message>,
}

/// A meeting that is open.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its name.
    pub meeting_id: MeetingId,
    /// Its project.
    pub project_name: String,
    /// The worker's name for people.
    pub worker_name: String,
    /// When it was opened: RFC 3339 in UTC.
    pub started_at: String,
    /// `open`.
    pub status: MeetingStatus,
}

impl SessionView {
    pub(crate) fn of(meeting: &Meeting) -> Self {
        Self {
            meeting_id: meeting.meeting_id.clone(),
            project_name: meeting.project_name.clone(),
            worker_name: meeting.record.worker.clone(),
            started_at: meeting.started().to_owned(),
            status: meeting.status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commission::Record;

    #[test]
    fn a_list_has_so_many_bytes_and_counts_the_others() {
        let record = Record { prompt: "x".repeat(10_000), body: "ä".repeat(10_000), ..Record::default() };
        let id: CommissionId = "commission-Dalton-20260401-120000".parse().unwrap();
        let one = Arc::new(Commission::new(id, "demo".to_owned(), "worker".to_owned(), Status::Pending, record));
        let page: Page<CommissionView> = Page::of(&vec![one; 2000], 0);
        assert!(page.len() > 500 && page.len() + page.more == 2000, "{}", page.len());
        assert!(page.iter().map(Item::bytes).sum::<usize>() <= PAGE_BYTES);
        assert!(page.iter().all(|view| view.prompt.ends_with("x…") && view.result_summary.ends_with("ä…")));
    }
}
