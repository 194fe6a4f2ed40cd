//! The fake of the Claude Code CLI. A test of this package has cargo build it with the workspace.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::process::Command;

#[test]
fn it_is_strict_about_the_flags_that_a_host_needs() {
    let run = Command::new(env!("CARGO_BIN_EXE_fake-claude")).args(["script.json", "-p"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&run.stderr).contains("--output-format=stream-json"));
}

#[test]
fn it_is_where_tests_of_other_packages_look_for_it() {
    assert_eq!(guild_fakes::fake_claude(), std::path::Path::new(env!("CARGO_BIN_EXE_fake-claude")));
}
