//! `cargo xtask soak`: runs a host with hostile and healthy jobs for minutes; see `tests/soak.rs`.

use crate::{
    guests,
    steps::{cargo, run},
};

/// The default duration, in minutes.
const DEFAULT_MINUTES: &str = "10";

/// `arguments` are `[--minutes N] [--release]`.
pub(crate) fn run_for(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (minutes, release) = match words.as_slice() {
        [] => (DEFAULT_MINUTES, false),
        ["--release"] => (DEFAULT_MINUTES, true),
        ["--minutes", minutes] => (*minutes, false),
        ["--minutes", minutes, "--release"] | ["--release", "--minutes", minutes] => (*minutes, true),
        _ => return Err("usage: soak [--minutes N] [--release]".to_owned()),
    };
    let seconds =
        minutes.parse::<f64>().ok().map(|minutes| minutes * 60.0).filter(|seconds| (20.0..1e6).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("--minutes takes a number from 0.5 on, not {minutes:?}"))?;
    guests::build()?;
    let mut test = cargo();
    test.args(["test", "--package", "guild", "--test", "host"]).args(release.then_some("--release"));
    test.args(["--", "--exact", "--nocapture", "soak::hostile_and_healthy_jobs_side_by_side_leave_nothing_behind"]);
    run(test.env("GUILD_SOAK_SECONDS", format!("{seconds:.0}")))
}
