//! The connections of a listener, whichever it is: how many there are, which one makes room for another, and what a client
//! may take its time for.
//!
//! A client that connects and says nothing, or sends a head or a body slowly, costs a place that others need. Where all
//! places are taken, the connection that has waited for its client for longest is closed. One with a request under way is
//! never closed for another.

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
    Router,
    body::{Body, HttpBody},
    http::Extensions,
    response::Response,
};
use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use guild_auth::{Connection, LARGE};
use guild_contract::Limits;
use hyper::{body::Frame, server::conn::http1};
use hyper_util::{
    rt::TokioTimer,
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower_http::add_extension::AddExtension;

use crate::patience::LAST_WORDS;

/// How long to wait where the system has nothing left for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks for a connection that makes room for another.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// How often the log says so.
const EXHAUSTED_LOGGED: Duration = Duration::from_secs(60);
/// Bytes of a client's that are read before somebody asks for them, on each connection.
const READ_AHEAD: usize = 64 * 1024;

/// Accepts connections until `stop` is ready. Then an answer under way gets 100 ms, and all connections are closed.
///
/// `begin` says what a connection is served with; `None` closes it at once. At most `limits.connections` are served at a
/// time.
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
                    // What is left of a connection that has ended is dropped at once.
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
    // Nobody can connect any more, where the listener is this one's.
    drop(accept);
    // What is not answered then is closed.
    let _ = timeout(LAST_WORDS, graceful.shutdown()).await;
    tasks.shutdown().await;
}

/// HTTP/1 as all listeners speak it.
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

/// The routes as a service of one connection, whose requests have it and its activity as extensions.
pub(crate) fn service(router: Router, from: Connection, activity: Arc<Activity>) -> ConnectionService {
    TowerToHyperService::new(AddExtension::new(AddExtension::new(router, Arc::new(from)), activity))
}

/// See [`service`].
pub(crate) type ConnectionService =
    TowerToHyperService<AddExtension<AddExtension<Router, Arc<Connection>>, Arc<Activity>>>;

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// The places of a listener's connections.
struct Connections {
    places: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
}

/// The place of a connection, until this is dropped.
struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    fn new(limits: &Limits) -> Self {
        let most = usize::try_from(limits.connections).unwrap_or(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))), open: Mutex::default() }
    }

    /// A place that is free, else that of the connection which has waited for its client for longest.
    async fn place(self: &Arc<Self>, number: u64, activity: &Arc<Activity>) -> Place {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            // A connection that is at work now may wait for its client later.
            Err(_) => loop {
                self.close_longest_waiting();
                if let Ok(permit) = timeout(ROOM_PAUSE, self.places.clone().acquire_owned()).await {
                    break permit.ok();
                }
            },
        };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, activity.clone());
        Place { _permit: permit, connections: self.clone(), number }
    }

    fn close_longest_waiting(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting: Vec<_> =
            open.values().filter_map(|activity| Some((activity.waiting_since()?, activity))).collect();
        waiting.sort_unstable_by_key(|(since, _)| *since);
        // One whose request begins at this moment is left alone.
        let _ = waiting.into_iter().any(|(_, activity)| activity.close());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// What a connection does now: it waits for its client, or has a request under way. Requests take no lock for it.
pub(crate) struct Activity {
    opened: Instant,
    /// [`BUSY`], [`CLOSED`], or since when it has waited, in microseconds after it was opened.
    state: AtomicU64,
    closed: CancellationToken,
}

const BUSY: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;

impl Activity {
    fn new() -> Self {
        Self { opened: Instant::now(), state: AtomicU64::new(0), closed: CancellationToken::new() }
    }

    /// That of the connection by which a request came.
    pub(crate) fn of(extensions: &Extensions) -> Option<Arc<Self>> {
        extensions.get::<Arc<Self>>().cloned()
    }

    fn waiting_since(&self) -> Option<Instant> {
        match self.state.load(Ordering::Acquire) {
            BUSY | CLOSED => None,
            waited => Some(self.opened + Duration::from_micros(waited)),
        }
    }

    /// Closes a connection that waits for its client; false where it does not wait.
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

    /// Has a request under way until what this gives is dropped. On a connection that is being closed this is never ready.
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

    /// Carries something out that waits for the client, as for a body.
    pub(crate) async fn waiting<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        self.wait();
        let done = work.await;
        self.begin().await;
        done
    }
}

/// A request that is under way.
pub(crate) struct Working(Arc<Activity>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl Working {
    /// Goes with a response until it is sent, unless it is so small that the system takes it at once.
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

/// Failed attempts to accept a connection, as they are logged: the first at once, the others as a number, once in
/// each [`EXHAUSTED_LOGGED`].
#[derive(Default)]
struct Exhausted {
    logged: Option<Instant>,
    untold: u64,
}

impl Exhausted {
    /// Counts one more. Returns the number of those that were not logged, if they are to be logged now.
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
