//! Handles requests for meetings, and opens meetings.

use std::{path::PathBuf, sync::Arc, time::Duration};

use guild_contract::{
    OperationError,
    hall::{Author, HallEvent, MeetingId, MeetingStatus, NewMeeting, Overrides, TimelineEntry},
};
use guild_git::Checkout;
use jiff::civil::Date;

use super::{
    Meetings, StoredMeeting, Turn,
    meeting::{Meeting, Record, SessionState, record::OPENED},
    turn,
};
use crate::{
    core::{
        text::{TEXT_BYTES, check_text},
        token_scope::current_token,
        workers::{MeetingScope, NotBegun, Worker},
    },
    records::log::CUT,
};

/// The most artifacts that a request names.
const ARTIFACTS: usize = 256;
/// The most characters of a request's reason in the title.
const TITLE_CHARS: usize = 80;
/// The most requests that wait in a project, since workers create them.
const REQUESTS: usize = 200;
/// The most waiting requests of one worker, so that others can still request meetings.
const REQUESTS_OF_ONE: usize = 40;
/// The most bytes of an artifact's path.
const PATH_BYTES: usize = 1024;
/// The time for which a busy host is retried before the user gets an error.
const BUSY: Duration = Duration::from_secs(20);
/// The pause before the end of a meeting that an earlier host started is retried.
const AGAIN: Duration = Duration::from_secs(60);

/// A request for a meeting with the user.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewRequest {
    /// The project's name.
    pub project: String,
    /// The worker, by its key, the name of its package, or its display name.
    pub worker: String,
    /// The subject.
    pub reason: String,
    /// Paths of the meeting's artifacts below `.lore/`.
    pub artifacts: Vec<String>,
    /// The requester.
    pub author: Author,
    /// The meeting that it follows, if a worker proposes it in one.
    pub follows: Option<MeetingId>,
    /// The call that requests it: a repeated call gets the meeting of the first one.
    pub call: Option<String>,
}

impl Meetings {
    /// Opens a meeting. Its first turn is running when this returns.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project or worker, a field is not acceptable, or the project's cap is
    /// reached.
    pub async fn open(self: &Arc<Self>, new: NewMeeting) -> Result<(MeetingId, Turn), OperationError> {
        check_text("prompt", &new.prompt, TEXT_BYTES)?;
        let project = self.core.project(&new.project_name)?;
        // A project that cannot be worked on is reported now.
        self.core.projects.integration(&self.core.home, &project).await?;
        let worker = self.core.worker(&new.worker_name)?;
        let (overrides, cut) = self.core.allowed(&worker.key, new.resource_overrides)?;
        let (now, time, token) = (self.core.clock.now(), self.core.time(), current_token());
        self.core.check_spend(worker.key.as_str(), token.as_deref())?;
        let _one = self.opening.lock().await;
        self.check_cap(&new.project_name)?;
        let record = Record {
            title: format!("Audience with {}", worker.display_title),
            date: now.strftime("%Y-%m-%d").to_string(),
            worker: worker.display_name.clone(),
            worker_display_title: worker.display_title.clone(),
            agenda: new.prompt.clone(),
            meeting_log: vec![TimelineEntry {
                timestamp: time.clone(),
                event: OPENED.to_owned(),
                reason: "User started audience".to_owned(),
                ..TimelineEntry::default()
            }],
            ..Record::default()
        };
        let session = self.new_session(&worker, new.prompt)?;
        let name = |nth| MeetingId::audience(&worker.display_name, now, nth);
        let made = self.records.create(name, |id| {
            let mut meeting = Meeting::new(id, new.project_name, worker.key.to_string(), MeetingStatus::Open, record);
            meeting.token = token;
            meeting.overrides = overrides;
            cut.iter().for_each(|cut| meeting.note(CUT, cut, time.clone()));
            self.begin_in(&mut meeting, &worker, session);
            meeting
        });
        let stored = made.await?;
        let id = stored.now().meeting_id.clone();
        Ok((id, self.begin(stored, Failed::Forgotten)?))
    }

    /// Requests a meeting with the user.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project or worker, or a field is not acceptable.
    pub async fn request(self: &Arc<Self>, new: NewRequest) -> Result<MeetingId, OperationError> {
        check_text("reason", &new.reason, TEXT_BYTES)?;
        if new.artifacts.len() > ARTIFACTS {
            return Err(OperationError::Invalid(format!("a request names at most {ARTIFACTS} artifacts")));
        }
        new.artifacts.iter().try_for_each(|path| check_text("referencedArtifacts", path, PATH_BYTES))?;
        let project = self.core.project(&new.project)?;
        self.core.projects.integration(&self.core.home, &project).await?;
        let worker = self.core.worker(&new.worker)?;
        let known: Vec<_> = self.records.now().collect();
        if let Some(made) = known.iter().find(|now| new.call.is_some() && now.call == new.call) {
            return Ok(made.meeting_id.clone());
        }
        let waiting: Vec<_> = known
            .iter()
            .filter(|now| now.project_name == new.project && now.status == MeetingStatus::Requested)
            .collect();
        let full = |most: usize, whose: &str| {
            OperationError::Conflict(format!(
                "{most} requests for meetings{whose} wait in project \"{}\", which is the limit; the user has to \
                 accept or decline some first",
                new.project
            ))
        };
        if waiting.len() >= REQUESTS {
            return Err(full(REQUESTS, ""));
        }
        // The hall itself requests meetings on behalf of the manager, and is not bounded by the manager's requests.
        let (of_one, whose) = match (new.author, &new.call) {
            (Author::Worker, _) => (
                waiting
                    .iter()
                    .filter(|now| now.created_by == Author::Worker && now.worker_name == worker.key.as_str())
                    .count(),
                format!(" of {}", worker.display_name),
            ),
            (Author::Manager, Some(_)) => (
                waiting.iter().filter(|now| now.created_by == Author::Manager && now.call.is_some()).count(),
                " of the manager".to_owned(),
            ),
            _ => (0, String::new()),
        };
        if of_one >= REQUESTS_OF_ONE {
            return Err(full(REQUESTS_OF_ONE, &whose));
        }
        let (now, time) = (self.core.clock.now(), self.core.time());
        let (title, reason) = match &new.follows {
            Some(id) => (
                format!("Follow-up with {}", worker.display_name),
                format!("Worker proposed follow-up from meeting {id}"),
            ),
            None => {
                // A title becomes a line of a commit message.
                let words = new.reason.split(|c: char| c.is_whitespace() || c.is_control());
                let about = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
                let about: String = about.chars().take(TITLE_CHARS).collect();
                (format!("Meeting request: {about}"), "Meeting requested".to_owned())
            }
        };
        let record = Record {
            title,
            date: now.strftime("%Y-%m-%d").to_string(),
            worker: worker.display_name.clone(),
            worker_display_title: worker.display_title.clone(),
            agenda: new.reason.clone(),
            linked_artifacts: new.artifacts,
            meeting_log: vec![TimelineEntry {
                timestamp: time,
                event: "requested".to_owned(),
                reason,
                ..TimelineEntry::default()
            }],
            ..Record::default()
        };
        let name = |nth| match &new.follows {
            Some(_) => MeetingId::followup(&worker.display_name, now, nth),
            None => MeetingId::request(&new.reason, now, nth),
        };
        let made = self.records.create_and_export(name, |id| Meeting {
            created_by: new.author,
            call: new.call,
            ..Meeting::new(id, new.project, worker.key.to_string(), MeetingStatus::Requested, record)
        });
        let made = made.await?;
        let id = made.meeting_id.clone();
        self.core.tell(HallEvent::MeetingRequested {
            meeting_id: id.clone(),
            worker: made.record.worker.clone(),
            project_name: made.project_name.clone(),
        });
        Ok(id)
    }

    /// Accepts a request, with these overrides in place of the worker's own bounds. The first turn, about the agenda
    /// and the user's message, is running when this returns.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such request, its worker is not in service, an override is not acceptable, or
    /// the project's cap is reached.
    pub async fn accept(
        self: &Arc<Self>,
        id: &str,
        project: Option<&str>,
        message: Option<&str>,
        overrides: Overrides,
    ) -> Result<Turn, OperationError> {
        let message = message.map(str::trim).filter(|message| !message.is_empty());
        message.map_or(Ok(()), |message| check_text("message", message, TEXT_BYTES))?;
        let stored = self.find(id, project).await?;
        let now = stored.now();
        // A request that another program created may contain only the worker's display name.
        let worker = match self.core.worker_of(&now.worker_name) {
            Err(_) if now.worker_name == now.record.worker => self.core.worker(&now.worker_name),
            found => found,
        }?;
        let (overrides, cut) = self.core.allowed(&worker.key, overrides)?;
        let mut opening = now.record.agenda.clone();
        if !now.record.linked_artifacts.is_empty() {
            opening.push_str(&format!("\n\nReferenced artifacts: {}", now.record.linked_artifacts.join(", ")));
        }
        if let Some(message) = message {
            opening.push_str(&format!("\n\n{message}"));
        }
        let session = self.new_session(&worker, opening)?;
        let (time, token) = (self.core.time(), current_token());
        self.core.check_spend(worker.key.as_str(), token.as_deref())?;
        let _one = self.opening.lock().await;
        self.check_cap(&now.project_name)?;
        self.records
            .change(&stored, |meeting| {
                meeting.transition_to(MeetingStatus::Open, OPENED, "User accepted meeting request", time.clone())?;
                cut.iter().for_each(|cut| meeting.note(CUT, cut, time.clone()));
                meeting.overrides = overrides;
                meeting.worker_name = worker.key.to_string();
                meeting.token = token;
                self.begin_in(meeting, &worker, session);
                Ok(())
            })
            .await?;
        self.begin(stored, Failed::AskedFor)
    }

    /// Declines a request.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such request.
    pub async fn decline(self: &Arc<Self>, id: &str, project: Option<&str>) -> Result<(), OperationError> {
        let (stored, time) = (self.find(id, project).await?, self.core.time());
        self.records
            .change(&stored, |meeting| {
                meeting.transition_to(MeetingStatus::Declined, "declined", "User declined meeting request", time)
            })
            .await?;
        let now = stored.now();
        self.core.tell(HallEvent::MeetingEnded {
            meeting_id: now.meeting_id.clone(),
            project_name: now.project_name.clone(),
        });
        Ok(())
    }

    /// Defers a request to a date, `YYYY-MM-DD`. It remains a request.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such request, or when the date is invalid.
    pub async fn defer(self: &Arc<Self>, id: &str, project: Option<&str>, until: &str) -> Result<(), OperationError> {
        let day = until.trim();
        if day.parse::<Date>().is_err() {
            return Err(OperationError::Invalid(format!(
                "deferredUntil must be a date such as 2026-12-01, not {until:?}"
            )));
        }
        let (stored, time) = (self.find(id, project).await?, self.core.time());
        self.records
            .change(&stored, |meeting| {
                if meeting.status != MeetingStatus::Requested {
                    return Err(OperationError::Conflict(format!(
                        "Cannot defer meeting with status \"{}\": only requested meetings can be deferred",
                        meeting.status
                    )));
                }
                day.clone_into(&mut meeting.record.deferred_until);
                meeting.note("deferred", &format!("Deferred until {day}"), time);
                Ok(())
            })
            .await
    }

    /// Resumes the meetings that were being opened or closed when the last host stopped. No message was lost, and an
    /// interrupted turn is not repeated.
    pub(crate) fn resume(self: &Arc<Self>) {
        for stored in self.records.all() {
            let now = stored.now();
            let Some(session) = now.session.as_ref().filter(|_| now.status == MeetingStatus::Open) else { continue };
            if session.close.is_some() {
                let meetings = self.clone();
                tokio::spawn(async move {
                    while let Err(e) = meetings.finish(&stored).await {
                        tracing::error!(meeting = %now.meeting_id, "the end of the meeting is retried in a minute: \
                            {e}");
                        tokio::time::sleep(AGAIN).await;
                    }
                });
            } else if !session.begun {
                if let Err(e) = self.begin(stored, Failed::Stays) {
                    tracing::error!(meeting = %now.meeting_id, "the meeting cannot be opened: {e}");
                }
            } else if !session.opening.is_empty() && turn::take(&stored).is_some() {
                let meetings = self.clone();
                tokio::spawn(async move { meetings.carry_opening_out(&stored).await });
            }
        }
    }

    fn new_session(&self, worker: &Worker, opening: String) -> Result<SessionState, OperationError> {
        let job = self.core.jobs()?.new_job(&worker.key)?;
        let full = worker.checkout == Checkout::Full;
        Ok(SessionState { job, full, begun: false, opening, close: None })
    }

    /// Sets the place in which the worker of a meeting works.
    fn begin_in(&self, meeting: &mut Meeting, worker: &Worker, session: SessionState) {
        let (id, project) = (&meeting.meeting_id, &meeting.project_name);
        if worker.manages {
            // The manager plans and dispatches, and changes no files itself.
            meeting.scope = MeetingScope::Project;
            meeting.worktree_dir = Some(self.core.home.integration(project));
            meeting.branch_name = None;
            meeting.session = Some(SessionState { full: true, ..session });
        } else {
            meeting.scope = MeetingScope::Activity;
            meeting.worktree_dir = Some(self.core.home.worktree(project, &format!("meeting-{id}")));
            meeting.branch_name = Some(format!("claude/meeting/{id}"));
            meeting.session = Some(session);
        }
    }

    fn check_cap(&self, project: &str) -> Result<(), OperationError> {
        let cap = self.core.project(project)?.settings.meetings();
        let open: Vec<String> =
            self.all_open().filter(|now| now.project_name == project).map(|now| now.meeting_id.to_string()).collect();
        if open.len() < usize::try_from(cap).unwrap_or(usize::MAX) {
            return Ok(());
        }
        Err(OperationError::Conflict(format!(
            "Meeting cap reached for project \"{project}\" ({cap} concurrent meetings); close one of {} first, or raise \
             meetingCap in config.yaml",
            open.join(", ")
        )))
    }

    /// Prepares a meeting and runs its first turn, in the background.
    fn begin(self: &Arc<Self>, stored: Arc<StoredMeeting>, failed: Failed) -> Result<Turn, OperationError> {
        let number = turn::take(&stored).ok_or_else(|| turn::under_way(&stored))?;
        Ok(self.begin_taken(stored, number, failed, None))
    }

    /// Like [`Self::begin`], for a turn that is already reserved, with an optional message of the user.
    pub(super) fn begin_taken(
        self: &Arc<Self>,
        stored: Arc<StoredMeeting>,
        number: u64,
        failed: Failed,
        message: Option<&str>,
    ) -> Turn {
        let listener = self.turn(&stored, number, 0);
        let (meetings, message) = (self.clone(), message.map(str::to_owned));
        tokio::spawn(async move {
            let now = stored.now();
            let opened = match meetings.prepare(&stored).await {
                Ok(()) => meetings.records.change(&stored, begun).await,
                Err(e) => Err(e),
            };
            match opened {
                Ok(opening) => {
                    meetings.core.tell(HallEvent::MeetingStarted {
                        meeting_id: now.meeting_id.clone(),
                        worker: now.record.worker.clone(),
                        project_name: now.project_name.clone(),
                    });
                    meetings.carry_turn_out(&stored, &turn::behind(&opening, message.as_deref())).await;
                }
                Err(e) => {
                    tracing::warn!(meeting = %now.meeting_id, "the meeting cannot be opened: {e}");
                    meetings.undo_opening(&stored, failed, &e).await;
                    turn::end(&stored, Err(e.to_string()));
                }
            }
        });
        listener
    }

    /// Prepares the worktree and the job. Each step can be repeated.
    async fn prepare(&self, stored: &StoredMeeting) -> Result<(), OperationError> {
        let now = stored.now();
        let attempt = self.attempt(&now)?;
        let project = self.core.project(&now.project_name)?;
        self.core.make_worktree(&project, &attempt, now.branch_name.as_deref()).await?;
        let jobs = self.core.jobs()?;
        let until = tokio::time::Instant::now() + BUSY;
        loop {
            match jobs.begin(&attempt).await {
                Ok(()) => return Ok(()),
                Err(NotBegun::Refused(why)) => return Err(OperationError::Conflict(why)),
                Err(NotBegun::Busy(why)) if tokio::time::Instant::now() >= until => {
                    return Err(OperationError::Conflict(why));
                }
                Err(NotBegun::Busy(_)) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
    }

    /// Removes a meeting that could not be opened, or makes it a request again.
    async fn undo_opening(self: &Arc<Self>, stored: &StoredMeeting, failed: Failed, why: &OperationError) {
        let now = stored.now();
        if failed == Failed::Stays {
            return;
        }
        if let (Ok(attempt), Ok(jobs)) = (self.attempt(&now), self.core.jobs()) {
            jobs.cancel(&attempt).await;
        }
        let dir = now.worktree_dir.clone().filter(|_| now.branch_name.is_some());
        if let Err(e) = self.remove_worktree(&now.project_name, dir).await {
            tracing::warn!(meeting = %now.meeting_id, "the worktree of the meeting cannot be removed: {e}");
        }
        if failed == Failed::Forgotten {
            return self.records.forget(stored).await;
        }
        let (time, why) = (self.core.time(), self.core.without_paths(why.to_string()).await);
        let undone = self.records.change(stored, |meeting| {
            // This is the only backward change of state: the conversation has not begun.
            meeting.status = MeetingStatus::Requested;
            (meeting.session, meeting.worktree_dir, meeting.branch_name) = (None, None, None);
            meeting.note("not_opened", &why, time);
            Ok(())
        });
        if let Err(e) = undone.await {
            tracing::error!(meeting = %now.meeting_id, "the failed opening of the meeting cannot be undone: {e}");
        }
    }

    pub(super) async fn remove_worktree(&self, project: &str, dir: Option<PathBuf>) -> Result<(), OperationError> {
        let Some(dir) = dir else { return Ok(()) };
        let integration = self.core.projects.integration(&self.core.home, self.core.project(project)?.as_ref()).await?;
        Ok(integration.repository().remove_worktree(&dir).await?)
    }
}

/// The handling of a meeting that cannot be opened.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Failed {
    /// The meeting is removed: it was not requested before.
    Forgotten,
    /// The meeting becomes a request again.
    AskedFor,
    /// The meeting stays: it was being opened when the last host stopped, and the next message or the next start
    /// retries it.
    Stays,
}

/// Notes that a meeting's worktree and job exist. Returns the user's first message.
fn begun(meeting: &mut Meeting) -> Result<String, OperationError> {
    let session =
        meeting.session.as_mut().ok_or_else(|| OperationError::Internal("the meeting has no session".to_owned()))?;
    session.begun = true;
    Ok(session.opening.clone())
}
