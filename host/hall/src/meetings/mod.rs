//! Manages meetings: a user talks with a worker, leaves, and continues days and restarts later.
//!
//! The job of a meeting is idle between turns. Its transcript alone has the conversation; a turn runs independently of
//! its subscribers. The module uses documents, but not commissions, which are above it.

mod close;
pub mod meeting;
mod open;
mod read;
mod report;
mod say;
mod turn;
pub(crate) mod view;

use std::sync::{Arc, Mutex};

use guild_contract::{
    OperationError,
    hall::{MeetingId, MeetingStatus, TimelineEntry},
};
use guild_jobs::Position;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::lock,
    core::{Core, workers::Attempt},
    records::{RecordStore, StoredRecord},
};

use meeting::Meeting;
pub use open::NewRequest;
pub(crate) use report::ReportsInMeeting;
pub use turn::Turn;

/// The meetings of a hall.
pub struct Meetings {
    core: Arc<Core>,
    records: Arc<RecordStore<Meeting>>,
    /// Held while a meeting is opened, so that the caps hold.
    opening: tokio::sync::Mutex<()>,
}

type StoredMeeting = StoredRecord<Meeting>;

/// The state of a meeting that is kept only while the host runs.
pub(crate) struct Turns {
    /// The running turn, or the last one.
    turn: watch::Sender<TurnState>,
    /// Cancels the running turn.
    cancel: Mutex<CancellationToken>,
    /// Held while the meeting is closed.
    closing: tokio::sync::Mutex<()>,
    /// Held while the meeting's transcript is written for people.
    rendering: tokio::sync::Mutex<()>,
}

/// The state of a turn.
#[derive(Clone, Debug, Default)]
struct TurnState {
    /// The number of the turn.
    number: u64,
    /// The position in the transcript at which the turn begins, once it has begun there.
    at: Option<Position>,
    /// The outcome of the turn, with the reason if it did not begin; `None` while it runs.
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
    /// Interrupts the running turn, if there is one.
    fn interrupt(&self) {
        lock(&self.cancel).cancel();
    }
}

impl Meetings {
    pub(crate) fn new(core: Arc<Core>, records: Arc<RecordStore<Meeting>>) -> Self {
        Self { core, records, opening: tokio::sync::Mutex::default() }
    }

    /// Whether there is a meeting of that id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.records.named(id).is_some()
    }

    /// The current state of all meetings.
    pub(crate) fn now(&self) -> impl Iterator<Item = Arc<Meeting>> + use<> {
        self.records.now()
    }

    /// The open meetings of a project whose changes are not merged yet. A meeting without a branch merges nothing.
    pub(crate) fn active(&self, project: &str) -> impl Iterator<Item = String> {
        let open = self.all_open().filter(move |now| now.project_name == project && now.branch_name.is_some());
        open.map(|now| now.meeting_id.to_string())
    }

    /// The open meeting of a job.
    pub(crate) fn attempt_of(&self, job: &str) -> Option<Attempt> {
        let is_of = |now: &Arc<Meeting>| now.session.as_ref().is_some_and(|state| state.job.as_str() == job);
        let now = self.all_open().find(is_of)?;
        now.as_attempt(self.core.project(&now.project_name).ok()?.settings.memory_chars())
    }

    /// Adds an entry to the log of a meeting, unless the log has an equal one.
    ///
    /// # Errors
    ///
    /// Returns an error when the entry cannot be stored.
    pub(crate) async fn note_new(
        &self,
        id: &MeetingId,
        event: &str,
        reason: &str,
        is_new: impl Fn(&TimelineEntry) -> bool,
    ) -> Result<(), OperationError> {
        let (Some(stored), time) = (self.records.get(id), self.core.time()) else { return Ok(()) };
        self.records
            .change(&stored, |meeting| {
                if meeting.record.meeting_log.iter().all(is_new) {
                    meeting.note(event, reason, time);
                }
                Ok(())
            })
            .await
    }

    fn get(&self, id: &str) -> Result<Arc<StoredMeeting>, OperationError> {
        self.records.named(id).ok_or_else(|| OperationError::NotFound(format!("Meeting \"{id}\" not found")))
    }

    /// Finds a meeting, which must belong to the project if one is given.
    async fn find(&self, id: &str, project: Option<&str>) -> Result<Arc<StoredMeeting>, OperationError> {
        self.records.find(id, project).await?.ok_or_else(|| {
            let there = project.map(|project| format!(" in project \"{project}\"")).unwrap_or_default();
            OperationError::NotFound(format!("Meeting \"{id}\" not found{there}"))
        })
    }

    /// The meetings that are open.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = Arc<Meeting>> + use<> {
        self.records.now().filter(|now| now.status == MeetingStatus::Open)
    }

    /// An open meeting as its worker receives it.
    fn attempt(&self, meeting: &Meeting) -> Result<Attempt, OperationError> {
        let settings = &self.core.project(&meeting.project_name)?.settings;
        meeting.as_attempt(settings.memory_chars()).ok_or_else(|| {
            OperationError::Conflict(format!("Meeting \"{}\" has no session in this hall", meeting.meeting_id))
        })
    }
}
