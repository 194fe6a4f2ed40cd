//! `cargo xtask bench chaos`: three hosts on three NATS servers under faults; see `tests/chaos/mod.rs`.

use std::{env, fs};

use crate::{
    guests, nats,
    steps::{cargo, run},
};

/// The default number of faults. Each takes some 7 s.
const DEFAULT_FAULTS: &str = "1000";
/// The most faults, which take 19 hours.
const MOST_FAULTS: u64 = 10_000;
/// The most clusters at once.
const MOST_CLUSTERS: u64 = 32;
/// The variables that the test reads.
pub(crate) const FAULTS: &str = "GUILD_CHAOS_FAULTS";
const SEED: &str = "GUILD_CHAOS_SEED";
const CLUSTERS: &str = "GUILD_CHAOS_CLUSTERS";
const BINARIES: &str = "GUILD_CHAOS_BINARIES";

/// `arguments` are `[--faults N] [--seed S] [--clusters N] [--binary PATH]...`. Each cluster has a part of the faults.
/// Hosts are started with the binaries in turn, so that those of two versions are in one cluster.
pub(crate) fn run_for(arguments: &[String]) -> Result<(), String> {
    let usage = || "usage: bench chaos [--faults N] [--seed S] [--clusters N] [--binary PATH]...".to_owned();
    let (mut faults, mut seed, mut clusters, mut binaries) = (DEFAULT_FAULTS, None, "1", Vec::new());
    for option in arguments.chunks(2) {
        match option {
            [name, value] if name == "--faults" => faults = value,
            [name, value] if name == "--seed" => seed = Some(value),
            [name, value] if name == "--clusters" => clusters = value,
            [name, value] if name == "--binary" => {
                binaries.push(fs::canonicalize(value).map_err(|e| format!("{value}: {e}"))?);
            }
            _ => return Err(usage()),
        }
    }
    if !faults.parse().is_ok_and(|count: u64| (1..=MOST_FAULTS).contains(&count)) {
        return Err(format!("--faults takes a number from 1 to {MOST_FAULTS}, not {faults:?}"));
    }
    if !clusters.parse().is_ok_and(|count: u64| (1..=MOST_CLUSTERS).contains(&count)) {
        return Err(format!("--clusters takes a number from 1 to {MOST_CLUSTERS}, not {clusters:?}"));
    }
    if let Some(seed) = seed.filter(|seed| seed.parse::<u64>().is_err()) {
        return Err(format!("--seed takes a number, not {seed:?}"));
    }
    guests::build()?;
    let server = nats::ready()?;
    let mut test = cargo();
    test.args(["test", "--package", "guild", "--test", "host", "--", "--exact", "--nocapture"]);
    test.arg("chaos::a_cluster_under_faults_keeps_its_promises");
    test.env("GUILD_NATS_SERVER", server)
        .env(FAULTS, faults)
        .env(CLUSTERS, clusters)
        .envs(seed.map(|seed| (SEED, seed)));
    if !binaries.is_empty() {
        test.env(BINARIES, env::join_paths(binaries).map_err(|e| e.to_string())?);
    }
    run(&mut test)
}
