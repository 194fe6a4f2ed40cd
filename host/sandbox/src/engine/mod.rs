//! Makes the engine, which all components of a host share.

pub(crate) mod queues;
pub(crate) mod ticker;

use std::{
    sync::{Arc, atomic::AtomicU64},
    thread,
};

use guild_contract::Limits;
use guild_session::queue::QueueLoad;
use wasmtime::{Engine, InstanceAllocationStrategy, PoolingAllocationConfig, component::Linker};

use self::{
    queues::{Queues, TABLES},
    ticker::Ticker,
};
use crate::{
    compile::{
        Compiler, Strategy,
        cache::CompileCache,
        memories::{INSTANCE_BYTES, Memories, addressed, config},
    },
    error::LoadError,
    state::State,
    versions, wasi,
};

/// The engine and the other things that components share: compiler, linker, compile cache, tick, queues.
pub struct Sandbox {
    pub(crate) compiler: Compiler,
    pub(crate) linker: Linker<State>,
    pub(crate) queues: Queues,
    pub(crate) ticker: Ticker,
    /// The number of files that all components have open.
    pub(crate) open_files: Arc<AtomicU64>,
    /// The threads of components, so that even a busy component does not delay a request.
    pub(crate) guests: tokio::runtime::Handle,
    _guests: GuestThreads,
}

impl Sandbox {
    /// Makes an engine.
    ///
    /// # Errors
    ///
    /// The machine does not support the engine; the text tells why.
    pub fn new(limits: Arc<Limits>, strategy: Strategy, cache: CompileCache) -> Result<Arc<Self>, LoadError> {
        let refused = |e: wasmtime::Error| LoadError::Refused(e.root_cause().to_string());
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let queues = Queues::new(u32::try_from(cores).unwrap_or(u32::MAX / 8), &limits);
        let (engine, memories) = engine(strategy, &limits, &queues).map_err(refused)?;
        let mut linker = Linker::new(&engine);
        wasi::add_to_linker(&mut linker).map_err(refused)?;
        versions::add_to_linker(&mut linker).map_err(refused)?;
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("guest")
            // A component that loops takes a whole tick at a time, since deadlines are checked after each.
            .event_interval(1)
            .enable_time()
            .build()
            .map_err(|e| LoadError::Refused(format!("no threads for components: {e}")))?;
        Ok(Arc::new(Self {
            ticker: Ticker::start(&engine).map_err(|e| LoadError::Refused(format!("no thread for the tick: {e}")))?,
            queues,
            open_files: Arc::default(),
            guests: guests.handle().clone(),
            _guests: GuestThreads(Some(guests)),
            compiler: Compiler { engine, strategy, memories, limits, cache },
            linker,
        }))
    }
}

impl Sandbox {
    /// The use of the queues of component calls by name.
    pub fn queue_loads(&self) -> [(&'static str, QueueLoad); 3] {
        self.queues.loads()
    }
}

/// The engine, with a pool for the parts of instances. Without one, each call would map and unmap its memories and its
/// stack, which can take longer than the call itself, and makes the threads of a process wait for each other.
fn engine(strategy: Strategy, limits: &Limits, queues: &Queues) -> wasmtime::Result<(Engine, Memories)> {
    let pooled = pool(limits, queues).ok_or_else(|| wasmtime::Error::msg("the limits are too high")).and_then(|pool| {
        let mut config = config(strategy, Memories::Pooled);
        Engine::new(config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool)))
    });
    pooled.map(|engine| (engine, Memories::Pooled)).or_else(|e| {
        tracing::warn!("there is no room for a pool of instances, without which calls are slower: {e:#}");
        let mut config = config(strategy, Memories::Mapped);
        // This has an effect only at run time, and compiled code does not depend on it. A memory moves once at most.
        config.memory_reservation_for_growth(addressed(limits.memory_bytes));
        Ok((Engine::new(&config)?, Memories::Mapped))
    })
}

/// A pool with places for all components that the queues admit, each as large as the limits allow, so that a component
/// never waits for a place or takes another's. An unused place takes addresses, and no memory. `None` if there are too
/// many places: each takes several mappings, of which a process has no more than 65,530.
fn pool(limits: &Limits, queues: &Queues) -> Option<PoolingAllocationConfig> {
    // The pool looks for a free place part by part, and can miss one that is freed meanwhile.
    const SPARE: u32 = 16;
    let live = queues.live().filter(|live| *live <= MOST)? + SPARE;
    let sets = queues.memories(live)?;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(live)
        .total_core_instances(live.saturating_mul(limits.instances))
        .total_memories(sets)
        .total_tables(sets.checked_mul(TABLES)?)
        .total_stacks(live)
        .max_memory_size(usize::try_from(addressed(limits.memory_bytes)).ok()?)
        .table_elements(usize::try_from(limits.table_elements).ok()?)
        // The Store counts memories, and names the limit.
        .max_memories_per_module(MEMORIES)
        .max_tables_per_module(u32::MAX)
        .max_core_instance_size(INSTANCE_BYTES)
        .max_component_instance_size(INSTANCE_BYTES)
        .table_keep_resident(KEPT_BYTES);
    // `pagemap_scan` is off, although it makes a small call several times as fast: in wasmtime 48 it misses pages that
    // are swapped out, and leaves their data to the next instance.
    Some(pool)
}

/// The bytes of a table that are reset in place. Memories are returned to the system whole and at once.
const KEPT_BYTES: usize = 64 * 1024;
/// The greatest number of live components with a pool.
const MOST: u32 = 10_000;
/// The most memories that a module may declare: more than any limit permits, and few enough to search when the module
/// is dropped.
const MEMORIES: u32 = 1000;
/// The threads of components. A runtime may not be dropped where blocking is forbidden, so it is left to end by itself.
struct GuestThreads(Option<tokio::runtime::Runtime>);

impl Drop for GuestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
