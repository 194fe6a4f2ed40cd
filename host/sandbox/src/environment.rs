//! Defines the time and the random numbers that a component sees in a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder, random::Deterministic};

/// The time and the random numbers of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// Those of the system.
    #[default]
    System,
    /// Given ones, with which the same call has the same outcome.
    Given {
        /// The time at which the call begins, since 1970. Each reading of a clock moves both clocks on by a
        /// millisecond, so that a loop that waits for a time ends. A sleep takes as long as it does otherwise.
        time: Duration,
        /// The seed of all random numbers.
        seed: u64,
    },
}

/// How far a reading moves the given clocks.
const TICK: Duration = Duration::from_millis(1);
/// The number of random bytes after which given ones repeat.
const RANDOM_BYTES: usize = 4096;

impl Environment {
    /// Gives a component these clocks and random numbers.
    pub(crate) fn apply(self, context: &mut WasiCtxBuilder) {
        let Self::Given { time, seed } = self else { return };
        let clock = GivenClock { time, readings: Arc::default() };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = || {
            let mut bytes = vec![0; RANDOM_BYTES];
            random.fill(&mut bytes);
            Deterministic::new(bytes)
        };
        context.secure_random(bytes()).insecure_random(bytes()).insecure_random_seed(random.u128(..));
        context.wall_clock(clock.clone()).monotonic_clock(clock);
    }
}

/// Both clocks of a call with a given time.
#[derive(Clone)]
struct GivenClock {
    time: Duration,
    readings: Arc<AtomicU64>,
}

impl GivenClock {
    /// The time since the call began.
    fn elapsed(&self) -> Duration {
        let readings = self.readings.fetch_add(1, Ordering::Relaxed);
        TICK.saturating_mul(u32::try_from(readings).unwrap_or(u32::MAX))
    }
}

impl HostWallClock for GivenClock {
    fn resolution(&self) -> Duration {
        TICK
    }

    fn now(&self) -> Duration {
        self.time.saturating_add(self.elapsed())
    }
}

impl HostMonotonicClock for GivenClock {
    fn resolution(&self) -> u64 {
        u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
