//! Runs the turns of a meeting, one at a time, independently of their subscribers.

use std::{collections::VecDeque, sync::Arc};

use guild_contract::{OperationError, hall::TurnEvent};
use guild_jobs::{Position, Tail};
use guild_session::transcript::Entry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Meetings, StoredMeeting, TurnState, meeting::event::Projection};
use crate::blocking::lock;

/// The error of a turn whose end was not written.
const UNWRITTEN: &str = "the turn is over, and its end is not in the meeting's transcript, which reached \
    limits.transcript_bytes or could not be written; close the meeting, and open another one";

/// A subscriber of a turn. A slow or absent subscriber does not affect others.
pub struct Turn {
    meetings: Arc<Meetings>,
    stored: Arc<StoredMeeting>,
    /// The number of the turn. The subscription ends when another turn begins.
    number: u64,
    state: watch::Receiver<TurnState>,
    events: Projection,
    tail: Option<Tail>,
    ready: VecDeque<(u64, TurnEvent)>,
    /// The number of the last event that was received before.
    after: u64,
    over: bool,
}

impl Turn {
    /// The id of the turn's meeting.
    pub fn meeting(&self) -> String {
        self.stored.now().meeting_id.to_string()
    }

    /// The next event, with its number: that of the line in the transcript of the meeting's job. `None` once the turn
    /// is over.
    pub async fn next(&mut self) -> Option<(u64, TurnEvent)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.over |= event.1.is_end();
                if event.0 > self.after || event.0 == 0 {
                    return Some(event);
                }
            } else if self.over {
                return None;
            } else {
                self.fill().await;
            }
        }
    }

    /// Waits for more events.
    async fn fill(&mut self) {
        let state = self.state.borrow_and_update().clone();
        let is_next = state.number != self.number;
        let Some(tail) = &mut self.tail else {
            if is_next {
                self.over = true;
                return;
            }
            match (state.at, state.over) {
                (Some(at), _) => {
                    self.tail = self.meetings.tail(&self.stored, at).await.map_err(|why| self.fail(why)).ok()
                }
                (None, Some(Err(why))) => self.fail(why),
                (None, Some(Ok(()))) => self.over = true,
                (None, None) => self.over |= self.state.changed().await.is_err(),
            }
            return;
        };
        if let Some(Err(why)) = state.over.clone().filter(|_| !is_next) {
            // The turn did not begin, so the transcript contains nothing of it.
            return self.fail(why);
        }
        // All of a finished turn is in the transcript, so if there are no more lines, its end was not written.
        if (is_next || state.over.is_some()) && tail.is_at_end() {
            return self.fail(UNWRITTEN.to_owned());
        }
        tokio::select! {
            lines = tail.next() => match lines {
                Ok(lines) if lines.is_empty() => self.fail("the meeting was closed".to_owned()),
                Ok(lines) => {
                    for (number, line) in lines {
                        let event = self.events.event(line.entry);
                        let is_end = event.as_ref().is_some_and(TurnEvent::is_end);
                        self.ready.extend(event.map(|event| (number, event)));
                        if is_end {
                            break;
                        }
                    }
                }
                Err(e) => self.fail(format!("the transcript cannot be read: {e}")),
            },
            changed = self.state.changed() => self.over |= changed.is_err(),
        }
    }

    /// Ends with an error, which has no line in the transcript, and therefore the number zero.
    fn fail(&mut self, reason: String) {
        self.ready.push_back((0, TurnEvent::Error { reason }));
    }
}

/// Reserves the turn of a meeting; `None` if one is running.
pub(super) fn take(stored: &StoredMeeting) -> Option<u64> {
    let mut number = None;
    stored.runtime.turn.send_if_modified(|turn| {
        let is_free = turn.over.is_some();
        if is_free {
            *turn = TurnState { number: turn.number + 1, at: None, over: None };
            number = Some(turn.number);
            *lock(&stored.runtime.cancel) = CancellationToken::new();
        }
        is_free
    });
    number
}

/// Notes that the turn is over, or did not begin.
pub(super) fn end(stored: &StoredMeeting, how: Result<(), String>) {
    stored.runtime.turn.send_modify(|turn| turn.over = Some(how));
}

/// The user's message, preceded by the first message if the worker has not received that yet.
pub(super) fn behind(opening: &str, message: Option<&str>) -> String {
    let parts = [opening, message.unwrap_or_default()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

pub(super) fn under_way(stored: &StoredMeeting) -> OperationError {
    OperationError::Conflict(format!(
        "Meeting \"{}\": a turn is running; wait for its end, or interrupt it",
        stored.now().meeting_id
    ))
}

impl Meetings {
    pub(super) fn turn(self: &Arc<Self>, stored: &Arc<StoredMeeting>, number: u64, after: u64) -> Turn {
        Turn {
            meetings: self.clone(),
            stored: stored.clone(),
            number,
            state: stored.runtime.turn.subscribe(),
            events: Projection::of(&stored.now()),
            tail: None,
            ready: VecDeque::new(),
            after,
            over: false,
        }
    }

    /// Runs a turn to its end, and then writes the transcript for people.
    pub(super) async fn carry_turn_out(self: &Arc<Self>, stored: &Arc<StoredMeeting>, message: &str) {
        let (meetings, of, message) = (self.clone(), stored.clone(), message.to_owned());
        // The next turn can begin after any failure of this one.
        let how = tokio::spawn(async move { meetings.try_turn(&of, &message).await }).await;
        let how = how.unwrap_or_else(|_| Err("the host failed in this turn; its log says how".to_owned()));
        match &how {
            Ok(()) => self.forget_opening(stored).await,
            Err(why) => tracing::warn!(meeting = %stored.now().meeting_id, "a turn did not begin: {why}"),
        }
        end(stored, how);
        self.render_transcript(stored).await;
    }

    /// After a restart, runs the turn of the user's first message, if the message is not in the transcript yet.
    pub(super) async fn carry_opening_out(self: &Arc<Self>, stored: &Arc<StoredMeeting>) {
        let now = stored.now();
        let was_said = match (self.attempt(&now), self.core.jobs()) {
            (Ok(attempt), Ok(jobs)) => {
                let lines = jobs.transcript(&attempt.worker, &attempt.job).await;
                lines.map(|lines| lines.iter().any(|line| matches!(line.entry, Entry::Message { .. })))
            }
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
        match was_said {
            Ok(false) => self.carry_turn_out(stored, now.opening()).await,
            Ok(true) => {
                self.forget_opening(stored).await;
                end(stored, Ok(()));
            }
            // The next message includes the first one.
            Err(e) => end(stored, Err(e.to_string())),
        }
    }

    /// Removes the user's first message from the state, once it is in the transcript.
    async fn forget_opening(&self, stored: &StoredMeeting) {
        if stored.now().opening().is_empty() {
            return;
        }
        let forgotten = self.records.change(stored, |meeting| {
            meeting.session.iter_mut().for_each(|session| session.opening.clear());
            Ok(())
        });
        if let Err(e) = forgotten.await {
            tracing::warn!(meeting = %stored.now().meeting_id, "the state of the meeting cannot be stored: {e}");
        }
    }

    async fn try_turn(&self, stored: &StoredMeeting, message: &str) -> Result<(), String> {
        let attempt = self.attempt(&stored.now()).map_err(|e| e.to_string())?;
        let jobs = self.core.jobs().map_err(|e| e.to_string())?;
        let at = *jobs.conversation(&attempt).await?.written().borrow();
        stored.runtime.turn.send_modify(|turn| turn.at = Some(at));
        let cancel = lock(&stored.runtime.cancel).clone();
        jobs.say(&attempt, message, &cancel).await
    }

    async fn tail(&self, stored: &StoredMeeting, at: Position) -> Result<Tail, String> {
        let attempt = self.attempt(&stored.now()).map_err(|e| e.to_string())?;
        let job = self.core.jobs().map_err(|e| e.to_string())?.conversation(&attempt).await?;
        Ok(Tail::of(job, at))
    }
}
