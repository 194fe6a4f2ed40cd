//! A meeting: its state, its session, its record, and its transcript as people and clients see it.

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

/// The beginning of the notes of a meeting that could not be merged.
pub(crate) const NOT_MERGED: &str = "What was written in this meeting is not in claude/main";

/// A meeting, as it is kept in `state/meetings/<id>.json`, which is authoritative. The transcript of its job has what
/// was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meeting {
    /// Its name.
    pub meeting_id: MeetingId,
    /// Its project.
    pub project_name: String,
    /// The worker: a key of the roster.
    pub worker_name: String,
    /// Where it is.
    pub status: MeetingStatus,
    /// Where its worker works.
    pub scope: MeetingScope,
    /// The worktree, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_dir: Option<PathBuf>,
    /// The branch, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
    /// Who asked for it.
    #[serde(default)]
    pub created_by: Author,
    /// The name of the token with which it was asked for, and then of that of whoever spoke in it last, if there was
    /// one: what the meeting spends counts for that token, and what is kept of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The call by which the manager asked for it, so that it is asked for once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// In place of the worker's own bounds, for each turn.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub overrides: Overrides,
    /// Its session, from when it is opened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionState>,
    /// The record in its project.
    pub record: Record,
}

/// The session of a meeting. After a crash it goes on from there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Its job.
    pub job: JobId,
    /// Whether it has a whole checkout, and not `.lore/` alone.
    pub full: bool,
    /// Whether its worktree is there: the record is written there then.
    pub begun: bool,
    /// The user's first message, until the session is begun.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opening: String,
    /// That it is to be closed, with what is known for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Close>,
}

/// The end of a meeting. The commit, the merge and the removal of the worktree are left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Close {
    /// When it was asked for.
    pub time: String,
    /// The text of the notes, once it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The notes, once the job has ended and its decisions are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<Notes>,
}

/// The notes of a meeting that was closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// The notes.
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
        // Without a state nothing can be done with it, and a list without it would hide it.
        let status = status.unwrap_or(MeetingStatus::Closed);
        Self::new(id, project.to_owned(), key(&record.worker), status, record)
    }

    fn states(home: &Home) -> Result<Dir, OperationError> {
        home.meetings()
    }
}

impl Meeting {
    /// A meeting without anything else.
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

    /// The meeting as its worker is given it; `None` where it has no session, or its worker cannot be a member.
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

    /// Moves it to another state, and notes that.
    ///
    /// # Errors
    /// Where this state does not lead to that one.
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

    /// Notes something in its log.
    pub(crate) fn note(&mut self, event: &str, reason: &str, time: String) {
        let (event, reason) = (event.to_owned(), reason.to_owned());
        self.record.meeting_log.push(TimelineEntry { timestamp: time, event, reason, ..TimelineEntry::default() });
    }

    /// When it was opened, else asked for, as far as its record says.
    pub(crate) fn started(&self) -> &str {
        let log = &self.record.meeting_log;
        let opened = log.iter().find(|entry| entry.event == record::OPENED).or(log.first());
        opened.map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// The overrides that were cut when it was opened last.
    pub(crate) fn cut(&self) -> impl Iterator<Item = &str> {
        let log = &self.record.meeting_log;
        let opened = log.iter().rposition(|entry| entry.event == record::OPENED).unwrap_or(0);
        log.iter().skip(opened).filter(|entry| entry.event == CUT).map(|entry| entry.reason.as_str())
    }

    /// The user's first message, as long as the worker was not told it.
    pub(crate) fn opening(&self) -> &str {
        self.session.as_ref().map_or("", |session| session.opening.as_str())
    }

    /// Whether its session is under way, and is not being closed.
    pub(crate) fn is_open(&self) -> bool {
        self.status == MeetingStatus::Open && self.session.as_ref().is_some_and(|session| session.close.is_none())
    }
}
