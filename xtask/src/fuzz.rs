//! `cargo xtask fuzz`: runs every fuzz target for a share of the time, from the committed seeds and the corpus of
//! earlier runs.
//!
//! With a nightly toolchain, AddressSanitizer also finds memory errors; otherwise the stable toolchain is used. The
//! working files are below `target/fuzz`; the seeds in `fuzz/seeds` are never changed.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    steps::{root, run},
    tools,
};

/// The default duration of all targets together, in seconds.
const DEFAULT_SECONDS: u64 = 180;
/// An input that takes more seconds is a finding, and so is an input that takes more MiB of memory.
const INPUT_SECONDS: u32 = 20;
const MEMORY_MIB: u32 = 4096;
/// The maximum size of an input in bytes.
const MAX_INPUT: u32 = 16 * 1024;
/// The number of lines of a fuzzer's output that are shown with a finding, from the first line of the error on, and
/// from the end.
const SHOWN_LINES: usize = 40;

/// The toolchain and the options of the build.
struct Build {
    toolchain: Option<&'static str>,
    sanitizer: &'static str,
    host: String,
}

/// The outcome of one target.
#[derive(Default)]
struct Outcome {
    executions: String,
    coverage: String,
    seconds: f64,
    /// The file of the input if there is a finding; empty if no file was written.
    finding: Option<String>,
}

/// Runs the named targets, or all. `arguments` are `[--seconds N] [TARGET]...`.
pub(crate) fn run_all(arguments: &[String]) -> Result<(), String> {
    let (seconds, wanted) = match arguments {
        [option, seconds, wanted @ ..] if option == "--seconds" => {
            (seconds.parse().map_err(|_| format!("--seconds takes a number, not {seconds:?}"))?, wanted)
        }
        wanted => (DEFAULT_SECONDS, wanted),
    };
    let all = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        return Err(format!("there is no target {unknown}; there are {}", all.join(", ")));
    }
    let chosen: Vec<_> = all.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    let share = (seconds / chosen.len().max(1) as u64).max(1);
    let build = Build::choose()?;
    build.build(&chosen)?;
    let mut outcomes = Vec::new();
    for name in chosen {
        let outcome = build.fuzz(&name, share)?;
        eprintln!("{}", line(&name, &outcome));
        outcomes.push((name, outcome));
    }
    println!("\n{:<14} {:>12} {:>10} {:>8}  finding", "target", "executions", "coverage", "seconds");
    outcomes.iter().for_each(|(name, outcome)| println!("{}", line(name, outcome)));
    let total: f64 = outcomes.iter().map(|(_, outcome)| outcome.seconds).sum();
    println!("{total:.0} s in all, one processor, {}", build.words());
    let mut found = 0;
    for (name, input) in outcomes.iter().filter_map(|(name, outcome)| Some((name, outcome.finding.as_ref()?))) {
        found += 1;
        println!("\n{name}: reproduce it with\n  {} {input}", build.program(name).display());
        println!("and after the fix, keep the input: cp {input} fuzz/seeds/{name}/");
    }
    if found == 0 { Ok(()) } else { Err(format!("{found} of the targets have a finding")) }
}

fn line(name: &str, Outcome { executions, coverage, seconds, finding }: &Outcome) -> String {
    let finding = finding.as_ref().map_or("none", |input| if input.is_empty() { "yes" } else { input });
    format!("{name:<14} {executions:>12} {coverage:>10} {seconds:>8.1}  {finding}")
}

/// The names of all targets.
fn targets() -> Result<Vec<String>, String> {
    let directory = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

impl Build {
    /// Uses AddressSanitizer if there is a nightly toolchain.
    fn choose() -> Result<Self, String> {
        let version = |toolchain: Option<&str>| {
            let mut rustc = Command::new("rustc");
            rustc.arg("-vV").current_dir(root()).stderr(Stdio::null()).stdin(Stdio::null());
            if let Some(toolchain) = toolchain {
                rustc.env("RUSTUP_TOOLCHAIN", toolchain);
            }
            let said = rustc.output().ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&said.stdout).into_owned())
        };
        let host = |said: &str| said.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned);
        // Without rustup the variable has no effect, as the version shows.
        let nightly = version(Some("nightly")).filter(|said| said.contains("nightly"));
        let (toolchain, sanitizer, said) = match nightly {
            Some(said) => (Some("nightly"), "address", said),
            None => (None, "none", version(None).ok_or("rustc does not run")?),
        };
        let host = host(&said).ok_or("rustc does not report its host")?;
        Ok(Self { toolchain, sanitizer, host })
    }

    fn words(&self) -> String {
        match self.toolchain {
            Some(toolchain) => format!("{toolchain} toolchain with AddressSanitizer"),
            None => "no nightly toolchain, so without a sanitizer".to_owned(),
        }
    }

    fn build(&self, targets: &[String]) -> Result<(), String> {
        let fuzz = tools::FUZZ.ready()?;
        let every = self::targets()?.len();
        let mut build = Command::new(fuzz);
        build.current_dir(root()).args(["build", "--fuzz-dir", "fuzz", "--sanitizer", self.sanitizer]);
        build.args(["--codegen-units", "16", "--target", &self.host]);
        // `cargo fuzz build` takes one target, or all.
        if let ([one], true) = (targets, every > 1) {
            build.arg(one);
        }
        if let Some(toolchain) = self.toolchain {
            // The cargo of this process belongs to another toolchain.
            build.env("RUSTUP_TOOLCHAIN", toolchain).env_remove("CARGO");
        }
        eprintln!("building, {}", self.words());
        run(&mut build)
    }

    fn program(&self, target: &str) -> PathBuf {
        Path::new("fuzz/target").join(&self.host).join("release").join(target)
    }

    /// Runs one target for `seconds`, on one processor.
    fn fuzz(&self, target: &str, seconds: u64) -> Result<Outcome, String> {
        let work = Path::new("target/fuzz");
        let (corpus, artifacts) = (work.join("corpus").join(target), work.join("artifacts").join(target));
        for directory in [&corpus, &artifacts] {
            fs::create_dir_all(root().join(directory)).map_err(|e| format!("{}: {e}", directory.display()))?;
        }
        eprintln!("\n== {target}, {seconds} s");
        let mut fuzzer = Command::new(root().join(self.program(target)));
        fuzzer.current_dir(root()).args([&corpus, &Path::new("fuzz/seeds").join(target)]);
        fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={INPUT_SECONDS}"));
        fuzzer.arg(format!("-rss_limit_mb={MEMORY_MIB}")).arg(format!("-max_len={MAX_INPUT}"));
        fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
        // Memory that lives as long as the process is not a leak.
        fuzzer.args(["-print_final_stats=1", "-detect_leaks=0"]).env("ASAN_OPTIONS", "detect_odr_violation=0");
        let begun = Instant::now();
        let mut child = fuzzer
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", self.program(target).display()))?;
        let mut outcome = Outcome::default();
        let (mut first, mut last) = (Vec::new(), VecDeque::new());
        let mut written = String::new();
        let output = child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n').flatten());
        for text in output {
            let text = String::from_utf8_lossy(&text).into_owned();
            let after = |mark: &str| text.split_once(mark).and_then(|(_, rest)| rest.split_whitespace().next());
            if let Some(coverage) = after(" cov: ") {
                outcome.coverage = coverage.to_owned();
            }
            if let Some(executions) = after("stat::number_of_executed_units:") {
                outcome.executions = executions.to_owned();
            } else if let Some((executions, _)) = text.strip_prefix('#').and_then(|rest| rest.split_once('\t')) {
                outcome.executions = executions.to_owned();
            }
            if let Some(input) = after("Test unit written to ") {
                written = input.to_owned();
            }
            let begins = text.contains(" panicked at ") || text.contains("ERROR: ");
            if (begins || !first.is_empty()) && first.len() < SHOWN_LINES {
                first.push(text);
                continue;
            }
            last.push_back(text);
            if last.len() > SHOWN_LINES {
                last.pop_front();
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        outcome.seconds = begun.elapsed().as_secs_f64();
        if !status.success() {
            first.iter().chain(&last).for_each(|text| eprintln!("{text}"));
            outcome.finding = Some(written);
        }
        Ok(outcome)
    }
}
