//! `cargo xtask bench chaos`: three hosts on three NATS servers under faults; see `tests/chaos/mod.rs`.

use crate::{
    guests, nats,
    steps::{cargo, run},
};

/// The default number of faults. Each takes some 7 s.
const DEFAULT_FAULTS: &str = "1000";
/// The most faults, which take 19 hours.
const MOST_FAULTS: u64 = 10_000;
/// The variables that the test reads.
pub(crate) const FAULTS: &str = "GUILD_CHAOS_FAULTS";
const SEED: &str = "GUILD_CHAOS_SEED";

/// `arguments` are `[--faults N] [--seed S]`.
pub(crate) fn run_for(arguments: &[String]) -> Result<(), String> {
    let usage = || "usage: bench chaos [--faults N] [--seed S]".to_owned();
    let (mut faults, mut seed) = (DEFAULT_FAULTS, None);
    for option in arguments.chunks(2) {
        match option {
            [name, value] if name == "--faults" => faults = value,
            [name, value] if name == "--seed" => seed = Some(value),
            _ => return Err(usage()),
        }
    }
    if !faults.parse().is_ok_and(|count: u64| (1..=MOST_FAULTS).contains(&count)) {
        return Err(format!("--faults takes a number from 1 to {MOST_FAULTS}, not {faults:?}"));
    }
    if let Some(seed) = seed.filter(|seed| seed.parse::<u64>().is_err()) {
        return Err(format!("--seed takes a number, not {seed:?}"));
    }
    guests::build()?;
    let server = nats::ready()?;
    let mut test = cargo();
    test.args(["test", "--package", "guild", "--test", "host", "--", "--exact", "--nocapture"]);
    test.arg("chaos::a_cluster_under_faults_keeps_its_promises");
    test.env("GUILD_NATS_SERVER", server).env(FAULTS, faults).envs(seed.map(|seed| (SEED, seed)));
    run(&mut test)
}
