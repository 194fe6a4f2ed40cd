//! The engine: one for all components of a host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use guild_contract::{Grants, Limits, MemberKey, manifest::ComponentSpec};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    cache::CompileCache, compile::Effort, error::LoadError, host, load::Candidate, plugin::Plugin, state::State,
    toolbox::Unlisted, wasi,
};

/// How often a running component is interrupted, so that others run and deadlines are seen.
const TICK: Duration = Duration::from_millis(10);

/// The engine and all that components share: compiler, linker, compile cache, tick, lanes.
pub struct Sandbox {
    pub(crate) engine: Engine,
    /// How its memories are placed.
    pub(crate) memories: Memories,
    pub(crate) linker: Linker<State>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) cache: CompileCache,
    pub(crate) lanes: Lanes,
    pub(crate) ticker: Ticker,
    /// Files that all components have open.
    pub(crate) open_files: Arc<AtomicU64>,
    /// Where components run: threads of their own, so that none of them, however busy, delays a request.
    pub(crate) guests: tokio::runtime::Handle,
    _guests: GuestThreads,
}

impl Sandbox {
    /// Makes an engine.
    ///
    /// # Errors
    /// Where the machine cannot have one: the text says why.
    pub fn new(limits: Arc<Limits>, cache: CompileCache) -> Result<Arc<Self>, LoadError> {
        let refused = |e: wasmtime::Error| LoadError::Refused(e.root_cause().to_string());
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let lanes = Lanes::new(u32::try_from(cores).unwrap_or(u32::MAX / 8), &limits);
        let (engine, memories) = engine(&limits, &lanes).map_err(refused)?;
        let mut linker = Linker::new(&engine);
        wasi::add_to_linker(&mut linker).map_err(refused)?;
        host::add_to_linker(&mut linker).map_err(refused)?;
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("guest")
            // A component that loops takes a whole tick at a time: deadlines are looked at after each.
            .event_interval(1)
            .enable_time()
            .build()
            .map_err(|e| LoadError::Refused(format!("no threads for components: {e}")))?;
        Ok(Arc::new(Self {
            ticker: Ticker::start(&engine).map_err(|e| LoadError::Refused(format!("no thread for the tick: {e}")))?,
            lanes,
            open_files: Arc::default(),
            guests: guests.handle().clone(),
            _guests: GuestThreads(Some(guests)),
            engine,
            memories,
            linker,
            limits,
            cache,
        }))
    }

    /// Checks, compiles (or takes from the cache) and links a component. It blocks.
    ///
    /// `member` is whose component it is, as logs name it.
    /// What the manifest asks for and `grants` denies is linked so that every call answers `not-granted`. `limits` are those of
    /// the member; what concerns all members is bounded by the limits of the sandbox.
    ///
    /// # Errors
    /// See [`LoadError`]. Versions and imports are checked before anything is compiled.
    pub fn prepare(
        self: &Arc<Self>,
        member: &MemberKey,
        candidate: &Candidate,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<Plugin, LoadError> {
        self.prepare_unlisted(member, candidate, spec, grants, limits, Effort::Full)?.with_tools()
    }

    /// As [`Self::prepare`], with so much effort, and but for the tools of a toolbox: [`Unlisted::listed`] makes it whole.
    ///
    /// # Errors
    /// See [`LoadError`]. It is [`LoadError::Later`] where more effort is needed.
    pub fn prepare_unlisted(
        self: &Arc<Self>,
        member: &MemberKey,
        candidate: &Candidate,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
        effort: Effort,
    ) -> Result<Unlisted, LoadError> {
        Plugin::prepare(self.clone(), member, candidate, spec, grants, limits, effort).map(Unlisted)
    }
}

/// The engine, with a pool for what instances are made of. Without one, each call would map and unmap its memories and
/// its stack, which can take longer than the call itself, and for which the threads of a process wait for each other.
fn engine(limits: &Limits, lanes: &Lanes) -> wasmtime::Result<(Engine, Memories)> {
    let pooled = pool(limits, lanes).ok_or_else(|| wasmtime::Error::msg("the limits are too high")).and_then(|pool| {
        let mut config = config(Memories::Pooled);
        Engine::new(config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool)))
    });
    pooled.map(|engine| (engine, Memories::Pooled)).or_else(|e| {
        tracing::warn!("there is no room for a pool of instances, without which calls are slower: {e:#}");
        let mut config = config(Memories::Mapped);
        // Only at run time: it is no part of what is compiled. A memory moves once at most.
        config.memory_reservation_for_growth(addressed(limits.memory_bytes));
        Ok((Engine::new(&config)?, Memories::Mapped))
    })
}

/// How memories are placed. Compiled code depends on it, and on no limit: a host with another `memory_bytes` takes the same
/// code out of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memories {
    /// In a pool, each with all the addresses that 32 bits reach: it never moves, and few accesses need a check.
    Pooled,
    /// Where the machine has no room for that: each is mapped when it is made, and moves when it outgrows its place.
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
fn addressed(memory_bytes: u64) -> u64 {
    memory_bytes.min(1 << 32)
}

/// A pool with places for all that the lanes let in, each of which takes what the limits allow: it is never what a component
/// waits for, and no component can take another's. A place that has not been used takes addresses, and no memory. None
/// where there are too many: each is also a number of mappings, of which a process has no more than 65,530.
fn pool(limits: &Limits, lanes: &Lanes) -> Option<PoolingAllocationConfig> {
    // The pool looks for a free place part by part, and can miss one that is given back meanwhile.
    const SPARE: u32 = 16;
    let live = lanes.live().filter(|live| *live <= MOST)? + SPARE;
    let sets = live.checked_add(lanes.surplus.all)?.checked_add(listings().checked_mul(lanes.widest)?)?;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(live)
        .total_core_instances(live.saturating_mul(limits.instances))
        .total_memories(sets)
        .total_tables(sets.checked_mul(TABLES)?)
        .total_stacks(live)
        .max_memory_size(usize::try_from(addressed(limits.memory_bytes)).ok()?)
        .table_elements(usize::try_from(limits.table_elements).ok()?)
        // Counted by the Store, which names the limit.
        .max_memories_per_module(MEMORIES)
        .max_tables_per_module(u32::MAX)
        .max_core_instance_size(INSTANCE_BYTES)
        .max_component_instance_size(INSTANCE_BYTES)
        .table_keep_resident(KEPT_BYTES);
    // Not `pagemap_scan`, although it makes a small call several times as fast: of wasmtime 48 it misses pages that are
    // swapped out, and leaves them to the next instance.
    Some(pool)
}

/// How much of a table is set back in place. Memories are given back to the system whole, and at once.
const KEPT_BYTES: usize = 64 * 1024;
/// Up to how many components may be live at a time for there to be a pool.
const MOST: u32 = 10_000;
/// How many tables come with a memory: twice what compilers make of one program.
const TABLES: u32 = 4;
/// What a module may declare of memories: more than any limit gives, and few enough to look for them when it goes.
const MEMORIES: u32 = 1000;
/// What the host may keep for an instance of a component: its globals, its functions that have a place in a table, its imports.
pub(crate) const INSTANCE_BYTES: usize = 4 * 1024 * 1024;

/// Ticks the engine's epoch from a thread of its own, so that it ticks also when every worker thread is busy.
/// It holds the engine weakly, ends with it, and sleeps while no component runs.
pub(crate) struct Ticker {
    /// How many components run; none when the ticker ends.
    live: Option<Arc<AtomicUsize>>,
    thread: Thread,
}

/// A component is running: the clock ticks.
pub(crate) struct Ticking(Option<Arc<AtomicUsize>>);

impl Ticker {
    fn start(engine: &Engine) -> std::io::Result<Self> {
        let live = Arc::new(AtomicUsize::new(0));
        let (engine, watched) = (engine.weak(), Arc::downgrade(&live));
        let ticker = thread::Builder::new().name("epoch".to_owned()).spawn(move || {
            while let (Some(engine), Some(live)) = (engine.upgrade(), watched.upgrade()) {
                engine.increment_epoch();
                let idle = live.load(Ordering::SeqCst) == 0;
                drop((engine, live));
                if idle { thread::park() } else { thread::sleep(TICK) }
            }
        })?;
        Ok(Self { live: Some(live), thread: ticker.thread().clone() })
    }

    pub(crate) fn tick(&self) -> Ticking {
        if self.live.as_ref().is_some_and(|live| live.fetch_add(1, Ordering::SeqCst) == 0) {
            self.thread.unpark();
        }
        Ticking(self.live.clone())
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // Before the thread wakes to look for it.
        self.live = None;
        self.thread.unpark();
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if let Some(live) = &self.0 {
            live.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// How components take their turns to list their tools when they are loaded: for how long a listing is tried, and how many
/// are at a time. One that did not end in its time begins again in the next row, where it waits for others that take long
/// and for nobody else. In the last row `limits.list_tools_seconds` holds.
pub(crate) const LISTINGS: [(Duration, u32); 3] =
    [(Duration::from_millis(250), 8), (Duration::from_secs(1), 4), (Duration::MAX, 2)];

/// How many list their tools at a time.
const fn listings() -> u32 {
    let [(_, first), (_, second), (_, last)] = LISTINGS;
    first + second + last
}

/// Who waits for whom. A lane is first come, first served. Each plugin has a narrower one of its own before the common
/// one, so that one member's thousand dispatches, or jobs, leave room for another's first. Within the lanes, ticks
/// share the cores.
pub(crate) struct Lanes {
    activations: Common,
    runs: Common,
    tool_calls: Common,
    listings: [Common; LISTINGS.len()],
    /// The memories, with their tables, that components have beyond the first: those that have more wait for them before
    /// they wait with the others, whom they do not hold up. For listing tools there are more, so that no component has to
    /// wait for others to be loaded.
    surplus: Common,
    /// How many of them a component may have.
    widest: u32,
}

impl Lanes {
    fn new(cores: u32, limits: &Limits) -> Self {
        // One that leaves an eighth of the places to others.
        let most = |all: u32| (all - all / 8).max(1);
        let widest = limits.memories.max(limits.tables.div_ceil(TABLES));
        Self {
            activations: Common::new(cores * 8, cores),
            runs: Common::new(limits.live_runs, most(limits.live_runs)),
            tool_calls: Common::new(limits.live_tool_calls, most(limits.live_tool_calls)),
            listings: LISTINGS.map(|(_, most)| Common::new(most, most)),
            surplus: Common::new(widest.saturating_mul(2).max(256), widest.max(128)),
            widest,
        }
    }

    /// How many components are live at a time at most.
    fn live(&self) -> Option<u32> {
        let lanes = [&self.activations, &self.runs, &self.tool_calls];
        lanes.iter().try_fold(listings(), |sum, lane| sum.checked_add(lane.all))
    }

    /// The lanes of a member with this component.
    pub(crate) fn of_one(&self, component: &Component) -> OwnLanes {
        // It imports no modules, so that it is known.
        let needed = component.resources_required();
        let sets = needed.map_or(1, |all| all.num_memories.max(all.num_tables.div_ceil(TABLES)));
        // One that has more than the limits allow is refused by its Store.
        let surplus = sets.saturating_sub(1).min(self.surplus.of_one);
        let before = if surplus > 0 { self.surplus.of_one(surplus) } else { Vec::new() };
        let lane = |common: &Common| Lane([before.as_slice(), &common.of_one(1)].concat());
        OwnLanes {
            activations: lane(&self.activations),
            runs: lane(&self.runs),
            tool_calls: lane(&self.tool_calls),
            listings: self.listings.each_ref().map(|listings| Lane(listings.of_one(1))),
        }
    }
}

/// So many places, which all members share.
struct Common {
    all: u32,
    of_one: u32,
    places: Arc<Semaphore>,
}

impl Common {
    fn new(all: u32, of_one: u32) -> Self {
        Self { all, of_one, places: Arc::new(Semaphore::new(all as usize)) }
    }

    /// Where a member waits: first for so many places of its own, and then for as many of all.
    fn of_one(&self, many: u32) -> Vec<Queue> {
        let own = Arc::new(Semaphore::new(self.of_one as usize));
        vec![Queue { places: own, many }, Queue { places: self.places.clone(), many }]
    }
}

/// The lanes of one member.
pub(crate) struct OwnLanes {
    pub(crate) activations: Lane,
    pub(crate) runs: Lane,
    pub(crate) tool_calls: Lane,
    pub(crate) listings: Listings,
}

/// Where a component waits to list its tools, row by row.
pub(crate) type Listings = [Lane; LISTINGS.len()];

/// The queues before a kind of call, in this order.
pub(crate) struct Lane(Vec<Queue>);

/// One of them, and how many of its places a call takes.
#[derive(Clone)]
struct Queue {
    places: Arc<Semaphore>,
    many: u32,
}

/// A place in a lane. It is given back when it is dropped.
pub struct Place {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Lane {
    /// Waits for a place. Lanes are never closed.
    pub(crate) async fn place(&self) -> Result<Place, AcquireError> {
        let mut permits = Vec::with_capacity(self.0.len());
        for queue in &self.0 {
            permits.push(queue.places.clone().acquire_many_owned(queue.many).await?);
        }
        Ok(Place { _permits: permits })
    }
}

/// The threads of components. A runtime may not be dropped where blocking is forbidden, so it is left to end by itself.
struct GuestThreads(Option<tokio::runtime::Runtime>);

impl Drop for GuestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
