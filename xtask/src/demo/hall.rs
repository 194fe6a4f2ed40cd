//! `cargo xtask demo hall`: shows two commissions on a scratch project, the second of which depends on the first. All
//! output comes from commands that a user would type.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    guests,
    steps::{begin_repository, build, line, root},
};

const WORKER: &str = "researcher";
const PROJECT: &str = "vellmar";

/// The project's documents.
const DOCUMENTS: [(&str, &str); 3] = [
    (
        "lighthouse.md",
        "# The lighthouse of Vellmar\n\nIn the lighthouse of Vellmar hang seventeen lanterns, all of brass. The keeper lights \
         them at dusk, and winds the clock of the lamp twice a night.\n",
    ),
    (
        "harbour.md",
        "# The harbour\n\nThe harbour of Vellmar freezes over in January. Ships that come after the first ice wait at the \
         outer mole until the ice breaker from Torsund has made a channel.\n",
    ),
    ("market.md", "# The market\n\nOn market days lanterns are sold by the dozen, and oil by the barrel.\n"),
];

const QUESTIONS: [(&str, &str); 2] = [
    ("The lanterns", "How many lanterns hang in the lighthouse of Vellmar, and who lights them?"),
    ("Ships in winter", "What do ships do when the harbour of Vellmar freezes over?"),
];

/// The timeout for the host to be ready, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Builds the guests and the host, and shows the commissions.
pub(crate) fn show() -> Result<(), String> {
    guests::build()?;
    let [guild] = build(["guild"], &[])?;
    let demo = Demo { guild, directory: root().join("target/demo-hall") };
    let set_up = demo.set_up();
    set_up.map_err(|e| format!("cannot set {} up: {e}", demo.directory.display()))?;
    begin_repository(&demo.project())?;

    demo.say(&["project", "add", "project", "--name", PROJECT])?;
    let host = demo.serve()?;
    let shown = demo.commissions();
    if shown.is_err() {
        eprintln!("The host's log is {}", demo.directory.join("host.log").display());
    }
    shown.and(host.stop())
}

struct Demo {
    guild: PathBuf,
    directory: PathBuf,
}

impl Demo {
    fn set_up(&self) -> std::io::Result<()> {
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory)?;
        }
        let (lore, member) = (self.project().join(".lore/notes"), self.directory.join("members").join(WORKER));
        fs::create_dir_all(&lore)?;
        fs::create_dir_all(&member)?;
        for (name, text) in DOCUMENTS {
            fs::write(lore.join(name), text)?;
        }
        for file in ["guild-member.json", "posture.md", "researcher.wasm"] {
            fs::copy(root().join("guild-members").join(WORKER).join(file), member.join(file))?;
        }
        Ok(())
    }

    fn project(&self) -> PathBuf {
        self.directory.join("project")
    }

    /// A command that sees none of the user's own settings.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).stdin(Stdio::null()).env("GUILD_HALL_HOME", self.directory.join("hall"));
        command.env("HOME", &self.directory).env("XDG_CONFIG_HOME", self.directory.join("config"));
        command.env("XDG_CACHE_HOME", root().join("target/demo-cache")).env_remove("XDG_STATE_HOME");
        ["GUILD_CONFIG", "GUILD_URL", "GIT_DIR"].iter().for_each(|name| {
            command.env_remove(name);
        });
        command
    }

    /// Runs `guild`, with its stderr on this process's stderr; prints its stdout, and returns it.
    fn say(&self, words: &[&str]) -> Result<String, String> {
        self.show(self.command(&self.guild).args(words))
    }

    fn show(&self, command: &mut Command) -> Result<String, String> {
        println!("\n$ {}", line(command));
        let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", line(command)))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        print!("{said}");
        if output.status.success() { Ok(said) } else { Err(format!("{} ended with {}", line(command), output.status)) }
    }

    fn serve(&self) -> Result<Host, String> {
        let file = self.directory.join("host.log");
        let log = File::create(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let both = log.try_clone().map_err(|e| e.to_string())?;
        let mut serve = self.command(&self.guild);
        serve.args(["serve", "--hall", "hall", "--members", "members", "--port", "0"]);
        println!("\n$ {} &", line(&serve));
        let process = serve.stdout(log).stderr(both).spawn().map_err(|e| format!("cannot start the host: {e}"))?;
        let mut host = Host { process };
        let begun = Instant::now();
        loop {
            let asked = self.command(&self.guild).args(["commission", "list"]).output();
            if asked.map_err(|e| e.to_string())?.status.success() {
                return Ok(host);
            }
            if let Ok(Some(status)) = host.process.try_wait() {
                return Err(format!("the host ended with {status}; its log is {}", file.display()));
            }
            if begun.elapsed() > TIMEOUT {
                return Err(format!("the host is not ready; its log is {}", file.display()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn commissions(&self) -> Result<(), String> {
        let [(first, asked), (second, asked_then)] = QUESTIONS;
        let create = ["commission", "create", PROJECT, WORKER];
        let first = self.say(&[&create[..], &[first, asked]].concat())?;
        let first = first.trim();
        // The second commission is dispatched before the first one, and waits for it.
        let second = self.say(&[&create[..], &[second, asked_then, "--depends", first, "--dispatch"]].concat())?;
        let second = second.trim();
        self.say(&["commission", "list"])?;
        self.say(&["commission", "dispatch", first])?;
        self.say(&["commission", "watch", second])?;
        for id in [first, second] {
            self.say(&["commission", "show", id])?;
        }
        let mut log = self.command(Path::new("git"));
        self.show(log.args(["-C", "project", "log", "--graph", "--oneline", "--stat", "main..claude/main"]))?;
        println!("\nThe files are in {}", self.directory.display());
        Ok(())
    }
}

/// The process of the host, which ends when this is dropped.
struct Host {
    process: Child,
}

impl Host {
    fn stop(mut self) -> Result<(), String> {
        // The standard library only sends SIGKILL; the `kill` of a shell sends SIGTERM.
        let asked = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.process.id().to_string()]).status();
        asked.map_err(|e| format!("cannot ask the host to end: {e}"))?;
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            match self.process.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the host ended with {status}")),
                None => thread::sleep(POLL_INTERVAL),
            }
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
