//! `cargo xtask test`: everything that has to hold before a change goes in.

use std::process::Stdio;

use crate::{
    claude, clients, deny, guests, modules,
    steps::{Steps, cargo, root, run, run_keeping_end},
};

/// The workspaces besides the main one: code that is made for WebAssembly, and checked here natively.
const GUEST_WORKSPACES: [&str; 2] = ["plugins/Cargo.toml", "tests/guests/Cargo.toml"];

/// Sets everything up and runs the checks; the first that fails ends it. Programs that are not ours have to be fetched, and
/// take as long as the rest: they are in `all`.
pub(crate) fn run_checks(all: bool) -> Result<(), String> {
    let mut steps = Steps::default();
    let mut summary = Vec::new();
    let mut done = take(&mut steps, &mut summary);
    if all && done.is_ok() {
        done = steps.take("sessions of the real Claude Code CLI", claude::sessions);
    }
    if all && done.is_ok() {
        // The one that the tests built: built by itself it would have other features, and take minutes.
        let guild = root().join("target/debug/guild");
        done = steps.take("clients that are not ours", || clients::check(&guild));
    }
    println!("\n{steps}");
    // The test runner's summary comes last, unchanged, for readers of the end only.
    summary.iter().for_each(|line| println!("{line}"));
    done
}

fn take(steps: &mut Steps, summary: &mut Vec<String>) -> Result<(), String> {
    steps.take("guests", guests::build)?;
    steps.take("test runner", nextest)?;
    steps.take("format", || {
        run(cargo().args(["fmt", "--all", "--check"]))?;
        for_guests(|manifest| run(cargo().args(["fmt", "--all", "--check", "--manifest-path", manifest])))
    })?;
    steps.take("clippy", || {
        let deny = ["--", "--deny", "warnings"];
        run(cargo().args(["clippy", "--workspace", "--all-targets"]).args(deny))?;
        for_guests(|manifest| {
            run(cargo().args(["clippy", "--workspace", "--all-targets", "--manifest-path", manifest]).args(deny))
        })
    })?;
    steps.take("modules", modules::check)?;
    steps.take("dependencies", deny::check)?;
    steps.take("tests", || {
        let (ended, end) = run_keeping_end(cargo().args(["nextest", "run", "--workspace"]), "Summary [");
        *summary = end;
        ended
    })?;
    steps.take("tests of the plugins", || {
        run(cargo().args(["test", "--workspace", "--quiet", "--manifest-path", "plugins/Cargo.toml"]))
    })?;
    steps.take("documentation tests", || run(cargo().args(["test", "--workspace", "--doc", "--quiet"])))
}

fn for_guests(check: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    GUEST_WORKSPACES.iter().filter(|manifest| root().join(manifest).is_file()).try_for_each(|manifest| check(manifest))
}

/// Takes the `cargo nextest` that is there, or installs it.
fn nextest() -> Result<(), String> {
    let version = ["nextest", "--version"];
    let there = cargo().args(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("cargo-nextest is not installed; installing it (once) with `cargo install --locked cargo-nextest`");
        run(cargo().args(["install", "--locked", "cargo-nextest"]))?;
    }
    run(cargo().args(version))
}
