//! The tools of one member's component, for whoever calls them: clients of MCP, and the sessions of workers that named the
//! member among their toolboxes. Each call is under the grants of the toolbox, whoever it is for.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::{
    Grants, Limits, MemberKey,
    manifest::Interface,
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use guild_jobs::MemoryStore;
use guild_sandbox::{CallError, ToolScope};
use guild_session::web::Web;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};
use tracing::Instrument as _;

use crate::{
    catalogue::Catalogue,
    component::{self, Component, Loaded},
    reach::Reach,
    runtimes::Runtimes,
    schema::{self, Refused, Schema},
    sources::{Reader, Sources},
};

/// How long an answer waits to be checked, at least.
const LAST_CHECK: Duration = Duration::from_secs(1);

/// Why a tool gave no result.
#[derive(Debug)]
pub enum ToolFailure {
    /// There is no tool of this name.
    Unknown(String),
    /// The caller is to see it as the tool's answer: input that its schema refuses (the text says where), the tool's own
    /// error, a trap, the deadline.
    Failed(String),
    /// The component is not there: it is being loaded, broken, or busy.
    Unavailable(RpcError),
}

impl fmt::Display for ToolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(_) => f.write_str("there is no such tool"),
            Self::Failed(why) => f.write_str(why),
            Self::Unavailable(error) => f.write_str(&error.message),
        }
    }
}

/// The tools of one member, as its manifest and its component have it now. Where those change, another one takes its place;
/// whoever holds this one goes on with what it began with.
pub struct Toolbox {
    key: MemberKey,
    component: watch::Receiver<Component>,
    memory: Arc<MemoryStore>,
    grants: Arc<Grants>,
    reader: Reader,
    sources: Arc<Sources>,
    runtimes: Arc<Runtimes>,
    /// How long one who wants to know its tools waits until the component is there.
    wait: Duration,
    /// How long a call waits for its turn.
    call_wait: Duration,
    checks: Semaphore,
    limits: Arc<Limits>,
}

impl Toolbox {
    /// The tools of a member that reaches `reach`, once its component is loaded.
    pub(crate) fn new(
        key: MemberKey,
        memory: Arc<MemoryStore>,
        reach: &Reach,
        (sources, runtimes, limits): (&Arc<Sources>, &Arc<Runtimes>, &Arc<Limits>),
        component: watch::Receiver<Component>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            component,
            memory,
            grants: reach.grants.clone(),
            reader: reach.reader.clone(),
            sources: sources.clone(),
            runtimes: runtimes.clone(),
            wait: Duration::from_secs(limits.dispatch_wait_seconds.into()),
            call_wait: Duration::from_secs(limits.call_tool_wait_seconds.into()),
            checks: Semaphore::new(schema::PLACES),
            limits: limits.clone(),
        })
    }

    /// Whose tools they are.
    pub fn key(&self) -> &MemberKey {
        &self.key
    }

    /// Where its component is.
    pub fn component(&self) -> watch::Receiver<Component> {
        self.component.clone()
    }

    /// Until when a caller that asks now waits for the component.
    pub fn patience(&self) -> Instant {
        Instant::now() + self.wait
    }

    /// Its tools, once its component is loaded.
    ///
    /// # Errors
    /// -32000 where it is still being loaded then; -32603 with the reason where it is broken.
    pub async fn tools(&self, until: Instant) -> Result<Arc<Catalogue>, RpcError> {
        Ok(self.loaded(until).await?.catalogue.clone())
    }

    /// Its component, once it is loaded; the errors are those of [`Self::tools`].
    pub async fn loaded(&self, until: Instant) -> Result<Arc<Loaded>, RpcError> {
        component::ready(&self.component, &self.key, until).await
    }

    /// Whether it has a tool of that name; none where that is not known, since its component is not in service.
    pub fn lists(&self, name: &str) -> Option<bool> {
        match &*self.component.borrow() {
            Component::Ready(loaded) => Some(loaded.catalogue.schemas.contains_key(name)),
            Component::Loading(_) | Component::Failed(_) => None,
        }
    }

    /// The names of its tools; none where its component is not in service.
    pub fn names(&self) -> Vec<String> {
        match &*self.component.borrow() {
            Component::Ready(loaded) => loaded.catalogue.tools.iter().map(|tool| tool.name.clone()).collect(),
            Component::Loading(_) | Component::Failed(_) => Vec::new(),
        }
    }

    /// Calls a tool: its input is checked against its schema, then the component is called, in a fresh instance.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub async fn call(&self, name: &str, input: Value) -> Result<Value, ToolFailure> {
        let until = self.turn();
        let loaded = self.loaded(until).await.map_err(ToolFailure::Unavailable)?;
        self.call_until(until, &loaded, name, input).await
    }

    /// [`Self::call`], of the component as it was when `loaded` was asked for.
    pub async fn call_of(&self, loaded: &Loaded, name: &str, input: Value) -> Result<Value, ToolFailure> {
        self.call_until(self.turn(), loaded, name, input).await
    }

    /// Until when a call waits that is made now, for all that it has to wait for before its component is called.
    fn turn(&self) -> Instant {
        Instant::now() + self.call_wait
    }

    async fn call_until(
        &self,
        until: Instant,
        loaded: &Loaded,
        name: &str,
        input: Value,
    ) -> Result<Value, ToolFailure> {
        let span = tracing::debug_span!("call", member = %self.key, tool = one_line(name, LOGGED_CHARS));
        let called = self.checked_call(until, loaded, name, input).instrument(span.clone()).await;
        if let Err(failure) = &called {
            span.in_scope(|| {
                tracing::debug!(why = one_line(&failure.to_string(), LOGGED_CHARS), "a tool call has no result");
            });
        }
        called
    }

    async fn checked_call(
        &self,
        until: Instant,
        loaded: &Loaded,
        name: &str,
        input: Value,
    ) -> Result<Value, ToolFailure> {
        let schemas = loaded.catalogue.schemas.get(name).ok_or_else(|| ToolFailure::Unknown(name.to_owned()))?;
        self.check(&schemas.input, &input, until, || format!("the input is not what {name} takes")).await?;
        let output = match loaded.plugin.call_tool(name, &input, self.scope(until)).await {
            Ok(Ok(output)) => output,
            Ok(Err(fault)) => return Err(ToolFailure::Failed(fault.to_string())),
            Err(busy @ CallError::Busy(_)) => {
                let why = format!("the tools of {}: {busy}; try again", self.key);
                return Err(ToolFailure::Unavailable(RpcError::busy(why)));
            }
            Err(e) => return Err(ToolFailure::Failed(format!("the tool {name} did not work: {e}"))),
        };
        let Some(schema) = &schemas.output else { return Ok(output) };
        // Clients believe what is listed, and many refuse an answer that is not so.
        let until = until.max(Instant::now() + LAST_CHECK);
        self.check(schema, &output, until, || format!("the tool {name} did not answer what its output schema says"))
            .await?;
        Ok(output)
    }

    /// Refuses a value that a schema does not take. `what` is said of it before the reason.
    async fn check(
        &self,
        schema: &Schema,
        value: &Value,
        until: Instant,
        what: impl FnOnce() -> String,
    ) -> Result<(), ToolFailure> {
        let checked = schema.check(value, &self.limits, &self.checks, until).await;
        checked.map_err(|refused| match refused {
            Refused::Invalid(why) => ToolFailure::Failed(format!("{}: {why}", what())),
            Refused::Busy => {
                let why = format!("the inputs and answers of other calls of {} are being checked; try again", self.key);
                ToolFailure::Unavailable(RpcError::busy(why))
            }
        })
    }

    /// What a call reaches: what the toolbox was granted, and nothing of whoever calls. Pages that are fetched are kept for
    /// the one call.
    fn scope(&self, wait_until: Instant) -> ToolScope {
        let web = match self.grants.has(Interface::Web) {
            true => Reach::new(Some(&self.key), self.grants.clone(), &self.sources, &self.runtimes).own_web,
            false => Web::default(),
        };
        let files = self.reader.files.clone();
        ToolScope { memory: self.memory.clone(), files, web, host: Handle::current(), wait_until }
    }
}
