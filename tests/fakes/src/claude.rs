//! Finds the fake of the Claude Code command line, and builds it where it is missing or old.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// The name of the program.
const NAME: &str = "fake-claude";

/// The program `fake-claude`, up to date; the head of its source describes its scripts.
///
/// A build of the whole workspace includes it. Where it is missing, or older than its
/// source, this builds it.
#[allow(clippy::panic, reason = "a test that has no fake cannot continue")]
pub fn fake_claude() -> PathBuf {
    find_or_build().unwrap_or_else(|e| panic!("there is no {NAME}: {e}"))
}

fn find_or_build() -> Result<PathBuf, String> {
    // Tests, benchmarks and examples run in a directory below that of the programs.
    let own = env::current_exe().map_err(|e| e.to_string())?;
    let below = own.parent().ok_or("the test is nowhere")?;
    let programs = if below.ends_with("deps") || below.ends_with("examples") { below.parent() } else { Some(below) };
    let programs = programs.ok_or("the test is nowhere")?;
    let program = programs.join(NAME);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin").join(NAME).with_extension("rs");
    if written(&program).is_some_and(|built| written(&source).is_none_or(|changed| changed < built)) {
        return Ok(program);
    }
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME"), "--bin", NAME]);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--target-dir").arg(programs.parent().unwrap_or(programs));
    if programs.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status().map_err(|e| e.to_string())?;
    if built.success() { Ok(program) } else { Err(format!("building it {built}")) }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}
