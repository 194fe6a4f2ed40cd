//! What happens on a host, as it happens.

use std::time::Duration;

use futures::{StreamExt as _, stream::BoxStream};
use guild_contract::{Event, JobId, MemberKey, event::Kind};
use reqwest::{
    Url,
    header::{ACCEPT, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::value::RawValue;
use sse_stream::Sse;

use crate::{
    Error, Options,
    connect::{self, FIRST, longer, protocol},
    endpoint::events,
};

/// A host that is silent for longer is gone: it shows a sign of life every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// How much of an event is read.
const EVENT_BYTES: usize = 1024 * 1024;

/// What is to be told; of each, empty is everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of these members.
    pub members: Vec<MemberKey>,
    /// Of these jobs.
    pub jobs: Vec<JobId>,
    /// Of these kinds. A gap is told in any case.
    pub kinds: Vec<Kind>,
}

/// An event: as it came, and typed.
#[derive(Debug)]
pub struct Happened {
    /// What [`Events::resume`] goes on after.
    pub id: String,
    /// The event's own JSON.
    pub json: Box<RawValue>,
    /// What it says.
    pub event: Event,
}

/// The events of a host, from the moment on at which the first is asked for.
///
/// A connection that breaks is made again, and goes on after the last event: where the host has not kept all of them, or
/// was started again, that is an event, too ([`News::Gap`](guild_contract::News::Gap)).
pub struct Events {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    last: Option<HeaderValue>,
    now: Option<BoxStream<'static, Result<Sse, sse_stream::Error>>>,
    pause: Option<Duration>,
}

impl Events {
    /// The events of the host at `url`, which may be that of a member's endpoint: then they are that member's, unless
    /// `filter` names others. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`WorkerHandle::with_options`](crate::WorkerHandle::with_options).
    pub fn new(url: &str, filter: &Filter, options: &Options) -> Result<Self, Error> {
        let address = |reason| Error::Address { url: url.to_owned(), reason };
        let (mut url, of) = events(url).map_err(address)?;
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

    /// The same, after the event of that id.
    ///
    /// # Errors
    /// Where it can be no event's id.
    pub fn resume(mut self, id: &str) -> Result<Self, Error> {
        let id = HeaderValue::from_str(id);
        self.last = Some(id.map_err(|_| protocol(&self.url, "an event's id has no such characters"))?);
        Ok(self)
    }

    /// Connects, where there is no connection: from then on nothing is missed.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits a little and tries again.
    pub async fn connect(&mut self) -> Result<(), Error> {
        if self.now.is_some() {
            return Ok(());
        }
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let mut request = self.http.get(self.url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(last) = &self.last {
            request = request.header(HeaderName::from_static("last-event-id"), last);
        }
        let answered = tokio::time::timeout(self.timeout, request.send()).await;
        let timeout = Error::Timeout { url: self.url.clone(), after: self.timeout };
        let mut response = answered.map_err(|_| timeout)?.map_err(|e| connect::failed(e, &self.url, self.timeout))?;
        if !response.status().is_success() {
            return Err(connect::refused(&self.url, &mut response).await);
        }
        self.now = Some(connect::sse(response, EVENT_BYTES));
        Ok(())
    }

    /// The next event. It waits as long as nothing happens. To stop, drop it.
    ///
    /// # Errors
    /// Where the connection broke and cannot be made again at once: see [`Error`]. After one that
    /// [may pass](Error::may_pass), the next call waits a little and goes on where this one ended.
    pub async fn next(&mut self) -> Result<Happened, Error> {
        loop {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(told))) => {
                    self.pause = None;
                    if let Some(happened) = self.told(told)? {
                        return Ok(happened);
                    }
                }
                // A host that stops, a proxy that is restarted, a token that was revoked: the next answer tells which.
                Err(_) | Ok(Some(Err(sse_stream::Error::Body(_))) | None) => self.now = None,
                Ok(Some(Err(error))) => {
                    self.now = None;
                    return Err(protocol(&self.url, error.to_string()));
                }
            }
        }
    }

    /// What came; `None` where it is nothing that happened, or of a kind that this client does not know.
    fn told(&mut self, told: Sse) -> Result<Option<Happened>, Error> {
        let Sse { event, data, id, .. } = told;
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
        Ok(Some(Happened { id: id.unwrap_or_default(), json, event }))
    }
}
