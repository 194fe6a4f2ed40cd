//! Manages the connections of a listener: their number, their timeouts, and the choice of a connection to close for a
//! new one.
//!
//! A client that connects and sends nothing, or sends a head or a body slowly, occupies a place that others need. When
//! all places are taken, the connection that has waited longest for its client is closed. A connection with a running
//! request is never closed for another.

pub(crate) mod write_timeout;

use std::{
    collections::HashMap,
    io, mem,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    response::Response,
};
use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use guild_auth::LARGE;
use guild_contract::Limits;
use guild_telemetry::record::{self, Connected};
use hyper::{body::Frame, server::conn::http1};
use hyper_util::{
    rt::TokioTimer,
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::connections::write_timeout::SHUTDOWN_GRACE;

/// The pause after the system has no resources left for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// The interval between two searches for a connection to close.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// The interval between two log lines about failed attempts to accept a connection.
const EXHAUSTED_LOGGED: Duration = Duration::from_secs(60);
/// Bytes that are read ahead on each connection.
const READ_AHEAD: usize = 64 * 1024;

/// Accepts connections until `stop` is ready. A running response then gets 100 ms, and all connections are closed.
///
/// `begin` returns the future that serves a connection; `None` closes it at once. At most `limits.connections` are
/// served at a time.
pub(crate) async fn serve<S>(
    limits: &Limits,
    accept: impl Fn() -> BoxFuture<'static, io::Result<S>>,
    begin: impl Fn(S, Arc<Activity>, Watcher) -> Option<BoxFuture<'static, ()>>,
    stop: impl Future<Output = ()>,
) {
    let connections = Arc::new(Connections::new(limits));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let accepting = async {
        let mut exhausted = Exhausted::default();
        for number in 0.. {
            let accepted = loop {
                tokio::select! {
                    accepted = accept() => break accepted,
                    // The task of an ended connection is dropped at once.
                    _ = tasks.join_next(), if !tasks.is_empty() => {}
                }
            };
            match accepted {
                Ok(stream) => {
                    let activity = Arc::new(Activity::new());
                    let Some(served) = begin(stream, activity.clone(), graceful.watcher()) else { continue };
                    let place = connections.place(number, &activity).await;
                    tasks.spawn(async move {
                        tokio::select! {
                            () = served => {}
                            () = activity.closed.cancelled() => {
                                tracing::debug!("a connection that waited for its client is closed for another");
                            }
                        }
                        drop(place);
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if let Some(attempts) = exhausted.failed(Instant::now()) {
                        tracing::warn!(%error, attempts, "no connection can be accepted at the moment; retrying");
                    }
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    // Clients can no longer connect, if the listener belongs to this call.
    drop(accept);
    // Requests that are still unanswered are dropped.
    let _ = timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
    tasks.shutdown().await;
}

/// The HTTP/1 settings of all listeners.
pub(crate) fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    let head = usize::try_from(limits.header_bytes).unwrap_or(usize::MAX);
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(limits.client_seconds.into()))
        .max_headers(limits.headers as usize)
        .max_header_size(head)
        .max_buf_size(READ_AHEAD.max(head.saturating_add(READ_AHEAD / 4)));
    http
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// The places for connections of a listener.
struct Connections {
    places: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
}

/// The place of a connection, released on drop.
struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    connections: Arc<Connections>,
    number: u64,
    _counted: Connected,
}

impl Connections {
    fn new(limits: &Limits) -> Self {
        let most = usize::try_from(limits.connections).unwrap_or(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))), open: Mutex::default() }
    }

    /// Returns a free place, or else that of the connection that has waited longest for its client.
    async fn place(self: &Arc<Self>, number: u64, activity: &Arc<Activity>) -> Place {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            // A connection that is busy now may wait for its client later.
            Err(_) => loop {
                self.close_longest_waiting();
                if let Ok(permit) = timeout(ROOM_PAUSE, self.places.clone().acquire_owned()).await {
                    break permit.ok();
                }
            },
        };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, activity.clone());
        Place { _permit: permit, connections: self.clone(), number, _counted: record::connected() }
    }

    fn close_longest_waiting(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting: Vec<_> =
            open.values().filter_map(|activity| Some((activity.waiting_since()?, activity))).collect();
        waiting.sort_unstable_by_key(|(since, _)| *since);
        // A connection whose request begins at this moment is left alone.
        let _ = waiting.into_iter().any(|(_, activity)| activity.close());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// The state of a connection: waiting for its client, or serving a request. Requests take no lock to change it.
pub(crate) struct Activity {
    opened: Instant,
    /// [`BUSY`], [`CLOSED`], or the time since which the connection has waited, in microseconds after it was opened.
    state: AtomicU64,
    closed: CancellationToken,
}

const BUSY: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;

impl Activity {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), state: AtomicU64::new(0), closed: CancellationToken::new() }
    }

    fn waiting_since(&self) -> Option<Instant> {
        match self.state.load(Ordering::Acquire) {
            BUSY | CLOSED => None,
            waited => Some(self.opened + Duration::from_micros(waited)),
        }
    }

    /// Closes a connection that waits for its client; false if the connection is busy.
    fn close(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        let may_close = state < CLOSED;
        let closes =
            may_close && self.state.compare_exchange(state, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if closes {
            self.closed.cancel();
        }
        closes
    }

    /// Marks the connection busy until the returned guard is dropped. Never ready on a connection that is being closed.
    pub(crate) async fn works(self: &Arc<Self>) -> Working {
        self.begin().await;
        Working(self.clone())
    }

    async fn begin(&self) {
        let begun =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != CLOSED).then_some(BUSY));
        if begun.is_err() {
            pending::<()>().await;
        }
    }

    fn wait(&self) {
        let waited = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(0);
        let _ = self.state.compare_exchange(BUSY, waited, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Runs `work` with the connection marked as waiting for its client, as for a body.
    pub(crate) async fn waiting<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        self.wait();
        let done = work.await;
        self.begin().await;
        done
    }
}

/// Marks a connection as busy with a request.
pub(crate) struct Working(Arc<Activity>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl Working {
    /// Keeps the guard until the response is sent, unless the response is so small that the system takes it at once.
    pub(crate) fn until_sent(self, response: Response) -> Response {
        match response.body().size_hint().exact() {
            Some(bytes) if bytes <= LARGE => response,
            _ => response.map(|body| Body::new(Sending { body, _working: self })),
        }
    }
}

/// A body that is being sent.
struct Sending {
    body: Body,
    _working: Working,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// Failed attempts to accept a connection. The first is logged at once, the others as a count once in each
/// [`EXHAUSTED_LOGGED`].
#[derive(Default)]
struct Exhausted {
    logged: Option<Instant>,
    untold: u64,
}

impl Exhausted {
    /// Counts one more failure. Returns the number of unlogged failures when they are due in the log.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.untold = self.untold.saturating_add(1);
        if self.logged.is_some_and(|logged| now.duration_since(logged) < EXHAUSTED_LOGGED) {
            return None;
        }
        self.logged = Some(now);
        Some(mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_once_a_minute_that_no_connection_can_be_accepted() {
        let (mut exhausted, begun) = (Exhausted::default(), Instant::now());
        let mut failed = |seconds| exhausted.failed(begun + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 300].map(&mut failed), [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[tokio::test]
    async fn the_connection_that_has_waited_longest_makes_room_and_one_at_work_does_not() {
        let connections = Arc::new(Connections::new(&Limits { connections: 2, ..Limits::default() }));
        let [working, waiting, new] = [(); 3].map(|()| Arc::new(Activity::new()));
        let work = working.works().await;
        let _first = connections.place(1, &working).await;
        let second = connections.place(2, &waiting).await;
        let mut wanted = Box::pin(connections.place(3, &new));
        assert!(futures::poll!(&mut wanted).is_pending());
        assert!(waiting.closed.is_cancelled() && !working.closed.is_cancelled());
        drop(second);
        wanted.await;
        drop(work);
        assert!(working.close() && !working.close());
    }
}
