//! Streams the events of a turn in a meeting.

use std::time::Duration;

use futures::StreamExt as _;
use guild_contract::hall::TurnEvent;
use reqwest::Url;
use serde_json::value::RawValue;
use sse_stream::Sse;

use crate::{
    Error, Reply,
    connect::{self, EVENT_BYTES, FIRST, SILENCE, longer, protocol},
};

/// The events of a turn. The turn continues if they are dropped.
///
/// A connection that breaks before the end of the turn is made again, and continues after the last event.
pub struct TurnEvents {
    pub(crate) http: reqwest::Client,
    /// The URL at which a turn is joined.
    pub(crate) route: Url,
    pub(crate) timeout: Duration,
    /// The meeting, once its id is known.
    pub(crate) meeting: Option<String>,
    /// The number of the last event.
    pub(crate) after: u64,
    pub(crate) now: Option<connect::Stream>,
    /// Whether the connection joined a turn, and did not begin it.
    pub(crate) is_joined: bool,
    /// Whether this connection has received no event.
    pub(crate) is_empty: bool,
    pub(crate) is_over: bool,
    pub(crate) pause: Option<Duration>,
}

impl TurnEvents {
    /// Waits for the next event; `None` after the end of the turn. If the host was restarted in between, no event may
    /// report the end. Dropping the future is safe.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits briefly, and joins the turn
    /// again.
    pub async fn next(&mut self) -> Result<Option<Reply<TurnEvent>>, Error> {
        while !self.is_over {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            let url = &self.route;
            let reason = match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(Sse { data: Some(data), id, .. }))) => {
                    let json = RawValue::from_string(data).map_err(|e| protocol(url, e.to_string()))?;
                    let reply: Reply<TurnEvent> = Reply::parse(url, json)?;
                    (self.is_empty, self.pause) = (false, None);
                    self.after = id.and_then(|id| id.parse().ok()).unwrap_or(self.after);
                    match &reply.value {
                        TurnEvent::Session { meeting_id, .. } => self.meeting = Some(meeting_id.clone()),
                        TurnEvent::TurnEnd { .. } | TurnEvent::Error { .. } => self.is_over = true,
                        _ => {}
                    }
                    return Ok(Some(reply));
                }
                // A keep-alive.
                Ok(Some(Ok(_))) => continue,
                // The turn has no further events.
                Ok(None) if self.is_joined && self.is_empty => {
                    self.is_over = true;
                    continue;
                }
                Ok(None) => "the host ended it".to_owned(),
                Ok(Some(Err(e))) => e.to_string(),
                Err(_) => format!("nothing came for {} s", SILENCE.as_secs()),
            };
            self.now = None;
            if self.meeting.is_none() {
                self.is_over = true;
                return Err(Error::Broken { url: url.clone(), reason });
            }
        }
        Ok(None)
    }

    /// Joins the turn, if there is no connection.
    async fn connect(&mut self) -> Result<(), Error> {
        let (None, Some(meeting)) = (&self.now, &self.meeting) else { return Ok(()) };
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let mut url = self.route.clone();
        url.query_pairs_mut().append_pair("meetingId", meeting).append_pair("after", &self.after.to_string());
        let request = self.http.get(url.clone());
        self.now = Some(connect::events(&url, request, EVENT_BYTES, self.timeout).await?);
        (self.is_joined, self.is_empty) = (true, true);
        Ok(())
    }
}
