//! Calls the tools of one member's component, for MCP clients and for sessions of workers that name the member among
//! their toolboxes. Each call is under the grants of the toolbox, not of its caller.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::{
    Grants, Limits, MemberKey,
    capability::WEB,
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

use super::{
    catalogue::Catalogue,
    component::{self, Component, Loaded},
    schema::{self, Refused, Schema},
};
use crate::resources::{Reach, Resources};

/// How long an answer waits to be checked, at least.
const LAST_CHECK: Duration = Duration::from_secs(1);

/// The error of a tool call.
#[derive(Debug, thiserror::Error)]
pub enum ToolFailure {
    /// There is no tool of this name.
    #[error("there is no such tool")]
    Unknown(String),
    /// The caller is to see it as the tool's answer: input that its schema refuses (the text says where), the tool's
    /// own error, a trap, the deadline.
    #[error("{0}")]
    Failed(String),
    /// The component is not there: it is being loaded, broken, or busy.
    #[error("{}", .0.message)]
    Unavailable(RpcError),
}

/// The tools of one member, as its manifest and its component have it now. Where those change, another one replaces it;
/// jobs and requests keep the one that they began with.
pub struct Toolbox {
    key: MemberKey,
    pub(crate) component: watch::Receiver<Component>,
    memory: Arc<MemoryStore>,
    grants: Arc<Grants>,
    resources: Arc<Resources>,
    limits: Arc<Limits>,
    checks: Semaphore,
}

impl Toolbox {
    /// The tools of a member with these grants, once its component is loaded. The limits are those that hold for calls.
    pub(crate) fn new(
        key: MemberKey,
        memory: Arc<MemoryStore>,
        grants: Arc<Grants>,
        resources: Arc<Resources>,
        limits: Arc<Limits>,
        component: watch::Receiver<Component>,
    ) -> Arc<Self> {
        Arc::new(Self { key, component, memory, grants, resources, limits, checks: Semaphore::new(schema::PERMITS) })
    }

    /// The key of the member.
    pub fn key(&self) -> &MemberKey {
        &self.key
    }

    /// Until when a caller that asks for its tools now waits for the component.
    pub fn patience(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.limits.dispatch_wait_seconds.into())
    }

    /// Its tools, once its component is loaded.
    ///
    /// # Errors
    ///
    /// Returns -32000 when the component is still being loaded at `until`, and -32603 with the reason when it is
    /// broken.
    pub async fn tools(&self, until: Instant) -> Result<Arc<Catalogue>, RpcError> {
        Ok(self.loaded(until).await?.catalogue.clone())
    }

    /// Its component, once it is loaded; the errors are those of [`Self::tools`].
    pub async fn loaded(&self, until: Instant) -> Result<Arc<Loaded>, RpcError> {
        component::ready(&self.component, &self.key, until).await
    }

    /// Whether it has a tool of that name; none where that is not known, since its component is not in service.
    pub fn lists(&self, name: &str) -> Option<bool> {
        self.component.borrow().ready().map(|loaded| loaded.catalogue.schemas.contains_key(name))
    }

    /// The names of its tools; none where its component is not in service.
    pub fn names(&self) -> Vec<String> {
        self.component.borrow().ready().map(|loaded| loaded.catalogue.names()).unwrap_or_default()
    }

    /// Calls a tool: its input is checked against its schema, then the component is called, in a fresh instance.
    ///
    /// # Errors
    ///
    /// Returns a [`ToolFailure`].
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
        Instant::now() + Duration::from_secs(self.limits.call_tool_wait_seconds.into())
    }

    async fn call_until(
        &self,
        until: Instant,
        loaded: &Loaded,
        name: &str,
        input: Value,
    ) -> Result<Value, ToolFailure> {
        let Self { key, limits, checks, .. } = self;
        CheckedCall { key, loaded, limits, checks }.make(name, input, self.scope(until)).await
    }

    /// The resources that a call reaches: those that the toolbox was granted, and none of the caller's. Pages that are
    /// fetched are kept for the one call.
    fn scope(&self, wait_until: Instant) -> ToolScope {
        let Reach { files, own_web, .. } = self.resources.reach(Some(&self.key), &self.grants);
        let web = if self.grants.holds(&WEB) { own_web } else { Web::default() };
        let (memory, environment) = (self.memory.clone(), self.resources.runtimes.environment());
        let tell_uses = self.resources.runtimes.tell_uses(&self.key);
        ToolScope { memory, files, web, host: Handle::current(), environment, wait_until, tell_uses }
    }
}

/// A call of a tool whose input and answer are checked against its schemas.
pub(crate) struct CheckedCall<'a> {
    pub(crate) key: &'a MemberKey,
    pub(crate) loaded: &'a Loaded,
    pub(crate) limits: &'a Limits,
    /// The permits of checks in child processes.
    pub(crate) checks: &'a Semaphore,
}

impl CheckedCall<'_> {
    /// Makes the call. It waits until `scope.wait_until`.
    ///
    /// # Errors
    ///
    /// Returns a [`ToolFailure`].
    pub(crate) async fn make(self, name: &str, input: Value, scope: ToolScope) -> Result<Value, ToolFailure> {
        let span = tracing::debug_span!("call", member = %self.key, tool = one_line(name, LOGGED_CHARS));
        let called = self.checked(name, input, scope).instrument(span.clone()).await;
        if let Err(failure) = &called {
            span.in_scope(|| {
                tracing::debug!(why = one_line(&failure.to_string(), LOGGED_CHARS), "a tool call has no result");
            });
        }
        called
    }

    async fn checked(&self, name: &str, input: Value, scope: ToolScope) -> Result<Value, ToolFailure> {
        let Loaded { plugin, catalogue } = self.loaded;
        let until = scope.wait_until;
        let schemas = catalogue.schemas.get(name).ok_or_else(|| ToolFailure::Unknown(name.to_owned()))?;
        self.check(&schemas.input, &input, until, || format!("the input is not what {name} takes")).await?;
        let output = match plugin.call_tool(name, &input, scope).await {
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
        let checked = schema.check(value, self.limits, self.checks, until).await;
        checked.map_err(|refused| match refused {
            Refused::Invalid(why) => ToolFailure::Failed(format!("{}: {why}", what())),
            Refused::Busy => {
                let why = format!("the inputs and answers of other calls of {} are being checked; try again", self.key);
                ToolFailure::Unavailable(RpcError::busy(why))
            }
        })
    }
}
