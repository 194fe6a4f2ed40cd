//! Translates the error of a failed call into stable words, and names a limit that was reached.

use guild_contract::Limits;
use guild_telemetry::record;
use wasmtime::{Trap, component::ResourceTableError};
use wasmtime_wasi::I32Exit;

use super::CallError;
use crate::usage::{Reached, ResourceUsage};

/// Error texts of wasmtime without an error type of their own, with the limit of each. `tests/limits.rs` reaches all of
/// them, so it fails with a version of wasmtime that changes them.
const WORDS: [(&str, &str, Max); 10] = [
    ("memory has a minimum byte size of", "memory_bytes", |limits| limits.memory_bytes),
    ("has a minimum element size of", "table_elements", |limits| limits.table_elements),
    ("exceeds the total tables limit of", "tables", |limits| limits.tables.into()),
    ("instance count too high", "instances", |limits| limits.instances.into()),
    ("table count too high", "tables", |limits| limits.tables.into()),
    ("memory count too high", "memories", |limits| limits.memories.into()),
    ("store handle limit exceeded", "handles", |limits| limits.handles.into()),
    ("resource table has no free keys", "handles", |limits| limits.handles.into()),
    ("requested len", "random_bytes", |limits| limits.random_bytes),
    ("fuel allocated for hostcalls has been exhausted", "hostcall_bytes", |limits| limits.hostcall_bytes),
];
type Max = fn(&Limits) -> u64;

/// The limit that an error's text is about.
fn named_limit(error: &wasmtime::Error, limits: &Limits) -> Option<Reached> {
    let texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let (_, name, max) = WORDS.iter().find(|(words, ..)| texts.iter().any(|text| text.contains(words)))?;
    Some(Reached { name, max: max(limits) })
}

/// The limit that a component exceeds before it runs, and its value, as `guild.toml` spells it.
pub(crate) fn beginning(error: &wasmtime::Error, limits: &Limits) -> Option<String> {
    named_limit(error, limits).map(|limit| limit.to_string())
}

/// A stable reason, without a backtrace.
pub(crate) fn reason(call: &'static str, error: &wasmtime::Error, limits: &Limits, usage: &ResourceUsage) -> CallError {
    let reached = if let Some(limit) = error.downcast_ref::<Reached>() {
        Some(limit.clone())
    } else if let Some(ResourceTableError::Full) = error.downcast_ref() {
        Some(Reached { name: "handles", max: limits.handles.into() })
    } else {
        named_limit(error, limits)
    };
    if let Some(limit) = &reached {
        record::limit_reached(limit.name);
    }
    // A component that was refused memory fails in many ways, so the limit is the reason, unless the component exits by
    // itself.
    let exit = error.downcast_ref::<I32Exit>();
    if let Some(limit) = reached.or_else(|| usage.refused().filter(|_| exit.is_none())) {
        return CallError::Limit { call, limit: limit.to_string() };
    }
    let why = if let Some(trap) = error.downcast_ref::<Trap>() {
        trap.to_string().trim_start_matches("wasm trap: ").to_owned()
    } else if let Some(I32Exit(code)) = exit {
        // `wasi:cli/exit` passes on success or failure, but no code.
        let how = if *code == 0 { "success" } else { "a failure" };
        format!("it exited with {how} instead of answering (its exit code is not passed on)")
    } else {
        error.root_cause().to_string()
    };
    CallError::Trap { call, why }
}
