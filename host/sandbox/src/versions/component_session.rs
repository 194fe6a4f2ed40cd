//! Serves a session that a component started, and the calls of the component's own tools that wait for an answer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use guild_contract::Usage;
use guild_session::{
    meter::Ending,
    session::{QueryEvent, QueryHandle, SessionEnd},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wasmtime_wasi::async_trait;

use crate::usage::Memory;

/// The number of calls to a component's own tools that wait for it; further ones wait in the session.
const CALLS: usize = 16;

/// A component's answer to a call of its session, and the memory that the host holds for it until the session takes it.
pub(super) type OwnToolResult = Result<(Value, Memory), ToolError>;

/// The host's side of a `session`.
#[allow(unreachable_pub, reason = "the generated bindings re-export it, in a module that is private")]
pub struct SessionState {
    pub(super) query: QueryHandle,
    calls: mpsc::Receiver<PendingCall>,
    /// The calls that the component has taken and not answered, by their ids.
    pub(super) waiting: HashMap<String, oneshot::Sender<OwnToolResult>>,
    /// The next event, until the component takes it.
    next: Option<SessionEvent>,
    /// Whether the component has taken the last event.
    pub(super) ended: bool,
    _memory: Arc<Memory>,
}

/// An event of a session that its component takes.
pub(super) enum SessionEvent {
    /// A text of the agent, or the end.
    Query(QueryEvent),
    /// A call of one of the component's own tools.
    Call(OwnCall),
}

/// A call of a tool that the component answers.
pub(super) struct OwnCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON.
    pub(super) input: String,
}

/// A call, and the sender of its answer.
pub(super) struct PendingCall {
    call: OwnCall,
    reply: oneshot::Sender<OwnToolResult>,
}

/// The component's own tools, as its session sees them.
pub(super) struct OwnTools {
    definitions: Vec<Arc<ToolDefinition>>,
    calls: mpsc::Sender<PendingCall>,
    ids: AtomicU64,
    /// Memory of the host for the session. It is kept until the session, which has these tools, has ended, and until
    /// the component drops its handle.
    _memory: Arc<Memory>,
}

impl OwnTools {
    /// The tools, and their calls for [`SessionState::new`].
    pub(super) fn new(
        definitions: Vec<Arc<ToolDefinition>>,
        memory: Arc<Memory>,
    ) -> (Self, mpsc::Receiver<PendingCall>) {
        let (sender, calls) = mpsc::channel(CALLS);
        (Self { definitions, calls: sender, ids: AtomicU64::new(1), _memory: memory }, calls)
    }
}

#[async_trait]
impl Tools for OwnTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.definitions.clone()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let gone = |_| ToolError::Unavailable("the plugin no longer answers its tools".to_owned());
        let id = self.ids.fetch_add(1, Ordering::Relaxed).to_string();
        let (reply, answer) = oneshot::channel();
        let call = OwnCall { id, name: call.name, input: call.input.to_string() };
        self.calls.send(PendingCall { call, reply }).await.map_err(|_| gone(()))?;
        let (value, _memory) = answer.await.map_err(|_| gone(()))??;
        Ok(value)
    }
}

impl SessionState {
    pub(super) fn new(query: QueryHandle, calls: mpsc::Receiver<PendingCall>, memory: Arc<Memory>) -> Self {
        Self { query, calls, waiting: HashMap::new(), next: None, ended: false, _memory: memory }
    }

    /// Ready when there is a next event, or the component has taken the last one.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.next.is_some() || self.ended {
            return Poll::Ready(());
        }
        // The channel of calls is closed once the session has ended; its events say so.
        if let Poll::Ready(Some(call)) = self.calls.poll_recv(context) {
            self.next = Some(self.take_call(call));
            return Poll::Ready(());
        }
        self.query
            .events
            .poll_recv(context)
            .map(|event| self.next = Some(SessionEvent::Query(event.unwrap_or_else(lost))))
    }

    /// The next event if there is one already.
    pub(super) fn next(&mut self) -> Option<SessionEvent> {
        let _ = self.poll_ready(&mut Context::from_waker(Waker::noop()));
        let next = self.next.take();
        self.ended |= matches!(next, Some(SessionEvent::Query(QueryEvent::Finished(..))));
        next
    }

    fn take_call(&mut self, PendingCall { call, reply }: PendingCall) -> SessionEvent {
        self.waiting.insert(call.id.clone(), reply);
        SessionEvent::Call(call)
    }
}

/// The last event of a session that ended without one.
fn lost() -> QueryEvent {
    let why = "the session ended without a result".to_owned();
    QueryEvent::Finished(SessionEnd::from(Ending::Error(why)), Usage { cost_usd: None, ..Usage::default() })
}
