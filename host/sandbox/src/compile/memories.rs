//! The part of the engine's configuration that code is compiled for: the placement of memories.

use wasmtime::Config;

/// What the host may keep for an instance of a component: its globals, its functions that have a place in a table, its imports.
pub(crate) const INSTANCE_BYTES: usize = 4 * 1024 * 1024;

/// How memories are placed. Compiled code depends on it, and on no limit: a host with another `memory_bytes` takes the same
/// code out of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memories {
    /// In a pool, each with all the addresses that 32 bits reach: it never moves, and few accesses need a check.
    Pooled,
    /// Where the machine has no room for a pool: each is mapped when it is made, and moves when it outgrows its addresses.
    Mapped,
}

impl Memories {
    /// Addresses that are reserved for each memory.
    fn reservation(self) -> u64 {
        match self {
            Self::Pooled => 1 << 32,
            Self::Mapped => 64 << 20,
        }
    }
}

/// What the engine is, apart from the machine that it runs on. How memories are placed is all of it that differs between
/// hosts.
pub(crate) fn config(memories: Memories) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .epoch_interruption(true)
        // Callers get a reason, not a backtrace; and a Store without address maps is smaller.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .wasm_memory64(false)
        .max_wasm_stack(512 * 1024)
        .async_stack_size(1024 * 1024)
        .memory_reservation(memories.reservation())
        .memory_guard_size(64 * 1024);
    config
}

/// What one memory may have: what the limits say, and what addresses of 32 bits reach.
pub(crate) fn addressed(memory_bytes: u64) -> u64 {
    memory_bytes.min(1 << 32)
}
