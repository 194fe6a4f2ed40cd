//! The real Claude Code CLI, for the tests that need it.

use std::process::{Command, Stdio};

use crate::steps::{cargo, root, run};

/// The npm package of the CLI. Without the tag, npm installs an older version if the newest one requires a newer Node,
/// although the CLI itself needs no Node.
const PACKAGE: &str = "@anthropic-ai/claude-code@latest";

/// Installs the CLI into a directory below `target`, and runs the tests that need it against a local server in place of
/// its provider: sessions of the runtime, and a job of the researcher through the whole host. No login is used.
pub(crate) fn sessions() -> Result<(), String> {
    let directory = root().join("target/claude-cli");
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let npm = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !npm.is_ok_and(|status| status.success()) {
        return Err("the CLI comes from its npm package, and `npm` does not run here: install Node.js".to_owned());
    }
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&directory).arg(PACKAGE))?;
    let cli = directory.join("node_modules/.bin/claude");
    let test =
        ["nextest", "run", "--package", "guild-agent", "--test", "claude", "--package", "guild", "--test", "host"];
    run(cargo()
        .args(test)
        .args(["--run-ignored", "only", "--no-capture", "--", "the_real_cli"])
        .env("GUILD_CLAUDE_CLI", cli))
}
