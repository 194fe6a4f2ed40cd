//! `cargo xtask bench`: builds the release binary and the benchmarks, and runs them.

use std::process::Command;

use crate::{
    guests, nats,
    steps::{build, root, run},
    tutorials,
};

/// Runs the benchmarks of these names, or all.
pub(crate) fn run_all(names: &[String]) -> Result<(), String> {
    guests::build()?;
    let [guild, bench] = build(["guild", "guild-bench"], &["--release"])?;
    if names.is_empty() || names.iter().any(|name| name == "languages") {
        tutorials::check(&guild, true, &[])?;
    }
    let mut bench = Command::new(bench);
    if names.is_empty() || names.iter().any(|name| name.starts_with("cluster")) {
        bench.env("GUILD_NATS_SERVER", nats::ready()?);
    }
    run(bench.args(names).env("GUILD_BIN", guild).current_dir(root()))
}
