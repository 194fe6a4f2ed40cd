//! What callers see of commissions, meetings and projects: the fields of the original's API, in its order.

use serde::Serialize;

use crate::{
    commission::{Author, Commission, CommissionId, Entry, Overrides, Status, record::Origin},
    meeting::{Meeting, MeetingId, MeetingStatus, transcript::Message},
};

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
        let record = commission.record.clone();
        Self {
            id: commission.commission_id.clone(),
            relevant_date: commission.relevant_date().to_owned(),
            status: commission.status,
            created_by: commission.created_by,
            job: commission.attempt.as_ref().map(|attempt| attempt.job.to_string()),
            title: record.title,
            worker: record.worker,
            worker_display_title: record.worker_display_title,
            prompt: record.prompt,
            dependencies: record.dependencies,
            linked_artifacts: record.linked_artifacts,
            resource_overrides: record.resource_overrides,
            current_progress: record.current_progress,
            result_summary: record.body.trim().to_owned(),
            project_name: commission.project_name.clone(),
            date: record.date,
            source: record.source,
        }
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
    /// Who asked for it. The original has no such field.
    #[serde(rename = "createdBy")]
    pub created_by: Author,
    /// The job of its session: its transcript, meters and log. The original has no such field.
    #[serde(rename = "jobId", skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

impl MeetingView {
    pub(crate) fn of(meeting: &Meeting) -> Self {
        let record = meeting.record.clone();
        Self {
            id: meeting.meeting_id.clone(),
            status: meeting.status,
            created_by: meeting.created_by,
            job: meeting.session.as_ref().map(|session| session.job.to_string()),
            title: record.title,
            worker: record.worker,
            agenda: record.agenda,
            date: record.date,
            deferred_until: record.deferred_until,
            linked_artifacts: record.linked_artifacts,
            notes: record.body.trim().to_owned(),
            worker_display_title: record.worker_display_title,
            project_name: meeting.project_name.clone(),
        }
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
