//! Runs third-party MCP clients against an unmodified host: see `tests/clients`.
//!
//! Each client is a program that reports its checks as lines of JSON. The clients run concurrently on one `guild serve`
//! of a roster, and on a separate `guild mcp` each. The conformance suite and the workers in other languages follow.

mod fixture;
mod guild_hall;
mod install;
mod languages;
mod web;

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Map, Value, json};

use crate::{
    guests,
    steps::{build, root},
};
use fixture::{CONFORMANCE, ENDLESS, FOUND, Fixture, QUESTION, TOOLBOX, WORKER};
use install::{Clients, sources};

/// The real Claude Code CLI, which `cargo xtask test --all` installs here.
const CLAUDE: &str = "target/claude-cli/node_modules/.bin/claude";

pub(crate) use guild_hall::original;

/// Builds the guests and the host, and runs all clients.
pub(crate) fn alone() -> Result<(), String> {
    guests::build()?;
    let [guild] = build(["guild"], &[])?;
    check(&guild)
}

/// Runs all clients, with this `guild`. The guests have been built.
pub(crate) fn check(guild: &Path) -> Result<(), String> {
    let clients = Clients::ready()?;
    runs_curl()?;
    let fixture = Fixture::open(guild)?;
    let checked = all(&clients, guild, &fixture);
    if checked.is_err() {
        eprintln!("The host's log is {}", fixture.log().display());
    }
    let log = fixture.log();
    // A failed check is reported before the end of the host, since it is more specific.
    checked.and(fixture.close())?;
    match fs::read_to_string(&log) {
        Ok(said) if !said.contains("panicked") => Ok(()),
        Ok(_) => Err(format!("the host panicked on the way; its log is {}", log.display())),
        Err(e) => Err(format!("{}: {e}", log.display())),
    }
}

fn all(clients: &Clients, guild: &Path, fixture: &Fixture) -> Result<(), String> {
    let file = fixture.directory().join("plan.json");
    fs::write(&file, plan(guild, fixture).to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
    let script = |name: &str| {
        let mut command = Command::new(&clients.node);
        command.arg(clients.scripts.join(name)).arg(&file);
        command
    };
    let mut python = Command::new(&clients.python);
    python.arg("-B").arg(sources().join("client.py")).arg(&file);
    let mut commands = vec![
        ("TypeScript SDK 1", script("sdk.mjs")),
        ("TypeScript SDK 2", script("client.mjs")),
        ("Python SDK", python),
        ("curl", script("curl.mjs")),
    ];
    let claude = root().join(CLAUDE);
    if claude.exists() {
        let mut command = script("claude.mjs");
        command.arg(claude);
        commands.push(("Claude Code", command));
    } else {
        println!("skip  Claude Code: it is not installed; `cargo xtask test --all` installs it below target");
    }
    let begun = Instant::now();
    let running: Vec<Running> =
        commands.into_iter().map(|(name, command)| Running::start(name, command)).collect::<Result<_, _>>()?;
    let mut failed: Vec<String> = running.into_iter().filter_map(|client| client.end().err()).collect();
    println!("the clients took {:.1} s", begun.elapsed().as_secs_f64());
    failed.extend(conformance(clients, fixture).err());
    failed.extend(languages::check(guild, fixture).err());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The input of the clients: the addresses of the host, the requests, and the expected answers.
fn plan(guild: &Path, fixture: &Fixture) -> Value {
    let http = |path: &str| format!("http://127.0.0.1:{}{path}", fixture.port);
    let members = fixture.members();
    // `guild mcp` finds the host that already serves these members.
    let stdio = |more: &[&str]| {
        let command = [guild, Path::new("mcp"), Path::new("--members"), &members].map(|word| json!(word));
        command.into_iter().chain(more.iter().map(|word| json!(word))).collect::<Vec<_>>()
    };
    let environment: Map<String, Value> =
        fixture.environment().into_iter().map(|(name, path)| (name.to_owned(), json!(path))).collect();
    json!({
        "http": {
            "roster": http("/mcp"),
            "toolbox": http(&format!("/members/{TOOLBOX}/mcp")),
            "bridge": http(&format!("/dispatch/{WORKER}/mcp")),
            "member": http(&format!("/members/{WORKER}/mcp")),
            "endless": http(&format!("/members/{ENDLESS}/mcp")),
        },
        "stdio": {
            "roster": stdio(&[]),
            "toolbox": stdio(&["--member", TOOLBOX]),
            "bridge": stdio(&["--member", WORKER]),
            // The client appends the directory of members.
            "alone": [guild, Path::new("mcp"), Path::new("--sources"), &fixture.documents(), Path::new("--members")],
        },
        "env": environment,
        "directory": fixture.directory(),
        "members": members,
        "worker": WORKER,
        "endless": ENDLESS,
        "question": QUESTION,
        "found": FOUND,
        "tool": {
            "member": TOOLBOX,
            "name": "sort_lines",
            "input": {"text": "pear\napple\npear\n", "order": "text", "unique": true},
            "output": {"lines": 2, "dropped": 1, "text": "apple\npear\n"},
            "wrong": {"text": 3},
        },
    })
}

/// A running client, whose process ends when this is dropped.
struct Running {
    name: &'static str,
    process: Child,
    /// The file of its checks.
    said: PathBuf,
    /// The file of its other output.
    log: PathBuf,
}

impl Running {
    fn start(name: &'static str, mut command: Command) -> Result<Self, String> {
        let file = root().join("target/clients").join(name.replace(' ', "-").to_lowercase());
        let (said, log) = (file.with_extension("jsonl"), file.with_extension("log"));
        let create = |file: &Path| File::create(file).map_err(|e| format!("{}: {e}", file.display()));
        command.stdin(Stdio::null()).stdout(create(&said)?).stderr(create(&log)?);
        let process = command.spawn().map_err(|e| format!("cannot start {name}: {e}"))?;
        Ok(Self { name, process, said, log })
    }

    /// Waits for the end of the client, and prints its checks.
    fn end(mut self) -> Result<(), String> {
        let status = self.process.wait().map_err(|e| format!("{}: {e}", self.name))?;
        let said = File::open(&self.said).map_err(|e| format!("{}: {e}", self.said.display()))?;
        let (mut passed, mut failed) = (0_u32, 0_u32);
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            let Ok(check) = serde_json::from_str::<Value>(&line) else {
                println!("      {line}");
                continue;
            };
            let ok = check.get("ok") == Some(&Value::Bool(true));
            *(if ok { &mut passed } else { &mut failed }) += 1;
            println!("{}", check_line(self.name, ok, &check));
        }
        let why = match failed {
            0 if status.success() && passed > 0 => return Ok(()),
            0 => format!("{} ended with {status} after {passed} checks", self.name),
            _ => format!("{}: {failed} of {} checks failed", self.name, passed + failed),
        };
        Err(format!("{why} (its log is {})", self.log.display()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A check on one line, with the details of a failure below.
fn check_line(name: &str, ok: bool, check: &Value) -> String {
    let text = |key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default();
    let ms = check.get("ms").and_then(Value::as_u64).unwrap_or_default();
    let mut line =
        format!("{} {ms:>6} ms  {name}, {}: {}", if ok { "ok  " } else { "FAIL" }, text("over"), text("check"));
    if !ok {
        for detail in text("detail").lines() {
            // Writing to a String cannot fail.
            let _ = write!(line, "\n      {detail}");
        }
    }
    line
}

/// Runs the whole official conformance suite. `conformance.yml` lists the expected failures, with reasons: any other
/// failure is an error, and so is a listed check that passes.
fn conformance(clients: &Clients, fixture: &Fixture) -> Result<(), String> {
    let log = root().join("target/clients/conformance.log");
    let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let suite = clients.scripts.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let status = Command::new(&clients.node)
        .arg(suite)
        .args([
            "server",
            "--suite",
            "all",
            "--url",
            &format!("http://127.0.0.1:{}/members/{CONFORMANCE}/mcp", fixture.port),
        ])
        .arg("--expected-failures")
        .arg(sources().join("conformance.yml"))
        .arg("--output-dir")
        .arg(fixture.directory().join("conformance"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(|e| e.to_string())?)
        .stderr(file)
        .status()
        .map_err(|e| format!("cannot start the conformance suite: {e}"))?;
    let said = fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let summary = said.split_once("=== SUMMARY ===").map_or(said.as_str(), |(_, summary)| summary);
    if status.success() {
        summary
            .lines()
            .filter(|line| line.starts_with("Total:"))
            .for_each(|line| println!("conformance suite: {line}"));
        return Ok(());
    }
    println!("{}", summary.trim());
    let log = log.display();
    Err(format!("the conformance suite differs from tests/clients/conformance.yml; its output is in {log}"))
}

fn runs_curl() -> Result<(), String> {
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match curl {
        Ok(status) if status.success() => Ok(()),
        _ => Err("one of the clients is `curl`, which does not run here: install it".to_owned()),
    }
}
