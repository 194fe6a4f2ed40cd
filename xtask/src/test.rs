//! `cargo xtask test`: runs all checks that a change must pass.

use std::{env, ffi::OsString, fs, num::NonZero, process::Stdio, thread::available_parallelism};

use crate::{
    bindings, chaos, claude, clients, deny, guests, modules, nats,
    steps::{Steps, cargo, root, run, run_keeping_end, says},
    tools::debian_packages,
    tutorials,
};

/// The workspaces besides the main one: code for WebAssembly, which is checked as native code.
const GUEST_WORKSPACES: [&str; 3] = ["sdk/rust/Cargo.toml", "plugins/Cargo.toml", "tests/guests/Cargo.toml"];

/// Programs of Debian that some tests need, and the tests.
const PROGRAMS: [(&[&str], &str); 3] = [
    (&["chromium", "chromedriver"], "test(/^browser::/)"),
    (&["prometheus"], "test(/real_prometheus/)"),
    (&["docker-registry"], "test(/^registry::/)"),
];

/// The tests that start NATS servers.
const NATS_TESTS: &str =
    "(package(guild-cluster) and kind(test)) or test(/^cluster::/) or test(/^chaos::a_cluster_under_faults/)";
/// The number of faults of a cluster with `--all`; without it, the test has its own number.
const FAULTS: &str = "25";

/// The languages in which an SDK is compared with that of Rust, and their programs. A test of `sdk/rust` ends with the
/// name of its language.
const SDK_LANGUAGES: [(&str, &str, &str); 3] =
    [("python", "python3", "--version"), ("javascript", "node", "--version"), ("go", "go", "version")];

/// Sets everything up and runs the checks; the first failure ends the run. Only `all` includes the third-party
/// programs, which must be downloaded and take as long as the other checks.
pub(crate) fn run_checks(all: bool) -> Result<(), String> {
    let mut steps = Steps::default();
    let mut summary = Vec::new();
    if all && let Err(why) = debian_packages(&["chromium", "chromium-driver", "prometheus", "docker-registry"]) {
        println!("{why}");
    }
    let mut done = take(&mut steps, &mut summary, all);
    if all && done.is_ok() {
        done = steps.take("sessions of the real Claude Code CLI", claude::sessions);
    }
    if all && done.is_ok() {
        // The binary of the tests is used: a separate build would have other features, and take minutes.
        let guild = root().join("target/debug/guild");
        done = steps.take("third-party clients", || clients::check(&guild));
    }
    if all && done.is_ok() {
        done = steps.take("WIT package in wkg", wkg);
    }
    println!("\n{steps}");
    // The test runner's summary comes last, unchanged, for readers of the last lines.
    summary.iter().for_each(|line| println!("{line}"));
    done
}

fn take(steps: &mut Steps, summary: &mut Vec<String>, all: bool) -> Result<(), String> {
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
            let place = ["--target-dir", "plugins/target"];
            run(cargo()
                .args(["clippy", "--workspace", "--all-targets", "--manifest-path", manifest])
                .args(place)
                .args(deny))
        })
    })?;
    steps.take("bindings", bindings::check)?;
    steps.take("modules", modules::check)?;
    steps.take("dependencies", deny::check)?;
    steps.take("tests", || {
        let mut tests = cargo();
        // Many tests wait for a child process or a clock, so one more than there are cores takes less time.
        let threads = available_parallelism().map_or(1, NonZero::get) + 1;
        tests.args(["nextest", "run", "--workspace", "--test-threads", &threads.to_string(), "-E", &possible()]);
        tests.envs(all.then_some((chaos::FAULTS, FAULTS)));
        let (ended, end) = run_keeping_end(&mut tests, "Summary [");
        *summary = end;
        ended
    })?;
    // The binary of the tests is used here too.
    steps.take("tutorials", || tutorials::check(&root().join("target/debug/guild"), all, &[]))?;
    steps.take("tests of the plugins", || {
        let (path, skipped) = sdk_languages()?;
        ["sdk/rust/Cargo.toml", "plugins/Cargo.toml"].into_iter().try_for_each(|manifest| {
            let place = ["--target-dir", "plugins/target"];
            let mut cargo = cargo();
            cargo.args(["test", "--workspace", "--quiet", "--manifest-path", manifest]).args(place);
            run(cargo.env("PATH", &path).arg("--").args(&skipped))
        })
    })?;
    steps.take("documentation tests", || run(cargo().args(["test", "--workspace", "--doc", "--quiet"])))
}

/// Selects the tests whose programs are installed. The test runner's summary counts the others as skipped.
fn possible() -> String {
    let mut selected = "all()".to_owned();
    if let Err(why) = nats::ready() {
        println!("{NATS_TESTS}: SKIPPED, since there is no nats-server: {why}");
        selected.push_str(&format!(" and not ({NATS_TESTS})"));
    }
    for (programs, tests) in PROGRAMS {
        for program in programs.iter().filter(|program| says(program, &["--version"]).is_err()) {
            println!("{tests}: SKIPPED, since {program} is not installed");
            selected.push_str(&format!(" and not {tests}"));
        }
    }
    selected
}

/// The `PATH` for the comparison of the SDKs, and the options that leave out the languages that are not installed.
fn sdk_languages() -> Result<(OsString, Vec<String>), String> {
    let go = tutorials::go().ok().flatten();
    let mut skipped = Vec::new();
    for (language, program, version) in SDK_LANGUAGES {
        if says(program, &[version]).is_err() && !(language == "go" && go.is_some()) {
            println!("comparison of the SDKs in {language}: SKIPPED, since {program} is not installed");
            skipped.extend(["--skip".to_owned(), format!("_in_{language}")]);
        }
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(go.into_iter().chain(env::split_paths(&path))).map_err(|e| e.to_string())?;
    Ok((path, skipped))
}

/// Runs the test in which `wkg` reads the WIT package from a registry. It is skipped, named, if one of its programs is
/// not installed; the test runner's summary counts it as skipped in any case.
fn wkg() -> Result<(), String> {
    let wkg = env::var("GUILD_WKG").unwrap_or_else(|_| "wkg".to_owned());
    for (program, how) in
        [(&*wkg, "cargo install --locked wkg"), ("docker-registry", "apt-get install docker-registry")]
    {
        if says(program, &["--version"]).is_err() {
            println!("wkg_reads_the_wit_package: SKIPPED, since {program} is not installed; `{how}` installs it");
            return Ok(());
        }
    }
    let test = ["nextest", "run", "--workspace", "--run-ignored", "only", "-E", "test(/^wkg_reads_the_wit_package/)"];
    run(cargo().args(test).env("GUILD_WKG", wkg))
}

fn for_guests(check: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    GUEST_WORKSPACES.iter().filter(|manifest| root().join(manifest).is_file()).try_for_each(|manifest| check(manifest))
}

/// Takes a picture of each page of a host for the documentation.
pub(crate) fn screenshots() -> Result<(), String> {
    guests::build()?;
    nextest()?;
    let folder = root().join("docs/screenshots");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    run(cargo()
        .args(["nextest", "run", "--package", "guild", "--run-ignored", "only", "-E", "test(/^screenshots::/)"])
        .env("SCREENSHOTS", folder))
}

/// Uses the installed `cargo nextest`, or installs it.
fn nextest() -> Result<(), String> {
    let version = ["nextest", "--version"];
    let there = cargo().args(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("cargo-nextest is not installed; installing it (once) with `cargo install --locked cargo-nextest`");
        run(cargo().args(["install", "--locked", "cargo-nextest"]))?;
    }
    run(cargo().args(version))
}
