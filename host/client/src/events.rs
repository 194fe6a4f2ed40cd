//! Streams the events of a host.

use std::time::Duration;

use futures::StreamExt as _;
use guild_contract::{Event, JobId, MemberKey, job::event::Kind};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::value::RawValue;
use sse_stream::Sse;

use crate::{
    Error, Options,
    connect::{self, FIRST, SILENCE, longer, protocol},
    endpoint::events,
};

/// The maximum size of an event.
const EVENT_BYTES: usize = 1024 * 1024;

/// The events to subscribe to. An empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Events of these members.
    pub members: Vec<MemberKey>,
    /// Events of these jobs.
    pub jobs: Vec<JobId>,
    /// Events of these kinds. A gap is always reported.
    pub kinds: Vec<Kind>,
}

/// An event: its JSON as received, and typed.
#[derive(Debug)]
pub struct ReceivedEvent {
    /// The event's id, for [`Events::resume`].
    pub id: String,
    /// The JSON as received.
    pub json: Box<RawValue>,
    /// The event that was parsed from it.
    pub event: Event,
}

/// The events of a host, beginning with the first call of [`Self::connect`] or [`Self::next`].
///
/// A broken connection is made again, and continues after the last event. If the host has not kept all events since
/// then, or was restarted, that is an event, too ([`EventDetail::Gap`](guild_contract::EventDetail::Gap)).
pub struct Events {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    last: Option<HeaderValue>,
    now: Option<connect::Stream>,
    pause: Option<Duration>,
}

impl Events {
    /// The events of the host at `url`. If that is a member's endpoint, they are that member's events, unless `filter`
    /// names other members. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`WorkerHandle::with_options`](crate::WorkerHandle::with_options).
    pub fn new(url: &str, filter: &Filter, options: &Options) -> Result<Self, Error> {
        let (mut url, of) = events(url)?;
        {
            let mut query = url.query_pairs_mut();
            let own = of.as_ref().filter(|_| filter.members.is_empty());
            query.extend_pairs(filter.members.iter().chain(own).map(|member| ("member", member.as_str())));
            query.extend_pairs(filter.jobs.iter().map(|job| ("job", job.as_str())));
            query.extend_pairs(filter.kinds.iter().map(|kind| ("kind", kind.as_str())));
        }
        let http = connect::client(&url, options, HeaderMap::new(), None)?;
        Ok(Self { http, url, timeout: options.timeout, last: None, now: None, pause: None })
    }

    /// Continues after the event with that id.
    ///
    /// # Errors
    /// If it is not a valid id.
    pub fn resume(mut self, id: &str) -> Result<Self, Error> {
        let id = HeaderValue::from_str(id);
        self.last = Some(id.map_err(|_| protocol(&self.url, "an event's id has no such characters"))?);
        Ok(self)
    }

    /// Connects, if there is no connection. No later event is missed.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits briefly and tries again.
    pub async fn connect(&mut self) -> Result<(), Error> {
        if self.now.is_some() {
            return Ok(());
        }
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let mut request = self.http.get(self.url.clone());
        if let Some(last) = &self.last {
            request = request.header(HeaderName::from_static("last-event-id"), last);
        }
        self.now = Some(connect::events(&self.url, request, EVENT_BYTES, self.timeout).await?);
        Ok(())
    }

    /// Waits for the next event. Dropping the future is safe.
    ///
    /// # Errors
    /// If the connection broke and cannot be made again at once: see [`Error`]. After one that
    /// [may pass](Error::may_pass), the next call waits briefly and continues where this one ended.
    pub async fn next(&mut self) -> Result<ReceivedEvent, Error> {
        loop {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(message))) => {
                    self.pause = None;
                    if let Some(received) = self.parse(message)? {
                        return Ok(received);
                    }
                }
                // The host or a proxy stopped, or the token was revoked: the next answer shows which.
                Err(_) | Ok(Some(Err(sse_stream::Error::Body(_))) | None) => self.now = None,
                Ok(Some(Err(error))) => {
                    self.now = None;
                    return Err(protocol(&self.url, error.to_string()));
                }
            }
        }
    }

    /// The event of a message; `None` for a message without an event, or with one of an unknown kind.
    fn parse(&mut self, message: Sse) -> Result<Option<ReceivedEvent>, Error> {
        let Sse { event, data, id, .. } = message;
        if let Some(id) = &id {
            self.last = HeaderValue::from_str(id).ok();
        }
        let (Some(kind), Some(data)) = (event, data) else { return Ok(None) };
        if kind.parse::<Kind>().is_err() {
            return Ok(None);
        }
        let wrong = |e: serde_json::Error| protocol(&self.url, e.to_string());
        let event = serde_json::from_str(&data).map_err(wrong)?;
        let json = RawValue::from_string(data).map_err(wrong)?;
        Ok(Some(ReceivedEvent { id: id.unwrap_or_default(), json, event }))
    }
}
