//! Sends messages in an open meeting, and subscribes to its turns.

use std::{sync::Arc, time::Duration};

use guild_contract::{OperationError, hall::MeetingStatus};
use tokio::time::timeout;

use super::{
    Meetings, StoredMeeting, Turn,
    meeting::Meeting,
    open::Failed,
    turn::{behind, end, take, under_way},
};
use crate::core::{
    text::{TEXT_BYTES, check_text},
    token_scope::current_token,
};

/// The longest time that a message waits for the end of a turn whose last event its client has already received.
const LAST_MOMENT: Duration = Duration::from_secs(1);

impl Meetings {
    /// Sends a message to the worker of an open meeting. The turn is running when this returns.
    ///
    /// # Errors
    ///
    /// Returns an error when the meeting is not open, or when a turn is running.
    pub async fn say(self: &Arc<Self>, id: &str, message: &str) -> Result<Turn, OperationError> {
        check_text("message", message, TEXT_BYTES)?;
        let stored = self.get(id)?;
        let is_open = |stored: &StoredMeeting| {
            let now = stored.now();
            match now.status {
                MeetingStatus::Open if now.is_open() => Ok(()),
                MeetingStatus::Open if now.session.is_some() => {
                    Err(OperationError::Conflict(format!("Meeting \"{id}\" is being closed")))
                }
                MeetingStatus::Open => {
                    Err(OperationError::Conflict(format!("Meeting \"{id}\" has no session in this hall")))
                }
                status => Err(OperationError::Conflict(format!("Meeting \"{id}\" is {status}"))),
            }
        };
        is_open(&stored)?;
        let token = current_token();
        self.core.check_spend(&stored.now().worker_name, token.as_deref())?;
        let mut turn = stored.runtime.turn.subscribe();
        let _ = timeout(LAST_MOMENT, turn.wait_for(|turn| turn.over.is_some())).await;
        let number = take(&stored).ok_or_else(|| under_way(&stored))?;
        // A caller that closes the meeting interrupts only turns that were reserved before.
        let spends = |meeting: &mut Meeting| {
            meeting.token = token;
            Ok(())
        };
        let begins = match is_open(&stored) {
            Ok(()) => self.records.change(&stored, spends).await,
            closed => closed,
        };
        if let Err(e) = begins {
            end(&stored, Err(e.to_string()));
            return Err(e);
        }
        if stored.now().session.as_ref().is_some_and(|session| !session.begun) {
            // The meeting was being opened when the last host stopped, and could not be opened since.
            return Ok(self.begin_taken(stored, number, Failed::Stays, Some(message)));
        }
        let listener = self.turn(&stored, number, 0);
        // If the first turn could not begin, the user's first message precedes this one.
        let message = behind(stored.now().opening(), Some(message));
        let meetings = self.clone();
        tokio::spawn(async move { meetings.carry_turn_out(&stored, &message).await });
        Ok(listener)
    }

    /// Subscribes to the running turn, or to the last one, from its beginning, without the events up to the number
    /// `after`.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such meeting, or it is not open.
    pub fn join(self: &Arc<Self>, id: &str, after: u64) -> Result<Turn, OperationError> {
        let stored = self.get(id)?;
        if stored.now().status != MeetingStatus::Open {
            return Err(OperationError::Conflict(format!("Meeting \"{id}\" is {}", stored.now().status)));
        }
        let number = stored.runtime.turn.borrow().number;
        Ok(self.turn(&stored, number, after))
    }

    /// Interrupts the running turn, if there is one. The meeting stays open.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such meeting.
    pub fn interrupt(&self, id: &str) -> Result<(), OperationError> {
        self.get(id)?.runtime.interrupt();
        Ok(())
    }
}
