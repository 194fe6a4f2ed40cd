//! Reads the figures of the process, by the names that Prometheus's own clients use.

use std::{
    fs,
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use rustix::{
    param::page_size,
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

/// The time at which [`begin`] was called, or else the first figure was read.
static BEGUN: LazyLock<Duration> = LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());

/// Notes that the process begins now.
pub fn begin() {
    LazyLock::force(&BEGUN);
}

/// The figures of this process at this moment. One that the system does not tell is left out.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::with_prefix("process");
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "seconds and nanoseconds of a process fit into a float")]
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    registry.register_with_unit("cpu", "CPU time, user and system", Unit::Seconds, ConstCounter::new(cpu));
    registry.register_with_unit(
        "start_time",
        "Start of the process since the Unix epoch",
        Unit::Seconds,
        ConstGauge::new(BEGUN.as_secs_f64()),
    );
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|pages| pages.split_whitespace().nth(1)?.parse::<u64>().ok());
    if let Some(bytes) = pages.and_then(|pages| pages.checked_mul(page_size() as u64)) {
        registry.register_with_unit("resident_memory", "Resident memory", Unit::Bytes, ConstGauge::new(bytes));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        registry.register("open_fds", "Open file descriptors", ConstGauge::new(open.count() as u64));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        registry.register("max_fds", "Limit of open file descriptors", ConstGauge::new(most));
    }
    registry
}
