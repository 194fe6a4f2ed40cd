//! Streams the answer of a meeting's turn to a page, as it comes.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use guild_contract::hall::{JoinTurn, JoinTurnParams, MeetingMessage, MeetingParams, ReadMeeting, Role, TurnEvent};
use guild_hall::meetings::Turn;
use guild_page::hall::meeting::{TurnNow, turn};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    live::{DONE, StreamViewer, frame},
    request::{Answer, PageRequest, Why},
};
use crate::events::{KEEP_ALIVE, event_stream};

/// The time for which the pieces of an answer are gathered before the answer is sent again.
const GATHERED: Duration = Duration::from_millis(250);

/// A stream of one turn.
struct TurnStream {
    viewer: StreamViewer,
    turn: Turn,
    meeting: MeetingParams,
    worker: String,
    /// The number of messages that the page shows already.
    after: usize,
    /// The further messages before the answer, once they are known.
    before: Option<Vec<MeetingMessage>>,
    now: TurnNow,
    is_over: bool,
}

/// Streams the running turn of a meeting, or the last one. The page shows the first `after` messages already.
pub(super) async fn answer(page: PageRequest, meeting: MeetingParams, after: usize) -> Answer {
    let worker = page.call::<ReadMeeting>(&page.hall()?, &meeting).await?.meeting.worker;
    let turn = page.turn::<JoinTurn>(&JoinTurnParams { meeting_id: meeting.meeting_id.clone(), after: None }).await?;
    let viewer = match StreamViewer::of(page) {
        Ok(viewer) => viewer,
        Err(refused) => return Ok(refused),
    };
    let now = TurnNow::default();
    let stream = TurnStream { viewer, turn, meeting, worker, after, before: None, now, is_over: false };
    Ok(event_stream(Body::from_stream(stream::unfold(stream, TurnStream::next))))
}

impl TurnStream {
    /// Returns the answer with its next pieces, or a keep-alive; `None` after the end of the turn, or once the viewer
    /// may no longer look.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        let Ok(first) = timeout(KEEP_ALIVE, self.turn.next()).await else {
            return self.viewer.is_good().then(|| (Ok(Bytes::from_static(b":\n\n")), self));
        };
        // Nothing of a turn before the start of the host is known; the page has it from the transcript.
        let is_known = first.is_some();
        self.add(first);
        let until = Instant::now() + GATHERED;
        while !self.is_over
            && let Ok(next) = timeout_at(until, self.turn.next()).await
        {
            self.add(next);
        }
        if !self.viewer.is_good() {
            return None;
        }
        if is_known && self.before.is_none() && !self.now.is_empty() {
            self.before = Some(self.messages_before().await.ok()?);
        }
        let mut next = String::new();
        if is_known {
            let before = self.before.as_deref().unwrap_or_default();
            next.push_str(&frame(&turn(&self.worker, before, &self.now, self.is_over).into_string()));
        }
        if self.is_over {
            next.push_str(DONE);
        }
        Some((Ok(next.into()), self))
    }

    /// The messages between those that the page shows and the answer. They are in the transcript before any part of the
    /// answer.
    async fn messages_before(&self) -> Result<Vec<MeetingMessage>, Why> {
        let page = self.viewer.request();
        let mut messages = page.call::<ReadMeeting>(&page.hall()?, &self.meeting).await?.parsed_messages;
        let end = messages.iter().rposition(|message| message.role == Role::User).map_or(0, |last| last + 1);
        messages.truncate(end);
        Ok(messages.into_iter().skip(self.after).collect())
    }

    fn add(&mut self, event: Option<(u64, TurnEvent)>) {
        match event {
            Some((_, event)) => {
                self.is_over |= event.is_end();
                self.now.add(event);
            }
            None => self.is_over = true,
        }
    }
}
