//! Manages sessions of MCP clients: their owners, their number, and their end when unused.
//!
//! The SDK identifies a session only by its id. Here a session also has an owner, the caller and the endpoint that
//! opened it: for all others it does not exist. A session takes one of a host's places, and returns it when it ends:
//! when its client closes it, or when it has not been used for a while. A session is in use while a response is being
//! made or sent, and while its client listens; so a long call never loses its session.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::Stream;
use guild_auth::Identity;
use guild_contract::Limits;
use rmcp::{
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
        local::{LocalSessionManager, LocalSessionManagerError},
    },
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::mcp::Endpoint;

/// The caller and the endpoint that opened a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The identity of the caller's token.
    pub(super) who: Identity,
    /// The endpoint.
    pub(super) endpoint: Endpoint,
}

/// The sessions of a host.
pub(super) struct Sessions {
    local: LocalSessionManager,
    places: Arc<Semaphore>,
    /// The maximum number of one caller's sessions; the rest is reserved for other callers.
    of_one: usize,
    patience: Duration,
    open: Mutex<HashMap<SessionId, Arc<Session>>>,
}

struct Session {
    owner: Owner,
    uses: Mutex<Uses>,
    ended: CancellationToken,
    /// Whether its client receives change notifications.
    is_notified: AtomicBool,
    /// The digest of the tools that its client was sent last; none before its first `tools/list`.
    tools: watch::Sender<Option<u64>>,
    /// The ids of its unanswered requests.
    asked: Mutex<HashSet<RequestId>>,
    /// None once another session has taken it over.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

struct Uses {
    now: usize,
    /// The end of the last use.
    last: Instant,
}

impl Sessions {
    /// Makes a set without sessions.
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let mut local = LocalSessionManager::default();
        // This module ends sessions, not the SDK.
        local.session_config.keep_alive = None;
        Arc::new(Self {
            local,
            places: Arc::new(Semaphore::new(limits.mcp_sessions as usize)),
            of_one: (limits.mcp_sessions as usize * 7 / 8).max(1),
            patience: Duration::from_secs(limits.mcp_session_seconds.into()),
            open: Mutex::default(),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a session of `who`: a free one, or else that of the session unused for the longest time, preferably
    /// one of `who`'s own. None if all sessions are in use.
    fn place(self: &Arc<Self>, who: &Identity) -> Option<OwnedSemaphorePermit> {
        let mut open = self.open();
        let own = open.values().filter(|session| session.owner.who == *who).count();
        if own < self.of_one
            && let Ok(place) = self.places.clone().try_acquire_owned()
        {
            return Some(place);
        }
        let unused = |(id, session): (&SessionId, &Arc<Session>)| {
            let is_another_s = session.owner.who != *who;
            (own < self.of_one || !is_another_s).then(|| (is_another_s, session.unused_since(), id.clone()))
        };
        let unused = open.iter().filter_map(unused).filter(|(_, since, _)| since.is_some());
        let (.., id) = unused.min_by_key(|(is_another_s, since, _)| (*is_another_s, *since))?;
        let session = open.remove(&id)?;
        drop(open);
        session.ended.cancel();
        let sessions = self.clone();
        tokio::spawn(async move { sessions.local.close_session(&id).await });
        session.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn close(&self, id: &SessionId) -> Result<(), LocalSessionManagerError> {
        let closed = self.open().remove(id);
        if let Some(session) = closed {
            session.ended.cancel();
        }
        self.local.close_session(id).await
    }

    /// Ends a session after it was unused for long enough.
    async fn end_unused(sessions: Weak<Self>, id: SessionId, session: Arc<Session>) {
        let Some(patience) = sessions.upgrade().map(|sessions| sessions.patience) else { return };
        let mut until = Instant::now() + patience;
        loop {
            tokio::select! {
                () = session.ended.cancelled() => return,
                () = tokio::time::sleep_until(until) => {}
            }
            let Some(sessions) = sessions.upgrade() else { return };
            // A new use of the session requires this lock.
            let mut open = sessions.open();
            let now = Instant::now();
            until = match session.unused_since() {
                Some(since) if since + patience <= now => {
                    open.remove(&id);
                    break;
                }
                Some(since) => since + patience,
                None => now + patience,
            };
        }
        session.ended.cancel();
        let Some(sessions) = sessions.upgrade() else { return };
        tracing::debug!(%id, "an unused session is closed");
        if let Err(error) = sessions.close(&id).await {
            tracing::warn!(%error, "a session could not be closed");
        }
    }
}

impl Session {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unused_since(&self) -> Option<Instant> {
        let uses = self.uses();
        (uses.now == 0).then_some(uses.last)
    }
}

/// Marks a session as in use until it is dropped.
pub(super) struct Use(Arc<Session>);

impl Use {
    fn of(session: Arc<Session>) -> Self {
        session.uses().now += 1;
        Self(session)
    }

    /// Starts change notifications for the session's client; true on the first call only.
    pub(super) fn start_notifications(&self) -> bool {
        !self.0.is_notified.swap(true, Ordering::Relaxed)
    }

    /// Registers an unanswered request until the result is dropped. None if one with the same id is open, since their
    /// responses could not be told apart.
    pub(super) fn asks(&self, id: &RequestId) -> Option<Question> {
        let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(id.clone()).then(|| Question { session: self.0.clone(), id: id.clone() })
    }

    /// Stores the digest of the tools that the session's client is sent.
    pub(super) fn sees_tools(&self, digest: u64) {
        self.0.tools.send_replace(Some(digest));
    }

    /// The digest of the tools that the session's client was sent last.
    pub(super) fn tools_seen(&self) -> watch::Receiver<Option<u64>> {
        self.0.tools.subscribe()
    }

    /// Ready when the session has ended.
    pub(super) fn ended(&self) -> CancellationToken {
        self.0.ended.clone()
    }
}

/// An unanswered request of a session.
pub(super) struct Question {
    session: Arc<Session>,
    id: RequestId,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.session.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut uses = self.0.uses();
        uses.now -= 1;
        uses.last = Instant::now();
    }
}

/// The sessions that one caller can see at one endpoint.
pub(super) struct Visitor {
    sessions: Arc<Sessions>,
    owner: Owner,
    /// The place for a session that is about to be opened.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

/// The reason that the SDK did not get or keep a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// No place was reserved for it.
    #[error("no place was taken for the session")]
    NoPlace,
    /// The SDK's own error.
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

impl Visitor {
    pub(super) fn new(sessions: Arc<Sessions>, owner: Owner) -> Self {
        Self { sessions, owner, place: Mutex::default() }
    }

    /// Marks a session as in use, if it belongs to the visitor.
    pub(super) fn enter(&self, id: &str) -> Option<Use> {
        let open = self.sessions.open();
        open.get(id).filter(|session| session.owner == self.owner).cloned().map(Use::of)
    }

    /// Reserves a place for a new session; false if none is left. An unused place is returned.
    pub(super) fn take_place(&mut self) -> bool {
        let place = self.sessions.place(&self.owner.who);
        let taken = place.is_some();
        self.place = Mutex::new(place);
        taken
    }
}

/// Delegates to the SDK's own session manager. [`Visitor::enter`] has been called before.
impl SessionManager for Visitor {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(SessionError::NoPlace)?;
        let (id, transport) = self.sessions.local.create_session().await?;
        let session = Arc::new(Session {
            owner: self.owner.clone(),
            uses: Mutex::new(Uses { now: 0, last: Instant::now() }),
            ended: CancellationToken::new(),
            is_notified: AtomicBool::new(false),
            tools: watch::Sender::new(None),
            asked: Mutex::default(),
            place: Mutex::new(Some(place)),
        });
        self.sessions.open().insert(id.clone(), session.clone());
        tokio::spawn(Sessions::end_unused(Arc::downgrade(&self.sessions), id.clone(), session));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.sessions.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.sessions.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        Ok(self.sessions.close(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.local.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.sessions.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.sessions.local.resume(id, last_event_id).await?)
    }
}
