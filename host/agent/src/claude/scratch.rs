//! A session's scratch directory, and the record in it of the session's processes.
//!
//! ```text
//! claude-XXXXXX/            readable by this user only
//!   processes.json          the host, the boot, the child, the mark
//!   system-prompt.md
//!   work/                   the CLI's working directory: empty, or a copy of the granted sources
//!   tmp/                    its TMPDIR
//! ```
//!
//! The mark is a random variable in the environment of the child, which what it starts inherits: it tells what belongs
//! to a session also where the child itself has ended, or where something has left its process group.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use guild_session::{files::Files, process::start_time};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The environment variable that marks the processes of a session.
pub(super) const MARK: &str = "GUILD_SESSION_MARK";
/// The file that names the processes.
const RECORD: &str = "processes.json";
/// How the names of scratch directories begin.
const PREFIX: &str = "claude-";
/// A directory that is older and has no record is of a host that was killed while it was making it.
const MAKING: Duration = Duration::from_secs(60);
/// Rounds of looking for processes that were started while others were being ended.
const ROUNDS: usize = 8;
/// Bytes of sources that are copied for the CLI's own tools at most.
const MAX_COPIED_BYTES: u64 = 256 << 20;

/// A process that is not mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Identity {
    pid: u32,
    /// When it started, in the system's clock ticks since it was booted.
    started: u64,
}

impl Identity {
    fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: start_time(pid)? })
    }

    fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// The processes of a session.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    host: Identity,
    /// The boot in which these ids mean anything.
    boot: String,
    mark: String,
    /// The leader of the session's process group; absent until it has been started.
    child: Option<Identity>,
    command: PathBuf,
}

/// A session's scratch directory. When it is dropped, what is left of the session's processes is ended, and it is
/// removed.
pub(super) struct Scratch {
    dir: TempDir,
    record: Option<Record>,
    mark: String,
    /// Whether there is a child, or was.
    started: bool,
}

impl Scratch {
    /// Makes the directory, with the system prompt in it. It blocks.
    pub(super) fn new(state: Option<&Path>, command: &Path, system_prompt: &str) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(fs::Permissions::from_mode(0o700));
        let dir = match state {
            Some(state) => builder.tempdir_in(state)?,
            None => builder.tempdir()?,
        };
        let mark = Uuid::new_v4().to_string();
        let mut scratch = Self { dir, record: None, mark: mark.clone(), started: false };
        if state.is_some() {
            let host = Identity::of(std::process::id()).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
            let record = Record { host, boot: boot()?, mark, child: None, command: command.to_owned() };
            scratch.write(&record)?;
            scratch.record = Some(record);
        }
        fs::create_dir(scratch.work())?;
        fs::create_dir(scratch.tmp())?;
        fs::write(scratch.system_prompt(), system_prompt)?;
        Ok(scratch)
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    pub(super) fn system_prompt(&self) -> PathBuf {
        self.dir.path().join("system-prompt.md")
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records the child. It blocks, for as long as it takes to write a small file.
    pub(super) fn record(&mut self, child: u32) -> io::Result<()> {
        self.started = true;
        let Some(mut record) = self.record.take() else { return Ok(()) };
        record.child = Identity::of(child);
        self.write(&record)
    }

    /// Writes the record so that a reader sees the old one or the new one. It need not survive the machine's end: nor do
    /// the processes.
    fn write(&self, record: &Record) -> io::Result<()> {
        let new = self.dir.path().join("processes.new");
        fs::write(&new, serde_json::to_vec(record)?)?;
        fs::rename(new, self.dir.path().join(RECORD))
    }

    /// Copies the granted sources into the working directory, under the paths by which sessions know them: for the CLI's
    /// own tools, which must see nothing else. It blocks.
    pub(super) fn copy(&self, files: &dyn Files, cancel: &CancellationToken) -> Result<(), String> {
        let failed = |e: String| format!("the sources cannot be copied for the tools of claude: {e}");
        let entries = files.walk(cancel).map_err(|e| failed(e.to_string()))?.files;
        let all: u64 = entries.iter().map(|entry| entry.size).sum();
        if all > MAX_COPIED_BYTES {
            return Err(failed(format!(
                "they have {all} bytes, and at most {MAX_COPIED_BYTES} are copied: name narrower read roots, or set \
                 [claude] builtin_tools = false in guild.toml"
            )));
        }
        for entry in entries {
            let plain = Path::new(&entry.path).components().all(|part| matches!(part, Component::Normal(_)));
            // A file that changed or vanished during the copy is left out.
            let (true, Ok(bytes)) = (plain, files.listed_bytes(&entry.path, entry.size)) else { continue };
            let path = self.work().join(&entry.path);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, bytes));
            made.map_err(|e| failed(format!("{}: {e}", entry.path)))?;
            if cancel.is_cancelled() {
                return Err(failed("the session was stopped".to_owned()));
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    /// It blocks, for as long as it takes to look at all processes.
    fn drop(&mut self) {
        if self.started {
            end_session(&self.mark, None);
        }
    }
}

/// Makes the directory where it is not there, and sees that it is this user's own.
pub(super) fn own_directory(path: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(format!("{} must be a directory of this user, with mode 0700", path.display()));
    }
    Ok(())
}

/// Names this boot of the machine.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Ends the remaining processes of sessions whose host has ended, and removes their scratch directories; returns how
/// many processes it ended.
pub(super) fn reap(state: &Path) -> usize {
    let (Ok(entries), Ok(boot)) = (fs::read_dir(state), boot()) else { return 0 };
    let mut ended = 0;
    for dir in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = dir.path();
        let text = fs::read(path.join(RECORD));
        match text.ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok()) {
            Some(record) if record.boot != boot => {}
            Some(record) if record.host.is_alive() => continue,
            Some(record) => {
                let (command, left) = (record.command.display(), end_session(&record.mark, record.child));
                tracing::warn!(%command, left, host = record.host.pid, "ended what was left of an ended host's session");
                ended += left;
            }
            None if is_being_made(&path) => continue,
            None => {}
        }
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(path = %path.display(), %error, "a scratch directory cannot be removed");
        }
    }
    ended
}

fn is_being_made(path: &Path) -> bool {
    let made = fs::symlink_metadata(path).and_then(|found| found.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < MAKING))
}

/// Kills the processes of a session until no more of them are found; returns how many it killed.
fn end_session(mark: &str, child: Option<Identity>) -> usize {
    let mut ended = HashSet::new();
    for _ in 0..ROUNDS {
        let Ok(processes) = fs::read_dir("/proc") else { break };
        let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let before = ended.len();
        ended.extend(ids.filter_map(|pid| kill_if_of(mark, child, pid)));
        if ended.len() == before {
            break;
        }
    }
    ended.len()
}

/// Kills a process if it belongs to the session, and returns its identity then.
fn kill_if_of(mark: &str, child: Option<Identity>, pid: u32) -> Option<Identity> {
    let id = Pid::from_raw(i32::try_from(pid).ok()?)?;
    // The descriptor is opened first, so that what is checked and what is killed are the same process.
    let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
    let identity = Identity::of(pid)?;
    let variable = format!("{MARK}={mark}");
    let marked = || {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    if child != Some(identity) && !marked() {
        return None;
    }
    pidfd_send_signal(&process, Signal::KILL).ok().map(|()| identity)
}
