//! Measures the cost of the limits: a computing component and an activation with every limit, compared with the same
//! engine without epochs, limiter, fuel and deadline.

use std::{fs, path::Path};

use guild_contract::{
    Manifest,
    manifest::{ComponentSpec, FILE_NAME},
};
use guild_sandbox::Strategy;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde_json::json;
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::{
    Outcome,
    host::scratch,
    instance::{Bare, CALLS, Ours, activation},
    stats::{Aim, Report, median},
    wat,
};

const ROUNDS: usize = 15;

/// The worst case: short loops, in which the check of the epoch is a large part. The component sieves primes, and mixes
/// the results. Its answer is an empty plan: zeros.
const TIGHT: &str = r#"(module
  (memory (export "memory") 40)
  (func $sieve (param $n i32) (result i32)
    (local $i i32) (local $j i32) (local $count i32)
    (memory.fill (i32.const 65536) (i32.const 1) (local.get $n))
    (local.set $i (i32.const 2))
    (loop $next
      (if (i32.load8_u (i32.add (i32.const 65536) (local.get $i)))
        (then
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (local.set $j (i32.shl (local.get $i) (i32.const 1)))
          (block $done
            (loop $strike
              (br_if $done (i32.ge_u (local.get $j) (local.get $n)))
              (i32.store8 (i32.add (i32.const 65536) (local.get $j)) (i32.const 0))
              (local.set $j (i32.add (local.get $j) (local.get $i)))
              (br $strike)))))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
    (local.get $count))
  (func $mix (param $n i32) (param $seed i64) (result i64)
    (local $i i32)
    (loop $next
      (local.set $seed (i64.xor (local.get $seed) (i64.load (i32.add (i32.const 65536) (local.get $i)))))
      (local.set $seed (i64.mul (local.get $seed) (i64.const 0x9E3779B97F4A7C15)))
      (local.set $seed (i64.xor (local.get $seed) (i64.shr_u (local.get $seed) (i64.const 29))))
      (local.set $seed (i64.add (i64.rotl (local.get $seed) (i64.const 17)) (i64.const 0x2545F4914F6CDD1D)))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (local.get $n))))
    (local.get $seed))
  (func (export "guild:worker/dispatch@0.1.0#activate") (param i32) (result i32)
    (local $round i32) (local $seed i64)
    (loop $again
      (local.set $seed (i64.add (local.get $seed) (i64.extend_i32_u (call $sieve (i32.const 2000000)))))
      (local.set $seed (call $mix (i32.const 2000000) (local.get $seed)))
      (br_if $again (i32.lt_u (local.tee $round (i32.add (local.get $round) (i32.const 1))) (i32.const 20))))
    (i64.store (i32.const 1024) (local.get $seed))
    (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 8192)))"#;

/// Measures both components and the activation.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let own = scratch().join("computing");
    fs::create_dir_all(&own)?;
    let built = fs::read("plugins/target/wasm32-wasip2/release/computing.wasm")?;
    let computing = [
        ("a component that computes, all limits on", built, Aim::AtMost(1.15)),
        ("a component of tight loops, all limits on", wat::component("dispatch", TIGHT)?, Aim::Stated),
    ];
    for (name, bytes, aim) in computing {
        fs::write(own.join("computing.wasm"), bytes)?;
        let spec = serde_json::from_value(json!({"file": "computing.wasm", "world": "worker"}))?;
        let (on, off) = compared(&own, &spec, 1, cpu).await?;
        let how =
            format!("{:.1} ms of {:.1} ms of CPU time, the same engine without limits", on / 1000.0, off / 1000.0);
        report.add(name, on / off, "x off", aim, &how);
    }

    let member = Path::new("guild-members/researcher");
    let manifest = Manifest::parse(&fs::read(member.join(FILE_NAME))?)?;
    let spec = manifest.component.ok_or("the researcher has no component")?;
    let (on, off) = compared(member, &spec, CALLS, wall).await?;
    let how = format!("{on:.1} us of {off:.1} us, the same engine without limits");
    report.add("activate, all limits on", on / off, "x off", Aim::AtMost(1.1), &how);
    Ok(())
}

/// The microseconds of a clock with an arbitrary start.
fn wall() -> f64 {
    micros(clock_gettime(ClockId::Monotonic))
}

/// The CPU time of this process in microseconds, without other processes of the machine.
fn cpu() -> f64 {
    micros(clock_gettime(ClockId::ProcessCPUTime))
}

#[expect(clippy::cast_precision_loss, reason = "an epoch of microseconds has 51 bits")]
fn micros(time: Timespec) -> f64 {
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The microseconds of an activation with all limits and without any, on a given clock.
async fn compared(member: &Path, spec: &ComponentSpec, calls: u32, clock: fn() -> f64) -> Outcome<(f64, f64)> {
    let ours = Ours::new(member, spec, activation("p".repeat(4096)), Strategy::Cranelift)?;
    let bare = Bare::new(&config(), &fs::read(member.join(&spec.file))?)?;
    let (mut on, mut off) = (Vec::new(), Vec::new());
    // The first round fills the caches.
    for round in 0..=ROUNDS {
        let begun = clock();
        ours.calls(calls).await?;
        let between = clock();
        bare.calls(&ours.activation, calls).await?;
        let ended = clock();
        if round > 0 {
            on.push((between - begun) / f64::from(calls));
            off.push((ended - between) / f64::from(calls));
        }
    }
    Ok((median(&on), median(&off)))
}

/// The host's engine without its limits.
fn config() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.max_memory_size(64 * 1024 * 1024).table_keep_resident(64 * 1024);
    let mut config = Config::new();
    config
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .wasm_memory64(false)
        .max_wasm_stack(512 * 1024)
        .async_stack_size(1024 * 1024)
        .memory_reservation(1 << 32)
        .memory_guard_size(64 * 1024)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
