//! The engine: one for all components of a host.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use guild_contract::{Grants, Limits, manifest::ComponentSpec};
use tokio::sync::Semaphore;
use wasmtime::{Config, Engine, component::Linker};

use crate::{cache::CompileCache, error::LoadError, host, load::Candidate, plugin::Plugin, state::State, wasi};

/// How often a running component is interrupted, so that others run and deadlines are seen.
const TICK: Duration = Duration::from_millis(10);

/// The engine and all that components share: compiler, linker, compile cache, tick, lanes.
pub struct Sandbox {
    pub(crate) engine: Engine,
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
        let engine = Engine::new(&config()).map_err(refused)?;
        let mut linker = Linker::new(&engine);
        wasi::add_to_linker(&mut linker).map_err(refused)?;
        host::add_to_linker(&mut linker).map_err(refused)?;
        let cores = thread::available_parallelism().map_or(2, usize::from);
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
            lanes: Lanes::new(cores, &limits),
            open_files: Arc::default(),
            guests: guests.handle().clone(),
            _guests: GuestThreads(Some(guests)),
            engine,
            linker,
            limits,
            cache,
        }))
    }

    /// Checks, compiles (or takes from the cache) and links a component. It blocks.
    ///
    /// What the manifest asks for and `grants` denies is linked so that every call answers `not-granted`. `limits` are those of
    /// the member; what concerns all members is bounded by the limits of the sandbox.
    ///
    /// # Errors
    /// See [`LoadError`]. Versions and imports are checked before anything is compiled.
    pub fn prepare(
        self: &Arc<Self>,
        candidate: &Candidate,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<Plugin, LoadError> {
        Plugin::prepare(self.clone(), candidate, spec, grants, limits)
    }
}

/// What the engine is, apart from the machine that it runs on.
fn config() -> Config {
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
        // A plugin's memory is small and its limit is ours: a small reservation lets thousands of them live at once.
        .memory_reservation(64 * 1024 * 1024)
        .memory_guard_size(64 * 1024);
    config
}

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

/// Who waits for whom. A lane is first come, first served. Each plugin has a narrower one of its own before the common
/// one, so that one member's thousand dispatches, or jobs, leave room for another's first. Within the lanes, ticks
/// share the cores.
pub(crate) struct Lanes {
    pub(crate) activations: Semaphore,
    pub(crate) activations_of_one: usize,
    pub(crate) runs: Arc<Semaphore>,
    pub(crate) runs_of_one: usize,
    /// One component is compiled at a time; the compiler itself uses all cores.
    pub(crate) compiles: Mutex<()>,
}

impl Lanes {
    fn new(cores: usize, limits: &Limits) -> Self {
        let runs = limits.live_runs as usize;
        Self {
            activations: Semaphore::new(cores * 8),
            activations_of_one: cores,
            runs: Arc::new(Semaphore::new(runs)),
            runs_of_one: (runs - runs / 8).max(1),
            compiles: Mutex::default(),
        }
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
