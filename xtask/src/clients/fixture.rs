//! A host for the clients: a roster in a separate directory, and `guild serve` over it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::install::copy_all;
use crate::steps::root;

/// The timeout for the host to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Installed members: a worker and a toolbox.
pub(super) const WORKER: &str = "researcher";
pub(super) const TOOLBOX: &str = "textkit";
/// Members with components of `tests/guests`: a worker that runs until it is cancelled, and a toolbox with the tools
/// that the conformance suite calls.
pub(super) const ENDLESS: &str = "probe";
pub(super) const CONFORMANCE: &str = "conformance";

/// The worker's task, and a text of its report.
pub(super) const QUESTION: &str = "How many lanterns hang in the lighthouse of Vellmar?";
pub(super) const FOUND: &str = "seventeen lanterns";

/// The guild.toml of the fixture: a debug build on a busy machine compiles a language's engine slowly.
const CONFIG: &str = "[limits]\ncompile_seconds = 600\n";

const DOCUMENTS: [(&str, &str); 3] = [
    (
        "lighthouse.md",
        "# The lighthouse of Vellmar\n\nIn the lighthouse of Vellmar hang seventeen lanterns, all of brass.\n",
    ),
    ("harbour.md", "# The harbour\n\nThe harbour of Vellmar freezes over in January.\n"),
    ("market.md", "# The market\n\nOn market days, lanterns are sold by the dozen.\n"),
];

/// The directories of the fixture, and the process of its host. Dropping it ends the process.
pub(super) struct Fixture {
    directory: PathBuf,
    process: Option<Child>,
    pub(super) port: u16,
}

impl Fixture {
    /// Creates the roster anew, and starts a host for it.
    pub(super) fn open(guild: &Path) -> Result<Self, String> {
        let mut fixture = Self::furnished("fixture")?;
        fixture.serve(guild, &["--sources".as_ref(), fixture.documents().as_os_str()])?;
        Ok(fixture)
    }

    /// Creates the same roster in another directory, without a host.
    pub(super) fn furnished(name: &str) -> Result<Self, String> {
        let directory = root().join("target/clients").join(name);
        furnish(&directory).map_err(|e| format!("cannot set {} up: {e}", directory.display()))?;
        Ok(Self { directory, process: None, port: 0 })
    }

    /// Makes an installed member the manager of the hall.
    pub(super) fn appoint(&self, member: &str) -> Result<(), String> {
        let to = self.members().join(member);
        let config = format!("{CONFIG}\n[hall]\nmanager = {member:?}\n");
        fs::create_dir_all(&to)
            .and_then(|()| copy_all(&root().join("guild-members").join(member), &to))
            .and_then(|()| fs::write(config_file(&self.directory), config))
            .map_err(|e| format!("cannot make {member} the manager: {e}"))
    }

    /// Starts the host.
    pub(super) fn serve(&mut self, guild: &Path, more: &[&OsStr]) -> Result<(), String> {
        let log = File::create(self.log()).map_err(|e| format!("{}: {e}", self.log().display()))?;
        let both = log.try_clone().map_err(|e| e.to_string())?;
        let mut serve = self.command(guild);
        serve.args(["serve", "--port", "0", "--members"]).arg(self.members()).args(more);
        serve.stdin(Stdio::null()).stdout(log).stderr(both);
        self.process = Some(serve.spawn().map_err(|e| format!("cannot start {}: {e}", guild.display()))?);
        self.ready()
    }

    /// The directory of the fixture.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn members(&self) -> PathBuf {
        self.directory.join("members")
    }

    pub(super) fn documents(&self) -> PathBuf {
        self.directory.join("documents")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("host.log")
    }

    /// The environment of `guild`, in which it neither reads nor writes the user's own files.
    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let names = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];
        let own = names.map(|name| (name, self.directory.join("home").join(name)));
        // Compiled components are cached for the next run.
        own.into_iter().chain([("XDG_CACHE_HOME", root().join("target/clients/cache"))]).collect()
    }

    /// A command in the environment of this fixture.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).envs(self.environment());
        for name in ["GUILD_CONFIG", "GUILD_URL", "GUILD_LOG", "RUST_LOG", "CLAUDE_CONFIG_DIR"] {
            command.env_remove(name);
        }
        command
    }

    /// Waits until the host reports its address.
    fn ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(self.log()).unwrap_or_default();
            let port =
                said.split("http://127.0.0.1:").nth(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
            if let Some(port) = port.flatten().and_then(|digits| digits.parse().ok()) {
                self.port = port;
                return Ok(());
            }
            match self.process.as_mut().map(Child::try_wait) {
                Some(Ok(None)) if begun.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(10)),
                Some(Ok(Some(status))) => return Err(format!("the host ended with {status}:\n{said}")),
                _ => return Err(format!("the host is not ready within {} s:\n{said}", TIMEOUT.as_secs())),
            }
        }
    }

    /// Ends the host with SIGTERM, and checks that it ended.
    pub(super) fn close(mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        // The standard library only sends SIGKILL; the `kill` of a shell sends SIGTERM.
        let asked = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &process.id().to_string()]).status();
        asked.map_err(|e| format!("cannot ask the host to end: {e}"))?;
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            match process.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the host ended with {status}; {}", self.log().display())),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        self.process = Some(process);
        Err("the host does not end on SIGTERM".to_owned())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn config_file(directory: &Path) -> PathBuf {
    directory.join("home/XDG_CONFIG_HOME/guild/guild.toml")
}

fn furnish(directory: &Path) -> std::io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let documents = directory.join("documents");
    fs::create_dir_all(&documents)?;
    let config = config_file(directory);
    fs::create_dir_all(config.parent().unwrap_or(directory))?;
    fs::write(config, CONFIG)?;
    for (name, text) in DOCUMENTS {
        fs::write(documents.join(name), text)?;
    }
    for member in [WORKER, TOOLBOX] {
        let to = directory.join("members").join(member);
        fs::create_dir_all(&to)?;
        copy_all(&root().join("guild-members").join(member), &to)?;
    }
    let everything = json!({
        "log": {}, "memory": {"write": true}, "files": {}, "web": {}, "job-tools": {}, "status": {},
        "agent": {"ownTools": true},
    });
    made(directory, ENDLESS, "worker", "autonomous-worker", &everything)?;
    made(directory, CONFORMANCE, "tools", "toolbox-plugin", &json!({}))
}

/// Creates a member with a component of `tests/guests`.
fn made(directory: &Path, name: &str, capability: &str, world: &str, grants: &Value) -> std::io::Result<()> {
    let to = directory.join("members").join(name);
    fs::create_dir_all(&to)?;
    let component = format!("plugins/target/wasm32-wasip2/release/{name}.wasm");
    fs::copy(root().join(component), to.join("guest.wasm"))?;
    let manifest = json!({
        "name": name, "displayName": name, "description": "Made for a test", "version": "0.1.0", "transport": "http",
        "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
        "capabilities": [capability], "component": {"file": "guest.wasm", "world": world, "grants": grants},
    });
    fs::write(to.join("guild-member.json"), manifest.to_string())
}
