//! `cargo xtask demo`: shows one job from task to report, on a host that is started as Guild Hall starts it.

pub(crate) mod cluster;
pub(crate) mod hall;
mod model;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    guests,
    http::{CallError, call},
    steps::{build, root},
};

/// The ports that Guild Hall tries.
const PORTS: std::ops::Range<u16> = 50_000..50_020;
/// How long Guild Hall waits before it checks whether the process ended because the port is in use.
const PORT_CHECK: Duration = Duration::from_millis(100);
/// The interval of Guild Hall's `initialize` requests, and their overall timeout.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(200);
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of Guild Hall's other requests.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of the demo for the report.
const JOB_TIMEOUT: Duration = Duration::from_secs(300);

/// The question of the demo, and its sources.
struct Topic {
    sources: PathBuf,
    name: &'static str,
    description: &'static str,
    question: &'static str,
}

/// Builds the guests and the host, and shows the job.
pub(crate) fn show() -> Result<(), String> {
    guests::build()?;
    let [guild] = build(["guild"], &[])?;
    let topic = topic();
    let (member, policy) = scratch(&topic)?;

    let host = Host::start(&guild, &member, &policy)?;
    println!("\nThe host answers at http://127.0.0.1:{}/mcp, started from {}", host.port, member.display());
    println!("Sources: {}\nQuestion: {}\n", topic.sources.display(), topic.question);
    let shown = research(&host, &topic, &member);
    if shown.is_err() {
        eprintln!("The host's log:\n{}", host.log());
    }
    host.stop()?;
    shown
}

/// The Rust Book if rustup has installed it, or else this project's own documentation.
fn topic() -> Topic {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let book =
        sysroot.ok().map(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).join("share/doc/rust/html/book"));
    match book.filter(|book| book.is_dir()) {
        Some(sources) => Topic {
            sources,
            name: "book",
            description: "Data races, Send and Sync",
            question: "How does Rust prevent data races between threads, and what do the Send and Sync traits mean?",
        },
        None => Topic {
            sources: root().join("docs"),
            name: "docs",
            description: "The end of a host",
            question: "What happens to running jobs when the host stops, and which jobs does prune remove?",
        },
    }
}

/// A copy of the researcher, without the jobs of the original, and a policy that lets it read the sources.
fn scratch(topic: &Topic) -> Result<(PathBuf, PathBuf), String> {
    let demo = root().join("target/demo");
    let member = demo.join("guild-members/researcher");
    let policy = demo.join("guild.toml");
    let made = (|| {
        if demo.exists() {
            fs::remove_dir_all(&demo)?;
        }
        fs::create_dir_all(&member)?;
        for file in ["guild-member.json", "posture.md", "researcher.wasm"] {
            fs::copy(root().join("guild-members/researcher").join(file), member.join(file))?;
        }
        // A JSON string is a TOML string.
        fs::write(&policy, format!("[[roots]]\nname = {:?}\npath = {}\n", topic.name, json!(topic.sources)))
    })();
    made.map_err(|e| format!("cannot set {} up: {e}", demo.display()))?;
    Ok((member, policy))
}

/// Dispatches the question, follows the job, and prints its outcome.
fn research(host: &Host, topic: &Topic, member: &Path) -> Result<(), String> {
    let begun = Instant::now();
    let dispatched =
        host.call("worker/dispatch", &json!({"description": topic.description, "task": topic.question}))?;
    let id = text(&dispatched, "jobId");
    println!("worker/dispatch -> {id}");
    let mut last = String::new();
    let status = loop {
        let status = host.call("worker/status", &json!({"jobId": id}))?;
        let summary = text(&status, "summary");
        if summary != last {
            println!("[{:5.1} s] {}", begun.elapsed().as_secs_f64(), summary.lines().next_back().unwrap_or_default());
            last = summary.to_owned();
        }
        if text(&status, "status") != "running" {
            break status;
        }
        if begun.elapsed() > JOB_TIMEOUT {
            return Err(format!("the job has not ended within {} s", JOB_TIMEOUT.as_secs()));
        }
        thread::sleep(READY_POLL_INTERVAL);
    };
    if text(&status, "status") != "completed" {
        return Err(format!("the job is {}: {}", text(&status, "status"), text(&status, "error")));
    }
    let result = host.call("worker/result", &json!({"jobId": id}))?;
    println!("\n{0}\n{1}\n{0}", "-".repeat(100), text(&result, "output").trim_end());
    for (title, key) in [("Questions", "questions"), ("Decisions", "decisions"), ("Artifacts", "artifacts")] {
        let entries = status.get(key).or_else(|| result.get(key)).and_then(Value::as_array);
        for (n, entry) in entries.into_iter().flatten().enumerate() {
            if n == 0 {
                println!("\n{title}");
            }
            match entry.as_str() {
                Some(text) => println!("- {text}"),
                None => println!(
                    "- {}\n  {} ({})",
                    text(entry, "question"),
                    text(entry, "decision"),
                    text(entry, "reasoning")
                ),
            }
        }
    }
    println!(
        "\nThe job took {:.1} s. Its files: {}",
        begun.elapsed().as_secs_f64(),
        member.join("jobs").join(id).display()
    );
    Ok(())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The process of a host, which ends when this is dropped.
struct Host {
    process: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Host {
    /// Starts the command of the member's manifest in the member's directory, and waits until the host answers.
    fn start(guild: &Path, member: &Path, policy: &Path) -> Result<Self, String> {
        let manifest = fs::read(member.join("guild-member.json")).map_err(|e| e.to_string())?;
        let manifest: Value = serde_json::from_slice(&manifest).map_err(|e| e.to_string())?;
        let mcp = manifest.get("mcp").cloned().unwrap_or_default();
        // The manifest names `guild`; with this PATH the child finds the binary that was just built.
        let mut path = vec![guild.parent().unwrap_or(guild).to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(path).map_err(|e| e.to_string())?;
        for port in PORTS {
            let arguments = mcp.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let mut process = Command::new(text(&mcp, "command"))
                .args(arguments.map(|argument| argument.replace("${PORT}", &port.to_string())))
                .current_dir(member)
                .env("PATH", &path)
                .env("GUILD_CONFIG", policy)
                // Compiled components are cached in the build directory too.
                .env("XDG_CACHE_HOME", root().join("target/demo-cache"))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|e| format!("cannot start {}: {e}", text(&mcp, "command")))?;
            let log = Arc::default();
            let pipes = [
                process.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
                process.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            ];
            pipes.into_iter().flatten().for_each(|pipe| keep(pipe, &log));
            let mut host = Self { process, port, log };
            thread::sleep(PORT_CHECK);
            match host.process.try_wait().map_err(|e| e.to_string())?.and_then(|status| status.code()) {
                Some(2) => continue,
                _ => host.ready()?,
            }
            return Ok(host);
        }
        Err(format!("the ports {} to {} are all in use", PORTS.start, PORTS.end - 1))
    }

    fn ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let client = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "demo", "version": "1"}});
        loop {
            match call(self.port, "initialize", &client, Duration::from_secs(5)) {
                Ok(_) => break,
                Err(CallError::Other(reason)) => return Err(reason),
                Err(CallError::Refused) => {}
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(format!("the host ended with {status}:\n{}", self.log()));
            }
            if begun.elapsed() > READY_TIMEOUT {
                return Err(format!("the host was not ready within {} s:\n{}", READY_TIMEOUT.as_secs(), self.log()));
            }
            thread::sleep(READY_POLL_INTERVAL);
        }
        self.call("tools/list", &json!({})).map(|_| ())
    }

    fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        call(self.port, method, params, TIMEOUT).map_err(|error| match error {
            CallError::Refused => "the host no longer listens".to_owned(),
            CallError::Other(reason) => reason,
        })
    }

    fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the host as Guild Hall does, and checks that it ended.
    fn stop(mut self) -> Result<(), String> {
        // The standard library only sends SIGKILL; the `kill` of a shell sends SIGTERM.
        let asked = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.process.id().to_string()]).status();
        asked.map_err(|e| format!("cannot ask the host to end: {e}"))?;
        let begun = Instant::now();
        while begun.elapsed() < READY_TIMEOUT {
            if let Some(status) = self.process.try_wait().map_err(|e| e.to_string())? {
                println!("The host ended {} ms after SIGTERM ({status}).", begun.elapsed().as_millis());
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err("the host does not end on SIGTERM".to_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Drains a pipe of the host into its log.
fn keep(pipe: Box<dyn Read + Send>, log: &Arc<Mutex<String>>) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push_str(&line);
            log.push('\n');
        }
    });
}
