//! Walks the files of a root that are visible to sessions: not hidden, not excluded by a `.gitignore`, no symlinks, no
//! devices.
//!
//! A `.gitignore` is a document like any other, and becomes automata that are many times as large. So the bytes and
//! patterns of each file are bounded, and of all files on the way to a directory together. The rules of a file beyond
//! the bounds are unknown, so everything below its directory is hidden, and an error or a line of the log names the
//! file.

use std::{
    collections::BTreeSet,
    io::Read,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use cap_std::fs::{Dir, DirEntry, FileType, Metadata, MetadataExt as _};
use guild_session::{
    files::{FileEntry, Reason, Unread},
    glob::MAX_GLOB_BYTES,
    tools::ToolError,
};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use tokio_util::sync::CancellationToken;

use super::{Root, hidden, unreadable};

/// Directories nested deeper than this are not walked.
const MAX_DEPTH: usize = 64;
/// The most files that one walk visits.
const MAX_FILES: usize = 500_000;
/// The most bytes of one `.gitignore`. Usual ones have some thousands.
const MAX_IGNORE_BYTES: usize = 64 << 10;
/// The most patterns of one `.gitignore`.
const MAX_IGNORE_PATTERNS: usize = 2000;
/// All `.gitignore` files from the root to a directory may together have this multiple of the bounds of one.
const ON_THE_WAY: usize = 4;
/// The number of `.gitignore` beyond the bounds that are remembered, so that the log names each of them once.
const MAX_REMEMBERED: usize = 64;

/// The `.gitignore` beyond the bounds that were found so far.
#[derive(Clone, Default)]
pub(super) struct BeyondBounds(Arc<Mutex<BTreeSet<String>>>);

impl BeyondBounds {
    /// Adds the description of such a file, and logs it if it is new.
    pub(super) fn add(&self, why: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_REMEMBERED && !known.contains(&why) {
            tracing::warn!("the files below a directory of a read root are hidden: {why}");
            known.insert(why);
        }
    }

    /// The descriptions so far.
    pub(super) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// The `.gitignore` files on the way from a root to the current directory, outermost first.
#[derive(Default)]
pub(super) struct Rules(Vec<Ignore>);

/// The rules of one `.gitignore`.
struct Ignore {
    /// The path of the file's directory in the root.
    at: String,
    rules: Gitignore,
    bytes: usize,
    patterns: usize,
}

impl Rules {
    /// Whether a path is hidden by its names or lies behind a symlink; no ignore file is read.
    pub(super) fn is_hidden(root: &Root, inner: &str) -> bool {
        let mut path = String::new();
        inner.split('/').filter(|part| !part.is_empty()).any(|part| {
            join(&mut path, part);
            part.starts_with('.') || root.dir.symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink())
        })
    }

    /// The rules for the directory that holds `inner`, a path in a root. If the path is hidden from sessions, the error
    /// names it as the session did, by `path`. The walk applies the same rules to all files.
    pub(super) fn on_the_way(root: &Root, inner: &str, path: &str, is_dir: bool) -> Result<Self, ToolError> {
        let mut rules = Self::default();
        let mut at = String::new();
        let mut parts = inner.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let beyond = |why| ToolError::OverLimit(format!("{path:?} is not read: {why}"));
            if root.has_rules {
                rules.enter(&root.name, &root.dir, &at, &at).map_err(beyond)?;
            }
            join(&mut at, part);
            let is_dir = is_dir || parts.peek().is_some();
            let is_link = root.dir.symlink_metadata(&at).is_ok_and(|meta| meta.is_symlink());
            if part.starts_with('.') || is_link || rules.ignores(&at, is_dir) {
                return Err(hidden(path));
            }
        }
        Ok(rules)
    }

    /// Adds the `.gitignore` of a directory, and returns whether it has one. `at` is its path in the root, `from` its
    /// path in `dir`.
    ///
    /// # Errors
    ///
    /// Describes a file beyond the bounds.
    fn enter(&mut self, root: &str, dir: &Dir, from: &str, at: &str) -> Result<bool, String> {
        let file = if from.is_empty() { ".gitignore".to_owned() } else { format!("{from}/.gitignore") };
        if !dir.symlink_metadata(&file).is_ok_and(|meta| meta.is_file()) {
            return Ok(false);
        }
        let mut path = root.to_owned();
        join(&mut path, at);
        join(&mut path, ".gitignore");
        let beyond = |what: String| Err(format!("{path:?} {what}; make it smaller, or remove it"));
        let read = || {
            let mut bytes = Vec::new();
            dir.open(&file)?.take(MAX_IGNORE_BYTES as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
        };
        let bytes = match read() {
            Ok(bytes) => bytes,
            Err(error) => return beyond(format!("cannot be read ({})", error.kind())),
        };
        if bytes.len() > MAX_IGNORE_BYTES {
            return beyond(format!("has more than {MAX_IGNORE_BYTES} bytes"));
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
        if lines.len() > MAX_IGNORE_PATTERNS {
            return beyond(format!("has more than {MAX_IGNORE_PATTERNS} patterns"));
        }
        if lines.iter().any(|line| line.len() > MAX_GLOB_BYTES) {
            return beyond(format!("has a pattern of more than {MAX_GLOB_BYTES} bytes"));
        }
        let sum = |of: fn(&Ignore) -> usize| self.0.iter().map(of).sum::<usize>();
        let (bytes, patterns) = (bytes.len(), lines.len());
        let (all_bytes, all_patterns) = (ON_THE_WAY * MAX_IGNORE_BYTES, ON_THE_WAY * MAX_IGNORE_PATTERNS);
        if sum(|other| other.bytes) + bytes > all_bytes || sum(|other| other.patterns) + patterns > all_patterns {
            return beyond(format!(
                "and those of the directories that it is in have more than {all_bytes} bytes or {all_patterns} patterns"
            ));
        }
        // One line that nests too deep makes all lines fail, so the other lines are compiled without it.
        let sound = || -> Vec<&str> { lines.iter().copied().filter(|line| compile(&[line]).is_ok()).collect() };
        let Ok(rules) = compile(&lines).or_else(|_| compile(&sound())) else {
            return beyond("is too complex".to_owned());
        };
        self.0.push(Ignore { at: at.to_owned(), rules, bytes, patterns });
        Ok(true)
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn ignores(&self, path: &str, is_dir: bool) -> bool {
        for Ignore { at, rules, .. } in self.0.iter().rev() {
            let relative = path.strip_prefix(at.as_str()).map_or(path, |rest| rest.trim_start_matches('/'));
            match rules.matched(relative, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

fn compile(lines: &[&str]) -> Result<Gitignore, ignore::Error> {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        // A line that is not a valid pattern is ignored, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build()
}

/// Appends a name to a path in a root.
fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(name);
}

/// A file of a walk, and the directory in which it can be opened.
pub(super) struct VisibleFile<'a> {
    pub(super) entry: FileEntry,
    pub(super) dir: &'a Dir,
    pub(super) name: &'a str,
}

/// Handles each file of a walk. An error or a break ends the walk.
type Each<'a> = dyn FnMut(VisibleFile<'_>) -> Result<ControlFlow<()>, ToolError> + 'a;

/// A walk over directories, in the order of the paths of all files; symlinks are not followed.
pub(super) struct Walk<'a> {
    cancel: &'a CancellationToken,
    each: &'a mut Each<'a>,
    beyond: &'a BeyondBounds,
    rules: Rules,
    /// Whether the current root has rules.
    has_rules: bool,
    seen: usize,
    unread: Unread,
}

impl<'a> Walk<'a> {
    pub(super) fn new(cancel: &'a CancellationToken, beyond: &'a BeyondBounds, each: &'a mut Each<'a>) -> Self {
        Self { cancel, each, beyond, rules: Rules::default(), has_rules: true, seen: 0, unread: Unread::default() }
    }

    /// Counts the files that the walk left out, without hidden and ignored ones.
    pub(super) fn unread(self) -> Unread {
        self.unread
    }

    /// Walks a root.
    pub(super) fn root(&mut self, root: &Root) -> Result<ControlFlow<()>, ToolError> {
        (self.rules, self.has_rules) = (Rules::default(), root.has_rules);
        self.directory(&root.name, &root.dir, "", 0)
    }

    /// Walks the file or the directory at a path in a root.
    pub(super) fn at(&mut self, root: &Root, inner: &str, path: &str) -> Result<ControlFlow<()>, ToolError> {
        let failed = |error| unreadable(path, &error);
        let meta = if inner.is_empty() { root.dir.dir_metadata() } else { root.dir.metadata(inner) };
        let meta = meta.map_err(failed)?;
        self.rules = Rules::on_the_way(root, inner, path, meta.is_dir())?;
        self.has_rules = root.has_rules;
        if inner.is_empty() {
            self.directory(&root.name, &root.dir, "", 0)
        } else if meta.is_dir() {
            self.directory(&root.name, &root.dir.open_dir(inner).map_err(failed)?, inner, 0)
        } else if meta.is_file() {
            let entry = file_entry(format!("{}/{inner}", root.name), &meta);
            (self.each)(VisibleFile { entry, dir: &root.dir, name: inner })
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    /// Reports a directory that cannot be read, to the operator and to the caller.
    fn denied(&mut self, path: &str) {
        self.unread.add(Reason::Denied, path);
        self.beyond.add(format!("{path:?} cannot be read; check its permissions"));
    }

    fn directory(&mut self, root: &str, dir: &Dir, at: &str, depth: usize) -> Result<ControlFlow<()>, ToolError> {
        let path_of = |name: &str| {
            let mut path = root.to_owned();
            [at, name].into_iter().filter(|part| !part.is_empty()).for_each(|part| join(&mut path, part));
            path
        };
        let Ok(entries) = dir.entries() else {
            self.denied(&path_of(""));
            return Ok(ControlFlow::Continue(()));
        };
        let mut named: Vec<(String, FileType, DirEntry)> = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else {
                self.denied(&path_of(""));
                break;
            };
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            match name.into_string() {
                Ok(name) if name.starts_with('.') => {}
                Ok(name) => named.push((name, kind, entry)),
                Err(name) => self.unread.add(Reason::Name, &path_of(&name.to_string_lossy())),
            }
        }
        // The paths of a directory's files begin with its name and a `/`, so this order sorts all paths.
        let key = |name: &str, kind: &FileType| format!("{name}{}", if kind.is_dir() { "/" } else { "" });
        named.sort_by_cached_key(|(name, kind, _)| key(name, kind));
        let entered = if self.has_rules { self.rules.enter(root, dir, "", at) } else { Ok(false) };
        let has_rules = match entered {
            Ok(has_rules) => has_rules,
            Err(why) => {
                self.unread.add(Reason::Ignore, &path_of(""));
                self.beyond.add(why);
                return Ok(ControlFlow::Continue(()));
            }
        };
        for (name, kind, entry) in named {
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            let mut path = at.to_owned();
            join(&mut path, &name);
            if self.rules.ignores(&path, kind.is_dir()) {
                continue;
            }
            if !kind.is_dir() && !kind.is_file() {
                let reason = if kind.is_symlink() { Reason::Link } else { Reason::Special };
                self.unread.add(reason, &path_of(&name));
                continue;
            }
            let flow = if kind.is_dir() {
                match entry.open_dir() {
                    Ok(inner) if depth < MAX_DEPTH => self.directory(root, &inner, &path, depth + 1)?,
                    Ok(_) => {
                        self.unread.add(Reason::Deep, &path_of(&name));
                        continue;
                    }
                    Err(_) => {
                        self.denied(&path_of(&name));
                        continue;
                    }
                }
            } else {
                self.file(format!("{root}/{path}"), dir, &name, &entry)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        if has_rules {
            self.rules.leave();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn file(&mut self, path: String, dir: &Dir, name: &str, entry: &DirEntry) -> Result<ControlFlow<()>, ToolError> {
        if self.seen >= MAX_FILES {
            return Err(ToolError::OverLimit(format!(
                "there are more than {MAX_FILES} files: name a directory in the read roots"
            )));
        }
        self.seen += 1;
        match entry.metadata() {
            Ok(meta) => (self.each)(VisibleFile { entry: file_entry(path, &meta), dir, name }),
            Err(_) => Ok(ControlFlow::Continue(())),
        }
    }
}

fn file_entry(path: String, meta: &Metadata) -> FileEntry {
    FileEntry { path, size: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
}

/// The error of a cancelled search, which no caller receives.
pub(super) fn cancelled() -> ToolError {
    ToolError::Unavailable("the search was cancelled".to_owned())
}
