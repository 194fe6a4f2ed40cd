//! `cargo xtask bench`: builds the release binary and the benchmarks, and runs them.

use std::process::Command;

use crate::{
    guests,
    steps::{build, root, run},
    tutorials,
};

/// Runs the benchmarks of these names, or all.
pub(crate) fn run_all(names: &[String]) -> Result<(), String> {
    guests::build()?;
    let [guild, bench] = build(["guild", "guild-bench"], &["--release"])?;
    if names.is_empty() || names.contains(&"languages") {
        tutorials::check(&guild, true)?;
    }
    run(Command::new(bench).args(names).env("GUILD_BIN", guild).current_dir(root()))
}
