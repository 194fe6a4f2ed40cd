//! The worktree of an attempt, as its tools read and change it.
//!
//! Each directory on the way to a file is opened by its own name, without following a symlink, and a file is replaced in the
//! directory that is open then: whatever is swapped in meanwhile leads nowhere else. A new file is made outside of the worktree
//! and moved there as a whole, so that nobody commits half of it.
//!
//! Each change is noted in the job's [`WRITES`] before it is made. So a call that comes again after a restart has its effect
//! once, and what was written before the restart still counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    sync::{Arc, Mutex},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_contract::{Limits, text::hex};
use guild_jobs::{
    Names, RunningJob,
    durable::{
        ANYBODY, Survives, append, if_there, open_dir, open_directory, open_or_make_dir, read_whole, replace_from,
        sync_dir,
    },
    tree::walk,
};
use guild_session::tools::{ToolCall, ToolError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    error::HallError,
    home::Home,
    project::lock,
    tools::protected::{LORE, protected},
    workers::Attempt,
};

/// What the tools wrote, in the job's directory: a [`Change`] on each line. A line begins with its newline, so that one which
/// was cut spoils no other.
const WRITES: &str = "writes.jsonl";
/// Bytes of [`WRITES`].
const MAX_WRITES_BYTES: u64 = 16 << 20;
/// Names in a path.
const MAX_DEPTH: usize = 32;
/// Bytes of a path. Git opens files by their paths, and the system takes 4,095 bytes.
const MAX_PATH_BYTES: usize = 1024;
/// What is looked at for one list.
const MAX_WALKED: usize = 20_000;

/// The files of an attempt's worktree. Its methods block on the file system.
pub struct Worktree {
    job: Arc<RunningJob>,
    top: Dir,
    /// Where new files are made.
    new: Dir,
    /// What one is called there. An attempt makes one at a time.
    temporary: String,
    /// Files that git keeps as symbolic links.
    links: BTreeSet<String>,
    limits: Arc<Limits>,
    written: Mutex<Written>,
}

/// A file that was written, or was about to be.
#[derive(Debug, Serialize, Deserialize)]
struct Change {
    /// The key of the call that wrote it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    /// From the top of the worktree.
    path: String,
    bytes: u64,
    sha256: String,
    /// Directories that were made for it.
    #[serde(default)]
    made: u64,
}

/// What the attempt's tools wrote so far.
#[derive(Debug, Default)]
struct Written {
    /// The calls whose effect is there.
    calls: BTreeSet<String>,
    /// The files, each with its last size.
    files: BTreeMap<String, u64>,
    /// Directories that were made.
    directories: u64,
    /// The size of [`WRITES`].
    noted: u64,
}

impl Written {
    fn add(&mut self, change: Change) {
        self.files.insert(change.path, change.bytes);
        self.directories += change.made;
        self.calls.extend(change.call);
    }
}

impl Worktree {
    /// The worktree of an attempt whose job runs, with what [`guild_git::Repository::links`] says of it. It blocks.
    ///
    /// # Errors
    /// Where the worktree, the home or the job's directory cannot be read.
    pub fn open(
        home: &Home,
        (attempt, links): (&Attempt, Vec<String>),
        job: Arc<RunningJob>,
        limits: Arc<Limits>,
    ) -> Result<Self, HallError> {
        let doing = || format!("the worktree of {} cannot be opened", attempt.commission);
        let top = open_directory(&attempt.worktree).and_then(|top| open_dir(&top, "."));
        let worktree = Self {
            job,
            top: top.map_err(HallError::io(doing()))?,
            new: home.new_files()?,
            temporary: format!("{}.tool", attempt.commission),
            links: links.into_iter().collect(),
            limits,
            written: Mutex::default(),
        };
        *lock(&worktree.written) = worktree.noted().map_err(HallError::io(doing()))?;
        Ok(worktree)
    }

    /// What was written before a restart.
    fn noted(&self) -> io::Result<Written> {
        let dir = self.job.dir()?;
        let Some((bytes, _)) = read_whole(&dir, WRITES, MAX_WRITES_BYTES)? else { return Ok(Written::default()) };
        let lines = bytes.split(|byte| *byte == b'\n');
        // A line that was cut is of a change that was not made.
        let changes: Vec<Change> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let mut written = Written { noted: bytes.len() as u64, ..Written::default() };
        let last: BTreeMap<String, usize> =
            changes.iter().enumerate().map(|(n, change)| (change.path.clone(), n)).collect();
        for (n, mut change) in changes.into_iter().enumerate() {
            // One change is made after the other, so only the last of a file may be missing.
            if last.get(&change.path) == Some(&n) && !self.is_made(&change) {
                change.call = None;
            }
            written.add(change);
        }
        Ok(written)
    }

    fn is_made(&self, change: &Change) -> bool {
        let names = Names::within(&change.path, MAX_DEPTH);
        let found = names.ok().and_then(|names| self.read(&names, change.bytes).ok().flatten());
        found.is_some_and(|bytes| sha256(&bytes) == change.sha256)
    }

    /// All of a file; `None` if there is none.
    ///
    /// # Errors
    /// Where it is longer than `max` bytes, no regular file, or behind a symlink.
    pub(super) fn read(&self, path: &Names<'_>, max: u64) -> Result<Option<Vec<u8>>, ToolError> {
        let [parents @ .., name] = path.as_slice() else { return Ok(None) };
        let read = self.directory(parents).and_then(|dir| match dir {
            Some(dir) => Ok(read_whole(&dir, name, max)?.map(|(bytes, _)| bytes)),
            None => Ok(None),
        });
        read.map_err(|e| match e.kind() {
            io::ErrorKind::FileTooLarge => {
                ToolError::OverLimit(format!("{:?} has more than the {max} bytes that are read at once", text(path)))
            }
            _ => failed(path, "read", &e),
        })
    }

    /// Whether there is a regular file of that path, not behind a symlink.
    pub(super) fn is_file(&self, path: &Names<'_>) -> bool {
        let [parents @ .., name] = path.as_slice() else { return false };
        let dir = self.directory(parents).ok().flatten();
        dir.is_some_and(|dir| dir.symlink_metadata(name).is_ok_and(|about| about.is_file()))
    }

    /// The paths of all files below a directory, from there, in order; `None` if there is no such directory.
    ///
    /// # Errors
    /// Where there are too many, or the directory is behind a symlink.
    pub(super) fn list(&self, path: &Names<'_>) -> Result<Option<Vec<String>>, ToolError> {
        let Some(dir) = self.directory(path.as_slice()).map_err(|e| failed(path, "listed", &e))? else {
            return Ok(None);
        };
        let mut files = Vec::new();
        for (n, found) in walk(&dir).enumerate() {
            if n == MAX_WALKED {
                return Err(ToolError::OverLimit(format!(
                    "{:?} has more than {MAX_WALKED} files and directories: name a directory in it",
                    text(path)
                )));
            }
            // What cannot be read, or has a name that cannot be said, is left out.
            let Ok(found) = found else { continue };
            let name = found.path.to_str().filter(|_| found.kind.is_file());
            files.extend(name.filter(|name| !name.contains(char::is_control)).map(str::to_owned));
        }
        files.sort_unstable();
        Ok(Some(files))
    }

    /// Writes what `contents` answers into a file, and makes the directories that its path needs. Nothing else is written
    /// meanwhile. It is not asked where the call of this [`key`] had its effect before.
    ///
    /// # Errors
    /// Those of `contents`; where sessions do not write such a file, the quota is used up, or the job has ended.
    pub(super) fn write(
        &self,
        path: &Names<'_>,
        call: Option<&str>,
        contents: impl FnOnce() -> Result<Vec<u8>, ToolError>,
    ) -> Result<(), ToolError> {
        let link = "it is a symbolic link of the project, which is checked out as a file with its target";
        let link = self.links.contains(&text(path)).then_some(link);
        if let Some(why) = protected(path.as_slice()).or(link) {
            return Err(ToolError::InvalidInput(format!("{:?} is not written by sessions: {why}", text(path))));
        }
        self.job.while_running(|| {
            let mut written = lock(&self.written);
            if call.is_some_and(|call| written.calls.contains(call)) {
                return Ok(());
            }
            self.put(&mut written, path, &contents()?, call)
        })
    }

    fn put(&self, written: &mut Written, path: &Names<'_>, bytes: &[u8], call: Option<&str>) -> Result<(), ToolError> {
        let failed = |e: io::Error| failed(path, "written", &e);
        let [parents @ .., name] = path.as_slice() else { return Ok(()) };
        let (mut dir, mut there) = (open_dir(&self.top, ".").map_err(failed)?, 0);
        while let Some(parent) = parents.get(there) {
            let Some(inner) = if_there(open_dir(&dir, parent)).map_err(failed)? else { break };
            (dir, there) = (inner, there + 1);
        }
        let old = if there == parents.len() { if_there(dir.symlink_metadata(name)).map_err(failed)? } else { None };
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Err(ToolError::InvalidInput(format!("{:?} is a directory or a link, and no file", text(path))));
        }
        let executable = old.is_some_and(|old| old.mode() & 0o111 != 0);
        let mode = if executable { ANYBODY | 0o111 } else { ANYBODY };

        let made = (parents.len() - there) as u64;
        let change = Change {
            call: call.map(str::to_owned),
            path: text(path),
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            made,
        };
        self.within_quota(written, &change)?;
        self.note(written, &change)?;
        for parent in parents.iter().skip(there) {
            dir = open_or_make_dir(&dir, parent).map_err(failed)?;
        }
        replace_from(&self.new, &self.temporary, (&dir, name.as_ref()), bytes, (mode, Survives::PowerCut))
            .and_then(|_| sync_dir(&dir))
            .map_err(failed)?;
        written.add(change);
        Ok(())
    }

    fn within_quota(&self, written: &Written, change: &Change) -> Result<(), ToolError> {
        let known = written.files.get(&change.path);
        let others = written.files.values().sum::<u64>() - known.unwrap_or(&0);
        let entries = written.files.len() as u64 + written.directories + change.made + u64::from(known.is_none());
        let Limits { worktree_bytes, worktree_entries, .. } = &*self.limits;
        let full = |limit: &str, max: u64| {
            Err(ToolError::OverLimit(format!("what this attempt wrote would be more than limits.{limit} = {max}")))
        };
        if others.saturating_add(change.bytes) > *worktree_bytes {
            return full("worktree_bytes", *worktree_bytes);
        }
        if entries > *worktree_entries {
            return full("worktree_entries", *worktree_entries);
        }
        Ok(())
    }

    fn note(&self, written: &mut Written, change: &Change) -> Result<(), ToolError> {
        let not_noted = |e: io::Error| ToolError::Unavailable(format!("{WRITES} cannot be written: {}", e.kind()));
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, change).map_err(|e| not_noted(e.into()))?;
        let noted = written.noted + line.len() as u64;
        if noted > MAX_WRITES_BYTES {
            return Err(ToolError::OverLimit("this attempt wrote too often; end your work now".to_owned()));
        }
        let appended = self.job.dir().and_then(|dir| append(&dir, WRITES)?.write_all(&line));
        appended.map_err(not_noted)?;
        written.noted = noted;
        Ok(())
    }

    fn directory(&self, names: &[&str]) -> io::Result<Option<Dir>> {
        directory(&self.top, names)
    }
}

/// A directory below another one, on the way to which there is no symlink; `None` if there is none of that path.
pub(crate) fn directory(top: &Dir, names: &[&str]) -> io::Result<Option<Dir>> {
    let mut dir = open_dir(top, ".")?;
    for name in names {
        let Some(inner) = if_there(open_dir(&dir, name))? else { return Ok(None) };
        dir = inner;
    }
    Ok(Some(dir))
}

/// What names a call and what it asks for: a session that is resumed may ask for something else by the same id.
pub(super) fn key(call: &ToolCall) -> String {
    format!("{} {}", call.id, sha256(format!("{} {}", call.name, call.input).as_bytes()))
}

/// The names of a path from the top of a worktree.
///
/// # Errors
/// If the path is invalid; the error says what a valid one is.
pub(crate) fn names(path: &str) -> Result<Names<'_>, ToolError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(ToolError::InvalidInput(format!("a path has at most {MAX_PATH_BYTES} bytes")));
    }
    Names::within(path, MAX_DEPTH)
}

/// The path from the top of a worktree of what a session calls so in `.lore/`. It may say `.lore/` itself.
pub(crate) fn in_lore(path: &str) -> String {
    let path = path.strip_prefix(LORE).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path);
    format!("{LORE}/{path}")
}

/// A path as sessions write it.
pub(crate) fn text(path: &Names<'_>) -> String {
    path.as_slice().join("/")
}

/// The error for a path of a session. It has the error's kind only: its text could name a path of the host.
fn failed(path: &Names<'_>, done: &str, error: &io::Error) -> ToolError {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let of_host = matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull);
    let hint = if of_host { "" } else { ": on the way to it there may only be directories, and no symbolic links" };
    ToolError::Unavailable(format!("{:?} cannot be {done}, {}{hint}", text(path), error.kind()))
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
