//! Meetings: a user talks with a worker, leaves, comes back days and restarts later, and goes on.
//!
//! The job of a meeting runs nothing between turns. Its transcript alone has what was said; a turn runs by itself,
//! whether somebody listens to it or not. The module uses documents, and none of the commissions, which stand above it.

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

/// The state that goes with a meeting while the host runs.
pub(crate) struct Turns {
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

impl Meetings {
    pub(crate) fn new(core: Arc<Core>, records: Arc<RecordStore<Meeting>>) -> Self {
        Self { core, records, opening: tokio::sync::Mutex::default() }
    }

    /// Whether there is a meeting of that id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.records.named(id).is_some()
    }

    /// All meetings as they are now.
    pub(crate) fn now(&self) -> impl Iterator<Item = Arc<Meeting>> + use<> {
        self.records.now()
    }

    /// The open meetings of a project whose work is not merged yet. A meeting without a branch merges nothing.
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

    /// Notes something in the log of a meeting, where no entry is this one already.
    ///
    /// # Errors
    /// Where it cannot be stored.
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

    /// The meeting, where it is one of that project, or of any where none is named.
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

    /// An open meeting as its worker is given it.
    fn attempt(&self, meeting: &Meeting) -> Result<Attempt, OperationError> {
        let settings = &self.core.project(&meeting.project_name)?.settings;
        meeting.as_attempt(settings.memory_chars()).ok_or_else(|| {
            OperationError::Conflict(format!("Meeting \"{}\" has no session in this hall", meeting.meeting_id))
        })
    }
}
