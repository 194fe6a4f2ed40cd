//! Defines the stored state of a meeting, with its session, its record, and its transcript for people and clients.

pub mod event;
pub mod record;
pub mod transcript;

use std::path::PathBuf;

use cap_std::fs::Dir;
use guild_contract::{
    Decision, JobId, OperationError,
    hall::{Author, MeetingId, MeetingStatus, Overrides, TimelineEntry},
};
use guild_git::Checkout;
use serde::{Deserialize, Serialize};

pub use record::Record;

use super::Turns;
use crate::{
    core::{
        token_scope::current_token,
        workers::{Activity, Attempt, MeetingScope},
    },
    home::Home,
    records::{
        HallRecord, RecordLocation,
        log::{self, CUT},
    },
};

/// The beginning of the notes of a meeting that could not be merged. Stored records contain this text.
pub(crate) const NOT_MERGED: &str = "What was written in this meeting is not in claude/main";

/// A meeting as it is stored in `state/meetings/<id>.json`, which is authoritative. The transcript of its job has the
/// conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meeting {
    /// The meeting's id.
    pub meeting_id: MeetingId,
    /// The project's name.
    pub project_name: String,
    /// The worker's key in the roster.
    pub worker_name: String,
    /// The state of the meeting.
    pub status: MeetingStatus,
    /// The place in which the worker works.
    pub scope: MeetingScope,
    /// The worktree, while the meeting is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_dir: Option<PathBuf>,
    /// The branch, if the meeting has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
    /// The requester.
    #[serde(default)]
    pub created_by: Author,
    /// The name of the token with which the meeting was requested, or later of the last speaker's token, if there was
    /// one. The meeting's spending and storage count for that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The call with which the manager requested the meeting, so that a repeated call requests it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The bounds of each turn, in place of the worker's own.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub overrides: Overrides,
    /// The session, once the meeting is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionState>,
    /// The record in the project.
    pub record: Record,
}

/// The session of a meeting, which continues from this state after a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// The session's job.
    pub job: JobId,
    /// Whether the meeting has a full checkout, and not only `.lore/`.
    pub full: bool,
    /// Whether the meeting's worktree exists: the record is then written there.
    pub begun: bool,
    /// The user's first message, until the session has begun.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opening: String,
    /// The requested end of the meeting, with its state so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Close>,
}

/// The end of a meeting. The commit, the merge and the removal of the worktree remain to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Close {
    /// The time of the request.
    pub time: String,
    /// The text of the notes, once it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The notes, once the job has ended and its decisions are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<Notes>,
}

/// The notes of a closed meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// The text of the notes.
    pub text: String,
    /// The worker's decisions.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

impl HallRecord for Meeting {
    type Id = MeetingId;
    type Runtime = Turns;
    const NOUN: &'static str = "meeting";
    const RECORDS: &'static str = "meetings";

    fn id(&self) -> &MeetingId {
        &self.meeting_id
    }

    fn text(&self) -> Result<String, String> {
        self.record.render(self.status)
    }

    fn project(&self) -> &str {
        &self.project_name
    }

    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn bytes(&self) -> usize {
        let record::Record { agenda, linked_artifacts, meeting_log, body, .. } = &self.record;
        let paths = linked_artifacts.iter().map(String::len).sum::<usize>();
        agenda.len() + body.len() + paths + log::bytes(meeting_log)
    }

    fn location(&self) -> RecordLocation {
        match (&self.session, &self.worktree_dir, &self.branch_name) {
            (Some(session), Some(_), Some(_)) if !session.begun => RecordLocation::None,
            (Some(_), Some(dir), Some(_)) => RecordLocation::Worktree(dir.clone()),
            _ => RecordLocation::Integration,
        }
    }

    fn of_record(id: MeetingId, project: &str, text: &str, key: impl Fn(&str) -> String) -> Self {
        let (record, status) = record::read(text);
        // A meeting without a state cannot be changed, and must still be listed.
        let status = status.unwrap_or(MeetingStatus::Closed);
        Self::new(id, project.to_owned(), key(&record.worker), status, record)
    }

    fn states(home: &Home) -> Result<Dir, OperationError> {
        home.meetings()
    }
}

impl Meeting {
    /// Makes a meeting with defaults for all other fields.
    pub(crate) fn new(id: MeetingId, project: String, worker: String, status: MeetingStatus, record: Record) -> Self {
        Self {
            meeting_id: id,
            project_name: project,
            worker_name: worker,
            status,
            scope: MeetingScope::Activity,
            worktree_dir: None,
            branch_name: None,
            created_by: Author::User,
            token: current_token(),
            call: None,
            overrides: Overrides::default(),
            session: None,
            record,
        }
    }

    /// The meeting as its worker receives it; `None` if it has no session, or the worker's name is not a member's key.
    pub(crate) fn as_attempt(&self, memory_chars: Option<u64>) -> Option<Attempt> {
        let state = self.session.as_ref()?;
        let record = &self.record;
        Some(Attempt {
            activity: Activity::Meeting(self.meeting_id.clone(), self.scope),
            number: 1,
            project: self.project_name.clone(),
            worker: self.worker_name.parse().ok()?,
            worker_name: record.worker.clone(),
            job: state.job.clone(),
            title: record.title.clone(),
            prompt: record.agenda.clone(),
            dependencies: record.linked_artifacts.clone(),
            overrides: self.overrides.clone(),
            token: self.token.clone(),
            worktree: self.worktree_dir.clone()?,
            checkout: if state.full { Checkout::Full } else { Checkout::Sparse },
            memory_chars,
        })
    }

    /// Changes the state, and notes the change in the log.
    ///
    /// # Errors
    ///
    /// Returns an error when the present state cannot change to that one.
    pub(crate) fn transition_to(
        &mut self,
        next: MeetingStatus,
        event: &str,
        reason: &str,
        time: String,
    ) -> Result<(), OperationError> {
        if !self.status.leads_to(next) {
            return Err(OperationError::Conflict(format!(
                "Invalid meeting status transition: {} -> {next} of meeting \"{}\"",
                self.status, self.meeting_id
            )));
        }
        self.status = next;
        self.note(event, reason, time);
        Ok(())
    }

    /// Adds an entry to the log.
    pub(crate) fn note(&mut self, event: &str, reason: &str, time: String) {
        let (event, reason) = (event.to_owned(), reason.to_owned());
        self.record.meeting_log.push(TimelineEntry { timestamp: time, event, reason, ..TimelineEntry::default() });
    }

    /// The time of the opening or else of the request, if the record has it.
    pub(crate) fn started(&self) -> &str {
        let log = &self.record.meeting_log;
        let opened = log.iter().find(|entry| entry.event == record::OPENED).or(log.first());
        opened.map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// The values that were cut from the overrides at the last opening.
    pub(crate) fn cut(&self) -> impl Iterator<Item = &str> {
        let log = &self.record.meeting_log;
        let opened = log.iter().rposition(|entry| entry.event == record::OPENED).unwrap_or(0);
        log.iter().skip(opened).filter(|entry| entry.event == CUT).map(|entry| entry.reason.as_str())
    }

    /// The user's first message, until the worker has received it.
    pub(crate) fn opening(&self) -> &str {
        self.session.as_ref().map_or("", |session| session.opening.as_str())
    }

    /// Whether the session runs, and the meeting is not being closed.
    pub(crate) fn is_open(&self) -> bool {
        self.status == MeetingStatus::Open && self.session.as_ref().is_some_and(|session| session.close.is_none())
    }
}
