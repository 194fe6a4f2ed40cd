//! `cargo xtask deny`: checks all dependencies of every workspace against `deny.toml`.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    steps::{cargo, root, run},
    tools,
};

/// The workspaces. The exceptions in `deny.toml` are for the first one, except for the fuzzer's licence; an exception
/// that the first one no longer needs is an error.
const WORKSPACES: [&str; 5] =
    ["Cargo.toml", "sdk/rust/Cargo.toml", "plugins/Cargo.toml", "tests/guests/Cargo.toml", "fuzz/Cargo.toml"];
/// The lints for exceptions in deny.toml that a workspace does not need.
const UNUSED: [&str; 2] = ["unmatched-skip", "license-not-encountered"];
/// The timeout of the download of the advisories.
const FETCH_TIMEOUT: Duration = Duration::from_secs(90);

/// The crate for clients of a host, which must not depend on the engine that runs components.
const CLIENT: &str = "guild-client";
const ENGINE: &str = "wasmtime";

/// Checks all workspaces.
pub(crate) fn check() -> Result<(), String> {
    client()?;
    let deny = tools::DENY.ready()?;
    for (n, workspace) in WORKSPACES.iter().enumerate() {
        eprintln!("{workspace}:");
        let unused = if n == 0 { "--deny" } else { "--allow" };
        let lints = UNUSED.iter().flat_map(|lint| [unused, lint]);
        let lints = lints.chain(["--allow", "license-exception-not-encountered"]);
        run(on(&deny, workspace).arg("check").args(lints).args(["bans", "licenses", "sources"]))?;
    }
    if let Err(why) = fetch(&deny) {
        println!("advisories: SKIPPED, since the advisory database cannot be reached: {why}");
        return Ok(());
    }
    for workspace in WORKSPACES {
        eprintln!("{workspace}:");
        run(on(&deny, workspace).args(["--offline", "check", "advisories"]))?;
    }
    Ok(())
}

/// Checks that the client's crate does not depend on the engine.
fn client() -> Result<(), String> {
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--package", CLIENT, "--edges", "normal", "--target", "all", "--prefix", "none"]);
    let tree = tree.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot start cargo tree: {e}"))?;
    if !tree.status.success() {
        return Err(format!("cargo tree ended with {}", tree.status));
    }
    let engine = String::from_utf8_lossy(&tree.stdout).lines().any(|line| line.starts_with(ENGINE));
    if engine {
        Err(format!("{CLIENT} needs {ENGINE}: `cargo tree -p {CLIENT} -i {ENGINE}` shows the path"))
    } else {
        Ok(())
    }
}

fn on(deny: &Path, workspace: &str) -> Command {
    let mut command = Command::new(deny);
    command.current_dir(root()).args(["--config", "deny.toml", "--manifest-path", workspace]);
    command
}

/// Fetches the advisories, in a separate step so that a failed download is not taken for a finding.
fn fetch(deny: &Path) -> Result<(), String> {
    let mut fetch = on(deny, "Cargo.toml");
    // A process group of its own, since its children must not outlive it.
    fetch.args(["fetch", "db"]).env("GIT_TERMINAL_PROMPT", "0").process_group(0);
    fetch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut fetch = fetch.spawn().map_err(|e| format!("cannot start cargo-deny: {e}"))?;
    let begun = Instant::now();
    let ended = loop {
        match fetch.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if begun.elapsed() > FETCH_TIMEOUT => {
                stop(&mut fetch);
                return Err(format!("nothing was received within {} s", FETCH_TIMEOUT.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    };
    if ended.success() {
        return Ok(());
    }
    let said = fetch.stderr.take().and_then(|pipe| std::io::read_to_string(pipe).ok()).unwrap_or_default();
    Err(said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("cargo-deny gave no reason").trim().to_owned())
}

fn stop(child: &mut Child) {
    // The standard library only kills one process; the `kill` of a shell kills a group.
    let _ = Command::new("sh").args(["-c", "kill -KILL \"-$0\"", &child.id().to_string()]).status();
    let _ = child.wait();
}
