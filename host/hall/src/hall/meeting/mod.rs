//! Meetings: a user talks with a worker, leaves, comes back days and restarts later, and goes on.
//!
//! The job of a meeting runs nothing between turns. What was said is in its transcript, and nowhere else; a turn runs by itself,
//! whether somebody listens to it or not.

mod close;
mod open;
mod read;
mod report;
mod turn;

use std::sync::{Arc, Mutex};

use cap_std::fs::Dir;
use guild_contract::{
    OperationError,
    hall::{MeetingId, MeetingStatus},
};
use guild_jobs::Position;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Hall, blocking,
    cells::{Cell, InHall, Picture},
};
use crate::{
    home::Home,
    meeting::{Meeting, record},
    project::lock,
    workers::Attempt,
};

pub use open::NewRequest;
pub use turn::Turn;

/// One meeting, as a hall has it.
pub(super) type MeetingCell = Cell<Meeting, Turns>;

/// What goes with a meeting while the host runs.
pub(super) struct Turns {
    /// The turn under way, or the last one.
    turn: watch::Sender<TurnState>,
    /// Ends the turn under way.
    cancel: Mutex<CancellationToken>,
    /// Held while it is closed.
    closing: tokio::sync::Mutex<()>,
    /// Held while its transcript is written for people.
    rendering: tokio::sync::Mutex<()>,
}

/// How far a turn is.
#[derive(Clone, Debug, Default)]
struct TurnState {
    /// Which one it is.
    number: u64,
    /// Where it begins in the transcript, once it has begun there.
    at: Option<Position>,
    /// That it is over, and why it did not begin where it did not; `None` while it is under way.
    over: Option<Result<(), String>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            turn: watch::Sender::new(TurnState { over: Some(Ok(())), ..TurnState::default() }),
            cancel: Mutex::default(),
            closing: tokio::sync::Mutex::default(),
            rendering: tokio::sync::Mutex::default(),
        }
    }
}

impl Turns {
    /// Ends the turn under way, if there is one.
    fn interrupt(&self) {
        lock(&self.cancel).cancel();
    }
}

impl InHall for Meeting {
    const NOUN: &'static str = "meeting";

    fn project(&self) -> &str {
        &self.project_name
    }

    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn bytes(&self) -> usize {
        let record::Record { agenda, linked_artifacts, meeting_log, body, .. } = &self.record;
        let paths = linked_artifacts.iter().map(String::len).sum::<usize>();
        agenda.len() + body.len() + paths + crate::commission::record::bytes(meeting_log)
    }

    fn picture(&self) -> Picture {
        match (&self.session, &self.worktree_dir, &self.branch_name) {
            (Some(session), Some(_), Some(_)) if !session.begun => Picture::Nowhere,
            (Some(_), Some(dir), Some(_)) => Picture::Worktree(dir.clone()),
            _ => Picture::Integration,
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

impl Hall {
    fn meeting(&self, id: &str) -> Result<Arc<MeetingCell>, OperationError> {
        self.meetings.named(id).ok_or_else(|| OperationError::NotFound(format!("Meeting \"{id}\" not found")))
    }

    /// The meeting, where it is one of that project, or of any where none is named.
    async fn meeting_of(&self, id: &str, project: Option<&str>) -> Result<Arc<MeetingCell>, OperationError> {
        self.find(&self.meetings, id, project).await?.ok_or_else(|| {
            let there = project.map(|project| format!(" in project \"{project}\"")).unwrap_or_default();
            OperationError::NotFound(format!("Meeting \"{id}\" not found{there}"))
        })
    }

    /// The meetings that are open.
    pub(super) fn open_meetings(&self) -> impl Iterator<Item = Arc<Meeting>> + use<> {
        self.meetings.now().filter(|now| now.status == MeetingStatus::Open)
    }

    /// What the worker of an open meeting is given.
    fn meeting_attempt(&self, meeting: &Meeting) -> Result<Attempt, OperationError> {
        let settings = &self.project(&meeting.project_name)?.settings;
        Attempt::of_meeting(meeting, settings.memory_chars()).ok_or_else(|| {
            OperationError::Conflict(format!("Meeting \"{}\" has no session in this hall", meeting.meeting_id))
        })
    }
}
