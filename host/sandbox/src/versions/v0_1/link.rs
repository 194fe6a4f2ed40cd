//! Links the version, and converts the errors of its host functions.

use guild_contract::manifest::{Interface, World};
use guild_session::tools::ToolError;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::{
    state::State,
    versions::{Exports, Version, head},
};

use super::{bindings::guild::worker as wit, exports};

/// This version.
pub(crate) struct Bindings;

impl Version for Bindings {
    fn add_to_linker(&self, linker: &mut Linker<State>) -> wasmtime::Result<()> {
        wit::types::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
        Interface::ALL.iter().copied().try_for_each(|interface| match interface {
            Interface::Log => wit::log::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Memory => wit::memory::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Files => wit::files::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Web => wit::web::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::JobTools => wit::job_tools::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Status => wit::status::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Agent => wit::agent::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Hall => wit::hall::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
            Interface::Manager => wit::manager::add_to_linker::<State, HasSelf<State>>(linker, |s| s),
        })
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

/// The result of a host function: the interface's own result, inside the result that traps.
pub(super) type HostResult<T> = wasmtime::Result<Result<T, wit::types::HostError>>;
