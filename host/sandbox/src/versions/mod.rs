//! Selects among the versions of `guild:worker` that this host serves.
//!
//! Each version is a module with its bindings, its host functions and the conversion of its exports, and [`VERSIONS`]
//! names it. A published version stays served beside a newer one, as an adapter onto it. No other module of this crate
//! knows a version's types.

mod component_session;
mod v0_1;

use guild_contract::manifest::World;
use guild_inspect::Outside;
use guild_session::{
    activation::{Activation, Plan, Refusal},
    tools::ToolError,
};
use wasmtime::{
    Store,
    component::{Instance, InstancePre, Linker},
};
use wasmtime_wasi::async_trait;

use crate::{
    call::{ToolFault, tools::WrittenTool},
    state::{CallContext, State},
};

/// The versions by their tracks, oldest first.
const VERSIONS: [((u64, u64), &dyn Version); 1] = [((0, 1), &v0_1::Bindings)];

/// One version of `guild:worker`.
pub(crate) trait Version: Sync {
    /// Defines the imports of its components.
    fn add_to_linker(&self, linker: &mut Linker<State>) -> wasmtime::Result<()>;

    /// Finds the exports of a component of this world.
    fn exports(&self, pre: &InstancePre<State>, world: World) -> wasmtime::Result<Box<dyn Exports>>;
}

/// The exports of a component, in the host's own types. An export that its world does not have is an error.
#[async_trait]
pub(crate) trait Exports: Send + Sync {
    /// Whether it exports `run`.
    fn has_run(&self) -> bool;

    /// Whether it exports `toolbox`.
    fn has_toolbox(&self) -> bool;

    /// `dispatch.activate`. The plan is as the component wrote it, unchecked.
    async fn activate(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        activation: &Activation,
    ) -> wasmtime::Result<Result<Plan, Refusal>>;

    /// `run.run`. The inner error is the component's own text.
    async fn run(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        activation: &Activation,
    ) -> wasmtime::Result<Result<String, String>>;

    /// `toolbox.list-tools`.
    async fn list_tools(&self, store: &mut Store<State>, instance: Instance) -> wasmtime::Result<Vec<WrittenTool>>;

    /// `toolbox.call-tool`: input and output are JSON.
    async fn call_tool(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        name: &str,
        input: String,
    ) -> wasmtime::Result<Result<String, ToolFault>>;
}

/// Defines the imports of components of all versions.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    VERSIONS.iter().try_for_each(|(_, version)| version.add_to_linker(linker))
}

/// The version that a component was built for, by its imports and exports; the newest if it has none of `guild:worker`.
/// The caller has checked that the host serves the version.
pub(crate) fn of(outside: &Outside) -> &'static dyn Version {
    let [.., (_, newest)] = VERSIONS;
    let track = guild_inspect::worker_track(outside);
    VERSIONS.iter().find(|(served, _)| Some(*served) == track).map_or(newest, |(_, version)| *version)
}

/// The bytes of a component's text that an error repeats.
const HEAD_BYTES: usize = 256;
/// The most bytes of a name: a key, a path, a pattern, an address.
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
    /// Runs work that blocks on storage, with the error type of a version's interface.
    async fn blocking<T: Send + 'static, E: From<ToolError>>(
        &mut self,
        work: impl FnOnce(&CallContext) -> Result<T, ToolError> + Send + 'static,
    ) -> wasmtime::Result<Result<T, E>> {
        let context = self.context.clone();
        match tokio::task::spawn_blocking(move || work(&context)).await {
            Ok(answer) => Ok(answer.map_err(Into::into)),
            Err(e) => Err(wasmtime::Error::msg(format!("a host function failed: {e}"))),
        }
    }
}
