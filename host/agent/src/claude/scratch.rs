//! Makes and removes the scratch directories of sessions.
//!
//! ```text
//! claude-XXXXXX/            readable by this user only
//!   host.json               the process of the host that made it, by which a later host knows whether it is left over
//!   system-prompt.md
//!   work/                   the CLI's working directory: empty, or a copy of the granted sources
//!   tmp/                    its TMPDIR
//! ```

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use guild_session::{files::Files, process::start_time};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The file that names the host.
const RECORD: &str = "host.json";
/// The prefix of the names of scratch directories.
const PREFIX: &str = "claude-";
/// The age at which a directory without a record belongs to a host that was killed while it made the directory.
const MAKING: Duration = Duration::from_secs(60);
/// The most bytes of sources that are copied for the CLI's own tools.
const MAX_COPIED_BYTES: u64 = 256 << 20;

/// A host, which is not mistaken for a later process with the same id.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The boot in which the other fields are valid.
    boot: String,
    pid: u32,
    /// The time at which the host started, in the system's clock ticks since boot.
    started: u64,
}

/// A session's scratch directory, which is removed when it is dropped.
pub(super) struct Scratch(TempDir);

impl Scratch {
    /// Makes the directory, with the system prompt in it. It blocks.
    pub(super) fn new(state: Option<&Path>, system_prompt: &str) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(fs::Permissions::from_mode(0o700));
        let scratch = Self(match state {
            Some(state) => builder.tempdir_in(state)?,
            None => builder.tempdir()?,
        });
        if state.is_some() {
            let pid = std::process::id();
            let started = start_time(pid).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
            // The rename makes the record appear whole or not at all.
            let new = scratch.0.path().join("host.new");
            fs::write(&new, serde_json::to_vec(&Record { boot: boot()?, pid, started })?)?;
            fs::rename(new, scratch.0.path().join(RECORD))?;
        }
        fs::create_dir(scratch.work())?;
        fs::create_dir(scratch.tmp())?;
        fs::write(scratch.system_prompt(), system_prompt)?;
        Ok(scratch)
    }

    pub(super) fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.0.path().join("tmp")
    }

    pub(super) fn system_prompt(&self) -> PathBuf {
        self.0.path().join("system-prompt.md")
    }

    /// Copies the granted sources into the working directory, under their paths in sessions, for the CLI's own tools,
    /// which must see no other files. It blocks.
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

/// Names this boot of the machine.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Removes the scratch directories of killed hosts, and returns their number.
pub(super) fn sweep(state: &Path) -> usize {
    let (Ok(entries), Ok(boot)) = (fs::read_dir(state), boot()) else { return 0 };
    let mut removed = 0;
    for dir in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = dir.path();
        let record = fs::read(path.join(RECORD)).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let is_used = match record {
            Some(record) => record.boot == boot && start_time(record.pid) == Some(record.started),
            None => is_being_made(&path),
        };
        if is_used {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => removed += 1,
            Err(error) => tracing::warn!(path = %path.display(), %error, "a scratch directory cannot be removed"),
        }
    }
    removed
}

fn is_being_made(path: &Path) -> bool {
    let made = fs::symlink_metadata(path).and_then(|found| found.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < MAKING))
}
