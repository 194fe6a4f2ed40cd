//! Configures the engine for compiled code, which depends on the placement of memories.

use wasmtime::Config;

use super::Strategy;

/// The bytes that the host may keep for an instance of a component: its globals, its functions in tables, its imports.
pub(crate) const INSTANCE_BYTES: usize = 4 * 1024 * 1024;

/// The placement of memories. Compiled code depends on it, and on no limit: a host with another `memory_bytes` uses the
/// same code from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memories {
    /// Memories are in a pool, each with all the addresses that 32 bits reach: a memory never moves, and few accesses
    /// need a check.
    Pooled,
    /// The machine has no room for a pool: each memory is mapped when it is made, and moves when it outgrows its
    /// addresses.
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

/// The configuration of the engine, apart from the machine. Only the compiler and the placement of memories differ
/// between hosts.
pub(crate) fn config(strategy: Strategy, memories: Memories) -> Config {
    let mut config = Config::new();
    config
        .strategy(match strategy {
            Strategy::Cranelift => wasmtime::Strategy::Cranelift,
            Strategy::Winch => wasmtime::Strategy::Winch,
        })
        .wasm_component_model(true)
        .epoch_interruption(true)
        // Callers get a reason instead of a backtrace, and a Store without address maps is smaller.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .wasm_memory64(false)
        .max_wasm_stack(512 * 1024)
        .async_stack_size(1024 * 1024)
        .memory_reservation(memories.reservation())
        .memory_guard_size(64 * 1024);
    config
}

/// The bytes of one memory, within the limit and the addresses of 32 bits.
pub(crate) fn addressed(memory_bytes: u64) -> u64 {
    memory_bytes.min(1 << 32)
}
