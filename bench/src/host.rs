//! The measured host: a `guild serve` on a copy of the researcher.

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    Outcome,
    load::{Connection, get, request},
};

/// The timeout for a host to answer, and to end.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// The polling interval for the first answer, which is small against the measured time.
const POLL_INTERVAL: Duration = Duration::from_micros(250);

/// The directory of all files of a benchmark.
pub(crate) fn scratch() -> PathBuf {
    Path::new("target").join("bench")
}

/// A directory that is ready to be served: a member's, or one of many members.
pub(crate) struct Setup {
    guild: PathBuf,
    member: PathBuf,
    /// Whether the directory is one of many members.
    roster: bool,
    sources: PathBuf,
    config: Option<PathBuf>,
    /// The home of the host's hall, if it has one.
    hall: Option<PathBuf>,
    /// Further variables of its environment.
    environment: Vec<(&'static str, String)>,
}

impl Setup {
    /// A copy of the researcher without jobs, and documents for it.
    pub(crate) fn new(name: &str) -> Outcome<Self> {
        Self::of(name, "researcher", &["guild-member.json", "posture.md", "researcher.wasm"])
    }

    /// A copy of these files of an installed member.
    pub(crate) fn of(name: &str, installed: &str, files: &[&str]) -> Outcome<Self> {
        let guild =
            std::env::var_os("GUILD_BIN").ok_or("GUILD_BIN does not name the binary; run `cargo xtask bench`")?;
        let base = scratch().join(name);
        let (member, sources) = (base.join(installed), base.join("sources"));
        if base.exists() {
            fs::remove_dir_all(&base)?;
        }
        fs::create_dir_all(&member)?;
        fs::create_dir_all(&sources)?;
        for file in files {
            fs::copy(Path::new("guild-members").join(installed).join(file), member.join(file))?;
        }
        // The documents do not change, so that figures of different times are comparable.
        for document in ["README.md", "operators.md", "protocol.md", "reviewers.md"] {
            fs::copy(Path::new("host/extractive/tests/corpora/guild").join(document), sources.join(document))?;
        }
        Ok(Self {
            guild: fs::canonicalize(guild)?,
            member: fs::canonicalize(member)?,
            roster: false,
            sources: fs::canonicalize(sources)?,
            config: None,
            hall: None,
            environment: Vec::new(),
        })
    }

    /// Many copies of the researcher in a directory of members, each with a different component, so that the host
    /// shares nothing between them.
    pub(crate) fn roster(name: &str, members: usize) -> Outcome<Self> {
        let setup = Self::new(name)?;
        let directory = setup.member.with_file_name("members");
        for n in 0..members {
            let member = directory.join(format!("m{n:02}"));
            fs::create_dir_all(&member)?;
            for file in ["guild-member.json", "posture.md"] {
                fs::copy(setup.member.join(file), member.join(file))?;
            }
            // A custom section without a name, with the number as its content.
            let other = [0, 2, 0, u8::try_from(n)?];
            let component = [fs::read(setup.member.join("researcher.wasm"))?.as_slice(), &other].concat();
            fs::write(member.join("researcher.wasm"), component)?;
        }
        Ok(Self { member: directory, roster: true, ..setup })
    }

    /// A directory with a toolbox only.
    pub(crate) fn toolbox(name: &str, component: &Path) -> Outcome<Self> {
        let setup = Self::of(name, "textkit", &["guild-member.json"])?;
        let file = setup.member.join("guild-member.json");
        let mut manifest: Value = serde_json::from_slice(&fs::read(&file)?)?;
        *manifest.pointer_mut("/component/file").ok_or("the textkit has no component")? = "toolbox.wasm".into();
        fs::write(file, manifest.to_string())?;
        fs::copy(component, setup.member.join("toolbox.wasm"))?;
        Ok(setup)
    }

    /// Sets the guild.toml.
    pub(crate) fn with_config(mut self, text: &str) -> Outcome<Self> {
        let file = self.member.with_file_name("guild.toml");
        fs::write(&file, text)?;
        self.config = Some(file);
        Ok(self)
    }

    /// Sets the home of a hall.
    pub(crate) fn with_hall(self, home: &Path) -> Self {
        Self { hall: Some(home.to_owned()), ..self }
    }

    /// Sets a variable of the host's environment.
    pub(crate) fn with_variable(mut self, name: &'static str, value: String) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Adds the files of jobs that were completed earlier.
    pub(crate) fn with_jobs(self, count: u32) -> Outcome<Self> {
        for n in 0..count {
            let id = job_id(n);
            let job = self.member.join("jobs").join(&id);
            fs::create_dir_all(job.join("artifacts"))?;
            let time = format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", 1 + n / 86_400, n / 3600 % 24, n / 60 % 60, n % 60);
            let meta = json!({"jobId": id, "status": "completed", "description": format!("Survey number {n}"),
                "startedAt": time, "completedAt": time});
            fs::write(job.join("meta.json"), meta.to_string())?;
            fs::write(job.join("task.md"), "Find out what there is to know about it.")?;
            fs::write(job.join("config.json"), "{}")?;
            fs::write(job.join("status.md"), "Read 12 documents; the report is submitted.")?;
            fs::write(job.join("result.md"), "# Report\n\nThere is nothing to know about it.\n")?;
        }
        Ok(self)
    }

    /// Starts the host and waits for its first answer.
    pub(crate) async fn start(&self) -> Outcome<Host> {
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let printed = self.member.with_file_name("host.log");
        let log = fs::File::create(&printed)?;
        let begun = Instant::now();
        let process = Command::new(&self.guild)
            .args(["serve", if self.roster { "--members" } else { "--member" }, "."])
            .args(["--port", &port.to_string(), "--sources"])
            .arg(&self.sources)
            .args(self.config.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
            .args(self.hall.iter().flat_map(|home| [OsStr::new("--hall"), home.as_os_str()]))
            .current_dir(&self.member)
            .env("XDG_CACHE_HOME", fs::canonicalize(scratch())?.join("cache"))
            // A new directory for each run, since a rebuilt component would need an approval.
            .env("XDG_CONFIG_HOME", self.member.with_file_name("config"))
            .env_remove("GUILD_CONFIG")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let mut host =
            Host { process, address: (Ipv4Addr::LOCALHOST, port).into(), begun, first_answer: Duration::ZERO };
        let client = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        let initialize = call("initialize", &client);
        loop {
            if let Ok(mut connection) = Connection::open(host.address).await {
                connection.exchange(&request(&initialize)).await?;
                break;
            }
            if let Some(status) = host.process.try_wait()? {
                return Err(format!("the host ended with {status}: {}", fs::read_to_string(printed)?).into());
            }
            if begun.elapsed() > TIMEOUT {
                return Err("the host does not answer".into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        host.first_answer = begun.elapsed();
        Ok(host)
    }
}

/// The id of the n-th job of [`Setup::with_jobs`].
pub(crate) fn job_id(n: u32) -> String {
    format!("019b0000-0000-7000-8000-{n:012}")
}

/// A call as JSON. The id is always the same, so that equal answers have equal bytes.
pub(crate) fn call(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// A running host, which ends when this is dropped.
pub(crate) struct Host {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The start of the process.
    pub(crate) begun: Instant,
    /// The time from the start of the process to the first answered `initialize`.
    pub(crate) first_answer: Duration,
}

impl Host {
    /// Calls a method and returns the whole answer's bytes.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Outcome<Vec<u8>> {
        let mut connection = Connection::open(self.address).await?;
        Ok(connection.exchange(&request(&call(method, params))).await?.to_vec())
    }

    /// Calls a method and returns its result.
    pub(crate) async fn result(&self, method: &str, params: &Value) -> Outcome<Value> {
        let answer: Value = serde_json::from_slice(&self.ask(method, params).await?)?;
        answer.get("result").cloned().ok_or_else(|| format!("{method}: {answer}").into())
    }

    /// The memory in use (VmRSS), its peak (VmHWM), and the private part of it (RssAnon), in MiB.
    pub(crate) fn memory(&self) -> Outcome<(f64, f64, f64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let mib = |name: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
        };
        let known = |name: &str| mib(name).ok_or_else(|| format!("no {name}"));
        Ok((known("VmRSS")?, known("VmHWM")?, known("RssAnon")?))
    }

    /// Whether the host accepts jobs.
    pub(crate) async fn is_ready(&self) -> bool {
        let ask = async || Connection::open(self.address).await?.exchange(&get("/readyz")).await.map(drop);
        ask().await.is_ok()
    }

    /// A figure of `/metrics`: the sum over all its labels.
    pub(crate) async fn figure(&self, name: &str) -> Outcome<f64> {
        let mut connection = Connection::open(self.address).await?;
        let text = std::str::from_utf8(connection.exchange(&get("/metrics")).await?)?;
        let of = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let value = rest.starts_with(['{', ' ']).then(|| rest.rsplit_once(' '))??.1;
            value.parse::<f64>().ok()
        };
        let values: Vec<f64> = text.lines().filter_map(of).collect();
        if values.is_empty() { Err(format!("/metrics has no {name}").into()) } else { Ok(values.iter().sum()) }
    }

    /// Sends the host SIGTERM.
    pub(crate) fn terminate(&self) -> Outcome<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::TERM)?)
    }

    /// Ends the host with SIGTERM, and returns the duration.
    pub(crate) async fn stop(mut self) -> Outcome<Duration> {
        let begun = Instant::now();
        self.terminate()?;
        while self.process.try_wait()?.is_none() {
            if begun.elapsed() > TIMEOUT {
                return Err("the host does not end".into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(begun.elapsed())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
