//! git, as a user runs it.

use std::{path::Path, process::Command};

/// What git answers in a directory, whatever the configuration of this machine is.
///
/// # Panics
/// Where git fails.
#[allow(clippy::panic, reason = "the test fails, and says why")]
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_remove("GIT_DIR")
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "User"), ("GIT_AUTHOR_EMAIL", "user@localhost")])
        .envs([("GIT_COMMITTER_NAME", "User"), ("GIT_COMMITTER_EMAIL", "user@localhost")])
        .output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim_end().to_owned(),
        output => panic!("git {args:?}: {output:?}"),
    }
}
