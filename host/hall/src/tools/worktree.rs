//! Reads and changes the worktree of an attempt on behalf of its tools.
//!
//! Each change is recorded in the job's [`WRITES`] before it is made. So a call that is repeated after a restart takes
//! effect once, and files written before the restart still count.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use guild_contract::{Limits, OperationError, text::hex};
use guild_fs::durable::{append, read_whole};
use guild_git::{IgnoreRule, RULES_BYTES, Repository, RulesUsage, check_rules, is_rules_file};
use guild_jobs::{Names, RunningJob};
use guild_session::tools::{ToolCall, ToolError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::{
    blocking::lock,
    core::workers::Attempt,
    files::{
        FileList, Files, MAX_DEPTH, is_of_host,
        protected::{LORE, protected},
        text,
    },
    home::{Home, project_list::quota},
};

/// The log of the tools' writes, in the job's directory: a [`Change`] on each line. A line begins with its newline, so
/// that a truncated line does not damage the next one.
const WRITES: &str = "writes.jsonl";
/// The file whose rules exclude other files from commits.
const IGNORE_FILE: &str = ".gitignore";
/// The most bytes of [`WRITES`].
const MAX_WRITES_BYTES: u64 = 16 << 20;

/// The files of an attempt's worktree. Its methods block on the file system.
pub struct Worktree {
    job: Arc<RunningJob>,
    repository: Repository,
    dir: PathBuf,
    files: Files,
    /// The name of a new file until it is complete. An attempt creates one file at a time.
    temporary: String,
    /// The files that git stores as symbolic links.
    links: BTreeSet<String>,
    limits: Arc<Limits>,
    written: Mutex<Written>,
    /// The runtime on which git runs.
    runtime: Handle,
}

/// A file that was written or was about to be written.
#[derive(Debug, Serialize, Deserialize)]
struct Change {
    /// The key of the call that wrote it, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    /// The path from the top of the worktree.
    path: String,
    bytes: u64,
    sha256: String,
    /// The number of directories created for the file.
    #[serde(default)]
    made: u64,
}

/// The writes of the attempt's tools so far.
#[derive(Debug, Default)]
struct Written {
    /// The calls that took effect.
    calls: BTreeSet<String>,
    /// The files, each with its last size.
    files: BTreeMap<String, u64>,
    /// The number of created directories.
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
    /// Opens the worktree of an attempt whose job runs; `links` come from [`Repository::links`]. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the worktree, the home or the job's directory cannot be read.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    pub fn open(
        home: &Home,
        repository: Repository,
        attempt: &Attempt,
        links: Vec<String>,
        job: Arc<RunningJob>,
        limits: Arc<Limits>,
    ) -> Result<Self, OperationError> {
        let doing = || format!("the worktree of {} cannot be opened", attempt.activity);
        let worktree = Self {
            job,
            repository,
            dir: attempt.worktree.clone(),
            files: Files::open(home, &attempt.worktree).map_err(OperationError::io(doing()))?,
            temporary: format!("{}.tool", attempt.activity),
            links: links.into_iter().collect(),
            limits,
            written: Mutex::default(),
            runtime: Handle::current(),
        };
        *lock(&worktree.written) = worktree.noted().map_err(OperationError::io(doing()))?;
        Ok(worktree)
    }

    /// The writes before a restart.
    fn noted(&self) -> io::Result<Written> {
        let dir = self.job.dir()?;
        let Some((bytes, _)) = read_whole(&dir, WRITES, MAX_WRITES_BYTES)? else { return Ok(Written::default()) };
        let lines = bytes.split(|byte| *byte == b'\n');
        // A truncated line belongs to a change that was not made.
        let changes: Vec<Change> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let mut written = Written { noted: bytes.len() as u64, ..Written::default() };
        let last: BTreeMap<String, usize> =
            changes.iter().enumerate().map(|(n, change)| (change.path.clone(), n)).collect();
        for (n, mut change) in changes.into_iter().enumerate() {
            // Changes are made one after another, so only the last change of a file may be missing.
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

    /// The whole content of a file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error when the file is longer than `max` bytes, is not a regular file, or is behind a symlink.
    pub(super) fn read(&self, path: &Names<'_>, max: u64) -> Result<Option<Vec<u8>>, ToolError> {
        let read = self.files.read(path, max).map(|read| read.map(|(bytes, _)| bytes));
        read.map_err(|e| match e.kind() {
            io::ErrorKind::FileTooLarge => {
                ToolError::OverLimit(format!("{:?} has more than {max} bytes, the limit for reading", text(path)))
            }
            _ => failed(path, "read", &e),
        })
    }

    /// Whether there is a regular file at that path that is not behind a symlink.
    pub(super) fn is_file(&self, path: &Names<'_>) -> bool {
        self.files.state(path).is_ok_and(|state| state.is_some())
    }

    /// The files below a directory; `None` if there is no such directory.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory is behind a symlink.
    pub(super) fn list(&self, path: &Names<'_>) -> Result<Option<FileList>, ToolError> {
        self.files.list(path).map_err(|e| failed(path, "listed", &e))
    }

    /// Writes the result of `contents` into a file, and creates the missing directories. No other write happens in the
    /// meantime. `contents` is not called if the call with this [`key`] took effect before.
    ///
    /// # Errors
    ///
    /// Returns the errors of `contents`, and an error when sessions must not write such a file, git would leave it out
    /// of the attempt's commit, the quota is used up, or the job has ended.
    pub(super) fn write(
        &self,
        path: &Names<'_>,
        call: Option<&str>,
        contents: impl FnOnce() -> Result<Vec<u8>, ToolError>,
    ) -> Result<(), ToolError> {
        let link = "it is a symbolic link of the project, which is checked out as a file with its target";
        let link = self.links.contains(&text(path)).then_some(link);
        if let Some(why) = protected(path.as_slice()).or(link) {
            return Err(ToolError::InvalidInput(format!("{:?} cannot be written by sessions: {why}", text(path))));
        }
        let mut written = lock(&self.written);
        if call.is_some_and(|call| written.calls.contains(call)) {
            return self.job.while_running(|| Ok(()));
        }
        self.check_committed(path, &[])?;
        if path.as_slice().last() != Some(&IGNORE_FILE) {
            return self.job.while_running(|| self.put_new(&mut written, path, &contents()?, call));
        }
        // The new rules also apply to files that were written before.
        let before = self.read(path, RULES_BYTES as u64)?;
        self.job.while_running(|| self.put_new(&mut written, path, &contents()?, call))?;
        let earlier: Vec<&str> = written.files.keys().map(String::as_str).collect();
        let Err(refused) = self.check_committed(path, &earlier) else { return Ok(()) };
        if let Some(call) = call {
            written.calls.remove(call);
        }
        self.job.while_running(|| match before {
            Some(before) => self.put(&mut written, path, &before, None),
            None => self.files.remove(path).map_err(|e| failed(path, "removed", &e)),
        })?;
        Err(refused)
    }

    /// Refuses files that git would leave out of the attempt's commit, since they would be lost. Documents are always
    /// committed.
    fn check_committed(&self, path: &Names<'_>, others: &[&str]) -> Result<(), ToolError> {
        let path = text(path);
        let asked: Vec<&str> =
            others.iter().copied().chain([path.as_str()]).filter(|path| !in_documents(path)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        // The write has its blocking thread and the lock of the worktree's writes until git has answered.
        let ignored = self.runtime.block_on(self.repository.ignored(&self.dir, &asked)).map_err(|e| {
            // The full error could contain a path of the host.
            tracing::warn!(dir = %self.dir.display(), "{path:?} cannot be written: {e}");
            ToolError::Unavailable(format!("git cannot determine whether {path:?} would be committed: {}", e.kind()))
        })?;
        let Some(IgnoreRule { path: left_out, pattern, source, line }) = ignored.into_iter().next() else {
            return Ok(());
        };
        // The source of a repository's own rule is a path of the host.
        let source = match (source.starts_with('/'), source.rsplit_once("/.git/")) {
            (false, _) => source.as_str(),
            (true, Some((_, inner))) => inner,
            (true, None) => "the file that core.excludesFile names",
        };
        let rule = format!("the project ignores it by the rule {pattern:?}, line {line} of {source}");
        Err(ToolError::InvalidInput(match left_out == path {
            true => format!(
                "{path:?} cannot be written: {rule}, so it would not be committed; write another file, or change the \
                 rule"
            ),
            false => format!(
                "{path:?} cannot be written: {left_out:?}, which you wrote, would not be committed, since {rule}; \
                 narrow the rule"
            ),
        }))
    }

    /// Writes a session's contents like [`Self::put`]: an ignore or attribute file has to be within its bounds.
    fn put_new(
        &self,
        written: &mut Written,
        path: &Names<'_>,
        bytes: &[u8],
        call: Option<&str>,
    ) -> Result<(), ToolError> {
        if path.as_slice().last().is_some_and(|name| is_rules_file(name)) {
            self.check_rules(written, &text(path), bytes)?;
        }
        self.put(written, path, bytes, call)
    }

    /// Refuses an ignore or attribute file that exceeds the bounds, or would together with the others that the attempt
    /// wrote: each git run reads and matches all of them.
    fn check_rules(&self, written: &Written, path: &str, bytes: &[u8]) -> Result<(), ToolError> {
        check_rules(bytes).map_err(|why| ToolError::OverLimit(format!("{path:?} {why}")))?;
        let mut together = RulesUsage::default();
        together.add(bytes);
        let is_rules = |file: &str| file.rsplit('/').next().is_some_and(is_rules_file);
        for other in written.files.keys().filter(|file| *file != path && is_rules(file)) {
            // A file that was refused afterwards is removed or restored.
            let contents = self.read(&Names::within(other, MAX_DEPTH)?, RULES_BYTES as u64)?;
            together.add(&contents.unwrap_or_default());
        }
        together.check().map_err(|why| {
            let all = "the ignore and attribute files that this attempt wrote would";
            ToolError::OverLimit(format!("{path:?} cannot be written: {all} {why}"))
        })
    }

    fn put(&self, written: &mut Written, path: &Names<'_>, bytes: &[u8], call: Option<&str>) -> Result<(), ToolError> {
        let failed = |e: io::Error| failed(path, "written", &e);
        let place = self.files.place(path).map_err(|e| match e.kind() {
            io::ErrorKind::IsADirectory => {
                ToolError::InvalidInput(format!("{:?} is a directory or a link, not a file", text(path)))
            }
            _ => failed(e),
        })?;
        let change = Change {
            call: call.map(str::to_owned),
            path: text(path),
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            made: place.missing() as u64,
        };
        if in_documents(&change.path) {
            let checked = self.files.check_documents(path, bytes.len(), quota(&self.limits)).map_err(failed)?;
            checked.map_err(ToolError::OverLimit)?;
        }
        self.within_quota(written, &change)?;
        self.note(written, &change)?;
        self.files.put(place, &self.temporary, bytes).map_err(failed)?;
        written.add(change);
        Ok(())
    }

    fn within_quota(&self, written: &Written, change: &Change) -> Result<(), ToolError> {
        let known = written.files.get(&change.path);
        let others = written.files.values().sum::<u64>() - known.unwrap_or(&0);
        let entries = written.files.len() as u64 + written.directories + change.made + u64::from(known.is_none());
        let Limits { worktree_bytes, worktree_entries, .. } = &*self.limits;
        let full = |limit: &str, max: u64| {
            let limit = Limits::cited(limit);
            Err(ToolError::OverLimit(format!("the files of this attempt would exceed {limit} = {max}")))
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
            return Err(ToolError::OverLimit("this attempt has made too many writes; end your work now".to_owned()));
        }
        let appended = self.job.dir().and_then(|dir| append(&dir, WRITES)?.write_all(&line));
        appended.map_err(not_noted)?;
        written.noted = noted;
        Ok(())
    }
}

/// Whether a path from the top of a worktree is that of a document.
fn in_documents(path: &str) -> bool {
    path.strip_prefix(LORE).is_some_and(|path| path.starts_with('/'))
}

/// The key of a call and its input: a resumed session may make another request with the same id.
pub(crate) fn key(call: &ToolCall) -> String {
    format!("{} {}", call.id, sha256(format!("{} {}", call.name, call.input).as_bytes()))
}

/// The error for a path of a session. It contains only the error's kind, since its text could name a path of the host.
fn failed(path: &Names<'_>, done: &str, error: &io::Error) -> ToolError {
    let hint =
        if is_of_host(error.kind()) { "" } else { ": its path may only contain directories, and no symbolic links" };
    ToolError::Unavailable(format!("{:?} cannot be {done}, {}{hint}", text(path), error.kind()))
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
