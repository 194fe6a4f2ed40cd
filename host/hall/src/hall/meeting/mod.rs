//! Meetings: a user talks with a worker, leaves, comes back days and restarts later, and goes on.
//!
//! The job of a meeting runs nothing between turns. What was said is in its transcript, and nowhere else; a turn runs by itself,
//! whether somebody listens to it or not.

mod close;
mod open;
mod read;
mod report;
mod turn;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use guild_jobs::Position;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Hall, blocking};
use crate::{
    error::HallError,
    meeting::{Meeting, MeetingId},
    project::lock,
    store,
    workers::Attempt,
};

pub use open::{NewMeeting, NewRequest};
pub use turn::Turn;

/// All meetings of a hall.
pub(super) struct Meetings {
    all: RwLock<BTreeMap<MeetingId, Arc<MeetingCell>>>,
    /// Held while one is opened, so that the caps hold.
    opening: tokio::sync::Mutex<()>,
}

/// One meeting.
pub(super) struct MeetingCell {
    now: watch::Sender<Arc<Meeting>>,
    /// Held while it changes.
    change: tokio::sync::Mutex<()>,
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

impl MeetingCell {
    fn new(meeting: Meeting) -> Arc<Self> {
        let turn = watch::Sender::new(TurnState { over: Some(Ok(())), ..TurnState::default() });
        Arc::new(Self {
            now: watch::Sender::new(Arc::new(meeting)),
            change: tokio::sync::Mutex::default(),
            turn,
            cancel: Mutex::default(),
            closing: tokio::sync::Mutex::default(),
            rendering: tokio::sync::Mutex::default(),
        })
    }

    /// As it is now.
    pub(super) fn now(&self) -> Arc<Meeting> {
        self.now.borrow().clone()
    }

    /// Ends the turn under way, if there is one.
    fn interrupt(&self) {
        lock(&self.cancel).cancel();
    }
}

impl Meetings {
    pub(super) fn of(kept: Vec<Meeting>) -> Self {
        let cell = |meeting: Meeting| (meeting.meeting_id.clone(), MeetingCell::new(meeting));
        Self { all: RwLock::new(kept.into_iter().map(cell).collect()), opening: tokio::sync::Mutex::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<MeetingId, Arc<MeetingCell>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<MeetingCell>> {
        self.read().values().cloned().collect()
    }

    /// Adds a meeting under the first of these names that is free.
    fn add(
        &self,
        name: impl Fn(usize) -> MeetingId,
        meeting: impl FnOnce(MeetingId) -> Meeting,
    ) -> Result<Arc<MeetingCell>, HallError> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = (1..).map(name).find(|id| !all.contains_key(id)) else {
            return Err(HallError::Internal("there is no name left".to_owned()));
        };
        let cell = MeetingCell::new(meeting(id.clone()));
        all.insert(id, cell.clone());
        Ok(cell)
    }

    /// Takes a meeting up that somebody else made, unless it is known.
    fn adopt(&self, meeting: Meeting) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(meeting.meeting_id.clone()).or_insert_with(|| MeetingCell::new(meeting));
    }

    fn remove(&self, id: &MeetingId) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Hall {
    fn meeting(&self, id: &str) -> Result<Arc<MeetingCell>, HallError> {
        let found = id.parse::<MeetingId>().ok().and_then(|id| self.meetings.read().get(&id).cloned());
        found.ok_or_else(|| HallError::NotFound(format!("Meeting \"{id}\" not found")))
    }

    /// The meeting, where it is one of that project, or of any where none is named.
    async fn meeting_of(&self, id: &str, project: Option<&str>) -> Result<Arc<MeetingCell>, HallError> {
        match project {
            Some(name) => self.look_for_meetings(self.project(name)?.as_ref()).await,
            None => {
                for project in self.projects.now(&self.home)?.1.values() {
                    self.look_for_meetings(project).await;
                }
            }
        }
        let cell = self.meeting(id)?;
        match project.filter(|project| *project != cell.now().project_name) {
            Some(project) => Err(HallError::NotFound(format!("Meeting \"{id}\" not found in project \"{project}\""))),
            None => Ok(cell),
        }
    }

    /// The meetings that are open.
    pub(super) fn open_meetings(&self) -> impl Iterator<Item = Arc<Meeting>> + use<> {
        let all = self.meetings.all().into_iter().map(|cell| cell.now());
        all.filter(|now| now.status == crate::meeting::MeetingStatus::Open)
    }

    /// What the worker of an open meeting is given.
    fn meeting_attempt(&self, meeting: &Meeting) -> Result<Attempt, HallError> {
        let settings = &self.project(&meeting.project_name)?.settings;
        Attempt::of_meeting(meeting, settings.memory_chars()).ok_or_else(|| {
            HallError::Conflict(format!("Meeting \"{}\" has no session in this hall", meeting.meeting_id))
        })
    }

    /// Changes a meeting; where that fails, it stays as it was.
    pub(super) async fn change_meeting<T>(
        &self,
        cell: &MeetingCell,
        change: impl FnOnce(&mut Meeting) -> Result<T, HallError>,
    ) -> Result<T, HallError> {
        let _one = cell.change.lock().await;
        let before = cell.now();
        let mut after = (*before).clone();
        let value = change(&mut after)?;
        if after == *before {
            return Ok(value);
        }
        let after = Arc::new(after);
        self.keep_meeting(&after).await?;
        cell.now.send_replace(after.clone());
        // What is kept decides. The next change writes the record again.
        if let Err(e) = self.picture_meeting(&after).await {
            tracing::warn!(meeting = %after.meeting_id, "{e}");
        }
        Ok(value)
    }

    async fn keep_meeting(&self, meeting: &Arc<Meeting>) -> Result<(), HallError> {
        let (home, meeting) = (self.home.clone(), meeting.clone());
        let doing = format!("meeting {} cannot be stored", meeting.meeting_id);
        blocking(move || store::save(&home.meetings()?, &*meeting).map_err(HallError::io(doing))).await
    }

    /// Writes the record of a meeting: while it has a worktree, there; else into the integration worktree.
    async fn picture_meeting(&self, meeting: &Arc<Meeting>) -> Result<(), HallError> {
        let (new, meeting) = (self.home.new_files()?, meeting.clone());
        if let (Some(session), Some(dir), Some(_)) = (&meeting.session, &meeting.worktree_dir, &meeting.branch_name) {
            if !session.begun {
                return Ok(());
            }
            let dir = dir.clone();
            return blocking(move || store::write_record(&new, &dir, &*meeting)).await;
        }
        let project = self.project(&meeting.project_name)?;
        let integration = self.projects.integration(&self.home, &project).await?;
        integration.with_files(move |dir| store::write_record(&new, dir, &*meeting)).await?
    }

    fn second(&self) -> Timestamp {
        self.clock.now()
    }
}
