//! Ticks the engine's epoch, which bounds CPU.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use wasmtime::Engine;

/// How often a running component is interrupted, so that others run and deadlines are checked.
const TICK: Duration = Duration::from_millis(10);

/// Increments the engine's epoch from its own thread, so that it ticks also when every worker thread is busy.
/// It holds the engine weakly, ends with it, and sleeps while no component runs.
pub(crate) struct Ticker {
    /// The number of running components; `None` when the ticker ends.
    live: Option<Arc<AtomicUsize>>,
    thread: Thread,
}

/// The epoch ticks while this exists: a component is running.
pub(crate) struct Ticking(Option<Arc<AtomicUsize>>);

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Self> {
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
        // The counter is dropped before the thread wakes to look for it.
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
