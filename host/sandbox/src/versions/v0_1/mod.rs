//! `guild:worker@0.1`: bindings, host functions (one file per interface), and what a component's exports mean.
//!
//! An expected failure is the interface's `host-error`; only abuse (a handle that is not one) or a bug of the host traps.
//! What blocks on storage runs where blocking is allowed.

mod activation;
mod agent;
mod bindings;
mod exports;
mod files;
mod job_tools;
mod log;
mod memory;
mod status;
mod web;

use guild_contract::manifest::World;
use guild_session::tools::ToolError;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::{
    state::{CallContext, State},
    versions::{Exports, Version},
};

use bindings::guild::worker as wit;

/// This version.
pub(crate) struct Bindings;

impl Version for Bindings {
    fn add_to_linker(&self, linker: &mut Linker<State>) -> wasmtime::Result<()> {
        wit::types::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::log::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::memory::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::files::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::web::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::job_tools::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::status::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        wit::agent::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        Ok(())
    }

    fn exports(&self, pre: &InstancePre<State>, world: World) -> wasmtime::Result<Box<dyn Exports>> {
        Ok(Box::new(exports::Exports::find(pre, world)?))
    }
}

impl wit::types::Host for State {}

impl From<ToolError> for wit::types::HostError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::InvalidInput(text) => Self::InvalidInput(text),
            ToolError::NotGranted(text) => {
                tracing::debug!(why = head(&text), "a call of the component was denied");
                Self::NotGranted(text)
            }
            ToolError::OverLimit(text) => Self::OverLimit(text),
            ToolError::NoJob => Self::NoJob,
            ToolError::JobEnded => Self::JobEnded,
            ToolError::Unavailable(text) => Self::Unavailable(text),
        }
    }
}

/// What a host function answers: the interface's own result, inside the one that traps.
type HostResult<T> = wasmtime::Result<Result<T, wit::types::HostError>>;

/// How much of a text of a component an error repeats.
const HEAD_BYTES: usize = 256;
/// How long a name may be: a key, a path, a pattern, an address.
const NAME_BYTES: usize = 64 * 1024;

/// The beginning of a text of a component, for an error.
fn head(text: &str) -> &str {
    text.get(..text.floor_char_boundary(HEAD_BYTES)).unwrap_or_default()
}

/// Refuses a name that no file, memory or page has, before an error repeats it.
fn named(what: &str, name: &str) -> Result<(), ToolError> {
    if name.len() > NAME_BYTES {
        let bytes = name.len();
        return Err(ToolError::InvalidInput(format!("{what} has {bytes} bytes, more than {NAME_BYTES}")));
    }
    Ok(())
}

impl State {
    /// Runs what blocks on storage, and answers as the interface does.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&CallContext) -> Result<T, ToolError> + Send + 'static,
    ) -> HostResult<T> {
        let context = self.context.clone();
        match tokio::task::spawn_blocking(move || work(&context)).await {
            Ok(answer) => Ok(answer.map_err(Into::into)),
            Err(e) => Err(wasmtime::Error::msg(format!("a host function failed: {e}"))),
        }
    }
}
