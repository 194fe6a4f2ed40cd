//! Links imports that a language's runtime declares without using them, so that every call of them traps.
//!
//! No socket and no HTTP code is linked. Each function of such an import traps with the reason; its resource types
//! exist only so that the types fit.

use wasmtime::{
    Engine, bail,
    component::{Component, Linker, ResourceType, types::ComponentItem},
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};

use crate::state::State;

/// The type of a resource that cannot be constructed.
struct Denied;

/// Defines a component's denied imports in a linker of its own.
pub(crate) fn add_to_linker(l: &mut Linker<State>, engine: &Engine, component: &Component) -> wasmtime::Result<()> {
    let outside = component.component_type();
    for (import, item) in outside.imports(engine).filter(|(name, _)| guild_inspect::is_denied(name)) {
        let ComponentItem::ComponentInstance(interface) = item.ty else {
            bail!("`{import}` is no interface");
        };
        let mut instance = l.instance(import)?;
        for (name, export) in interface.exports(engine) {
            match export.ty {
                ComponentItem::ComponentFunc(_) => {
                    let function = format!("{import}#{name}");
                    instance
                        .func_new(name, move |_, _, _, _| bail!("`{function}` is denied: a plugin has no network"))?;
                }
                ComponentItem::Resource(_) => instance.resource(name, resource(name), |_, _| Ok(()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The type of a resource, by its name. Those of `wasi:io`, which these interfaces use, are the same everywhere.
fn resource(name: &str) -> ResourceType {
    match name {
        "pollable" => ResourceType::host::<DynPollable>(),
        "input-stream" => ResourceType::host::<DynInputStream>(),
        "output-stream" => ResourceType::host::<DynOutputStream>(),
        "error" | "io-error" => ResourceType::host::<wasmtime::Error>(),
        _ => ResourceType::host::<Denied>(),
    }
}
