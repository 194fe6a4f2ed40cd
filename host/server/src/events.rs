//! `GET /events`: streams job events to subscribers as server-sent events.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, StatusCode, Uri,
        header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use guild_auth::{Caller, Subscription, budget::Permit};
use guild_contract::{JobId, MemberKey, job::event::Kind, rpc::RpcError};
use guild_roster::events::{Hub, Record, Start};
use guild_telemetry::record;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::declined::Declined;

/// The path of the event stream.
pub(crate) const PATH: &str = "/events";
/// After this time without an event, a comment shows the client that the connection is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Seconds after which a refused subscriber may retry.
const COME_BACK: HeaderValue = HeaderValue::from_static("5");

/// The events that a listener subscribes to. An empty filter passes all events.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    members: BTreeSet<MemberKey>,
    jobs: BTreeSet<JobId>,
    kinds: Vec<Kind>,
    /// Whether to begin with the events that the host still keeps.
    from_oldest: bool,
    /// The id of the last event that the client received.
    after: Option<String>,
}

impl Wanted {
    /// Reads the subscription from the query and the headers of a request.
    fn of(query: &str, headers: &HeaderMap) -> Result<Self, String> {
        let mut wanted = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "member" => drop(wanted.members.insert(value.parse().map_err(|e| format!("member: {e}"))?)),
                "job" => drop(wanted.jobs.insert(value.parse().map_err(|e| format!("job: {e}"))?)),
                "kind" => wanted.kinds.push(value.parse().map_err(|e| format!("kind: {e}"))?),
                "since" if value == "now" => wanted.from_oldest = false,
                "since" if value == "kept" => wanted.from_oldest = true,
                "since" => return Err(format!("since: {value:?} is neither now nor kept")),
                "lastEventId" => wanted.after = Some(value.into_owned()),
                name => {
                    return Err(format!(
                        "{name:?} is not a parameter; the parameters are member, job, kind, since, lastEventId"
                    ));
                }
            }
        }
        // The header is newer than the query.
        if let Some(id) = headers.get("last-event-id") {
            wanted.after = Some(id.to_str().map_err(|_| "Last-Event-ID: it is not text")?.to_owned());
        }
        wanted.after = wanted.after.filter(|id| !id.is_empty());
        Ok(wanted)
    }

    fn wants(&self, event: &Record) -> bool {
        fn is_in<T: Ord>(set: &BTreeSet<T>, value: Option<&T>) -> bool {
            set.is_empty() || value.is_some_and(|value| set.contains(value))
        }
        is_in(&self.members, event.member.as_ref())
            && is_in(&self.jobs, event.job.as_ref())
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

/// Responds to a caller that subscribes.
pub(crate) fn listen(hub: &Arc<Hub>, caller: Caller, uri: &Uri, headers: &HeaderMap) -> Response {
    let bad = |why: String| (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
    let wanted = match Wanted::of(uri.query().unwrap_or_default(), headers) {
        Ok(wanted) => wanted,
        Err(why) => return bad(why),
    };
    let start = match &wanted.after {
        Some(id) => match hub.read(|ring| ring.after(id)) {
            Some(start) => start,
            None => return bad(format!("Last-Event-ID: {id:?} is not the id of an event")),
        },
        None if wanted.from_oldest => Start::Oldest,
        None => Start::Now,
    };
    let Some(place) = hub.place(caller.identity()) else { return no_place(hub).text() };
    let subscription = match caller.subscribe(wanted.members.iter().map(MemberKey::as_str)) {
        Ok(subscription) => subscription,
        Err(refused) => return Declined::from(refused).text(),
    };
    let (first, at) = hub.read(|ring| ring.begin(start));
    let stream = EventStream {
        hub: hub.clone(),
        newest: hub.newest(),
        wanted,
        subscription,
        at,
        first: Some(first.freeze()),
        taken: None,
        _place: place,
    };
    event_stream(Body::from_stream(stream::unfold(stream, EventStream::next)))
}

/// A response whose body is a stream of server-sent events.
pub(crate) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A buffering proxy would never pass the stream on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The response when no place is free for a listener.
pub(crate) fn no_place(hub: &Hub) -> Declined {
    record::limit_reached("listeners");
    let most = hub.limits.listeners;
    let why =
        format!("all callers or this one have reached limits.listeners = {most}; try again when a listener has gone");
    Declined::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::busy(why)).with(RETRY_AFTER, COME_BACK)
}

/// The stream of one listener.
struct EventStream {
    hub: Arc<Hub>,
    newest: watch::Receiver<u64>,
    wanted: Wanted,
    subscription: Subscription,
    /// The number of the last event that is sent, or that the listener does not subscribe to.
    at: u64,
    first: Option<Bytes>,
    /// Ready when the operating system has taken the last frame.
    taken: Option<oneshot::Receiver<Infallible>>,
    _place: Permit,
}

/// A frame for a listener, with a marker that is dropped once the frame is sent.
struct Frame {
    text: Bytes,
    _taken: oneshot::Sender<Infallible>,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl EventStream {
    /// Returns the next frame. No frame is prepared until the client has read the previous one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(taken) = self.taken.take() {
            let _ = taken.await;
        }
        let text = match self.first.take() {
            Some(first) => first,
            None => self.next_batch().await?,
        };
        let (_taken, taken) = oneshot::channel();
        self.taken = Some(taken);
        Some((Ok(Bytes::from_owner(Frame { text, _taken })), self))
    }

    /// Returns new events, or a keep-alive; `None` once the client may no longer listen.
    async fn next_batch(&mut self) -> Option<Bytes> {
        let quiet = Instant::now() + KEEP_ALIVE;
        loop {
            if !self.subscription.is_good() {
                return None;
            }
            self.newest.mark_unchanged();
            let Self { wanted, subscription, .. } = self;
            let for_it = |event: &Record| {
                wanted.wants(event) && event.member.as_ref().is_none_or(|member| subscription.may_see(member.as_str()))
            };
            let (batch, at) = self.hub.read(|ring| ring.read(self.at, for_it));
            self.at = at;
            if !batch.is_empty() {
                return Some(batch.freeze());
            }
            match timeout_at(quiet, self.newest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                // The id lets a client that reconnects skip the events that it did not subscribe to.
                Err(_) => return Some(format!(":\nid: {}\n\n", self.hub.read(|ring| ring.id(at))).into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_from_query_and_header_and_what_is_wrong_is_named() {
        let of = |query: &str| Wanted::of(query, &HeaderMap::new());
        let wanted = of("member=team%2Fann&member=b&job=j&kind=job-ended&since=kept&lastEventId=f-1").unwrap();
        assert_eq!(wanted.members.iter().map(MemberKey::as_str).collect::<Vec<_>>(), ["b", "team/ann"]);
        assert_eq!((wanted.jobs.len(), wanted.kinds, wanted.from_oldest), (1, vec![Kind::JobEnded], true));
        assert_eq!(wanted.after.as_deref(), Some("f-1"));
        assert_eq!(of("").unwrap(), Wanted::default());
        for (query, why) in [
            ("member=..", "member: a member's key"),
            ("job=a/b", "job: a job id is"),
            ("kind=ended", "the kinds are job-started"),
            ("since=yesterday", "neither now nor kept"),
            ("members=a", "the parameters are member, job"),
        ] {
            let error = of(query).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let headers = HeaderMap::from_iter([("last-event-id".parse().unwrap(), HeaderValue::from_static("f-2"))]);
        assert_eq!(Wanted::of("lastEventId=f-1", &headers).unwrap().after.as_deref(), Some("f-2"));
    }
}
