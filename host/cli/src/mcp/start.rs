//! Starts a private host: a `guild serve` for the clients of `guild mcp`, which ends with the last of them.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum as _;
use guild_auth::private::{Joined, Lease};
use guild_config::Runtime;
use guild_roster::Target;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStderr, Command},
    sync::Notify,
    task::JoinHandle,
};

use crate::{client::private_port, failure::Failure, output::log::LogArgs, serve::Start};

/// The timeout for a host to end, and for the last lines of its log.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of its first line.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The options of a private host.
pub(super) struct HostCommand {
    pub(super) target: Target,
    /// The directory of a single member's toolboxes, if guild.toml does not name one.
    pub(super) toolboxes: Option<PathBuf>,
    pub(super) sources: Vec<PathBuf>,
    pub(super) agent: Option<Runtime>,
    pub(super) config: Option<PathBuf>,
    pub(super) log: LogArgs,
    /// Each notification is passed to the host as SIGHUP.
    pub(super) hangup: Arc<Notify>,
}

/// A private host that this process started.
pub(super) struct StartedHost {
    /// Its address.
    pub(super) base: String,
    /// Ready when it has ended.
    running: JoinHandle<()>,
}

impl StartedHost {
    /// Waits for its end, and for the last lines of its log.
    pub(super) async fn ended(self) {
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.running).await.is_err() {
            tracing::warn!("the host at {} takes long to end", self.base);
        }
    }
}

impl HostCommand {
    /// Starts the host and begins to use it. Its log is copied to stderr as long as this process runs.
    ///
    /// # Errors
    ///
    /// Returns the reason when the host does not start.
    pub(super) async fn start(&self) -> Result<(StartedHost, Lease), Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::error(format!("cannot start a host: {why}"));
        let mut child = self.spawn().map_err(|e| failed(&e))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(&"it has no pipes"));
        };
        let log = tokio::spawn(copy_log(stderr));
        let mut line = String::new();
        let read = BufReader::new(stdout.take(MAX_LINE_BYTES)).read_line(&mut line).await;
        let start: Start = match read.map(|_| serde_json::from_str(&line)) {
            Ok(Ok(start)) => start,
            Ok(Err(_)) => Err("the host ended before it was ready; its messages on stderr say why".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        let running = tokio::spawn(accompany(child, log, self.hangup.clone()));
        let base = match start {
            Ok(base) => base,
            Err(why) => {
                let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, running).await;
                return Err(Failure::error(why));
            }
        };
        // The host runs at least until its stdin is closed.
        let joined = private_port(&base).map(Lease::join).transpose().map_err(|e| failed(&e))?;
        drop(stdin);
        match joined {
            Some(Joined::Client(lease)) => Ok((StartedHost { base, running }, lease)),
            _ => Err(failed(&format!("the token of the host at {base} is gone"))),
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new(guild_confine::executable()?);
        command.arg0("guild").args(self.arguments());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C and the end of this process are not for the host, which other clients may use.
        command.process_group(0).spawn()
    }

    fn arguments(&self) -> Vec<OsString> {
        // With `=`, a value that begins with `-` is not parsed as an option.
        let option = |name: &str, value: &OsStr| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            word
        };
        let mut words: Vec<OsString> = vec!["serve".into(), "--private".into()];
        words.push(match &self.target {
            Target::Member(directory) => option("member", directory.as_os_str()),
            Target::Members(directory) => option("members", directory.as_os_str()),
        });
        words.extend(self.toolboxes.iter().map(|members| option("members", members.as_os_str())));
        words.extend(self.sources.iter().map(|source| option("sources", source.as_os_str())));
        words.extend(self.agent.map(|agent| option("agent", agent.as_str().as_ref())));
        words.extend(self.config.iter().map(|config| option("config", config.as_os_str())));
        words.extend((0..self.log.verbose).map(|_| "-v".into()));
        let format = self.log.log_format.to_possible_value();
        words.extend(format.map(|format| option("log-format", format.get_name().as_ref())));
        words
    }
}

/// Copies the log line by line, so that no line of this process is written into one.
async fn copy_log(stderr: ChildStderr) {
    let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
    loop {
        line.clear();
        match (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            // If stderr of this process is closed, the host goes on without a log.
            Ok(_) => drop(tokio::io::stderr().write_all(&line).await),
        }
    }
}

/// Passes SIGHUP on to the host until it ends, and waits for the last lines of its log.
async fn accompany(mut child: Child, log: JoinHandle<()>, hangup: Arc<Notify>) {
    loop {
        tokio::select! {
            _ = child.wait() => break,
            () = hangup.notified() => {
                let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(Err(e)) = pid.map(|pid| kill_process(pid, Signal::HUP)) {
                    tracing::warn!("SIGHUP cannot be passed on to the host: {e}");
                }
            }
        }
    }
    let _ = log.await;
}
