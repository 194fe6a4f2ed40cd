//! Which files of a root exist for a session: not hidden, not left out by a `.gitignore`, no symlinks, no devices.

use std::{
    io::{self, Read},
    ops::ControlFlow,
};

use cap_std::fs::{Dir, DirEntry, FileType};
use guild_jobs::{files::FileEntry, glob::MAX_GLOB_BYTES, tools::ToolError};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use tokio_util::sync::CancellationToken;

use super::{Root, hidden, unreadable};

/// Directories nested deeper than this are not walked.
const MAX_DEPTH: usize = 64;
/// Files that one walk looks at, at most.
const MAX_FILES: usize = 500_000;
/// Bytes that are read of one `.gitignore`.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The `.gitignore` files on the way from a root to the directory that is being looked at, outermost first, each
/// with the path of its directory in the root.
#[derive(Default)]
pub(super) struct Rules(Vec<(String, Gitignore)>);

impl Rules {
    /// The rules for what is in the directory of a root in which this path is; `None` where the path is hidden from
    /// sessions. The same rule as the walk's, for one path.
    pub(super) fn on_the_way(root: &Dir, inner: &str, is_dir: bool) -> Option<Self> {
        let mut rules = Self::default();
        let mut path = String::new();
        let mut parts = inner.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            rules.enter(root, &path, &path);
            join(&mut path, part);
            let is_dir = is_dir || parts.peek().is_some();
            let is_link = root.symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink());
            if part.starts_with('.') || is_link || rules.ignores(&path, is_dir) {
                return None;
            }
        }
        Some(rules)
    }

    /// Takes the `.gitignore` of a directory along, if it has one. `at` is its path in the root, `from` its path in `dir`.
    fn enter(&mut self, dir: &Dir, from: &str, at: &str) -> bool {
        let file = if from.is_empty() { ".gitignore".to_owned() } else { format!("{from}/.gitignore") };
        let is_file = dir.symlink_metadata(&file).is_ok_and(|meta| meta.is_file());
        let Some(text) = is_file.then(|| dir.open(&file).ok()).flatten().and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MAX_IGNORE_BYTES).read_to_end(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }) else {
            return false;
        };
        let lines: Vec<&str> = text.lines().filter(|line| line.len() <= MAX_GLOB_BYTES).collect();
        // One line that nests too deep makes all of them fail; what the others hide stays hidden.
        let sound = || -> Vec<&str> { lines.iter().copied().filter(|line| compile(&[line]).is_ok()).collect() };
        let Ok(rules) = compile(&lines).or_else(|_| compile(&sound())) else { return false };
        self.0.push((at.to_owned(), rules));
        true
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn ignores(&self, path: &str, is_dir: bool) -> bool {
        for (at, rules) in self.0.iter().rev() {
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
        // As git does, a line that is no pattern is passed over.
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

/// A file that a walk came by: itself, and where it can be opened.
pub(super) struct Seen<'a> {
    pub(super) entry: FileEntry,
    pub(super) dir: &'a Dir,
    pub(super) name: &'a str,
}

/// What a walk does with each file: an error, or a break, ends it.
type Each<'a> = dyn FnMut(Seen<'_>) -> Result<ControlFlow<()>, ToolError> + 'a;

/// A walk over directories, in the order of the paths of all files; symlinks are not followed.
pub(super) struct Walk<'a> {
    cancel: &'a CancellationToken,
    each: &'a mut Each<'a>,
    rules: Rules,
    seen: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(cancel: &'a CancellationToken, each: &'a mut Each<'a>) -> Self {
        Self { cancel, each, rules: Rules::default(), seen: 0 }
    }

    /// Walks a root.
    pub(super) fn root(&mut self, root: &Root) -> Result<ControlFlow<()>, ToolError> {
        self.rules = Rules::default();
        self.directory(&root.name, &root.dir, "", 0)
    }

    /// Comes by what is at a path in a root: a file, or all in a directory.
    pub(super) fn at(&mut self, root: &Root, inner: &str, path: &str) -> Result<ControlFlow<()>, ToolError> {
        let failed = |error| unreadable(path, &error);
        let meta = if inner.is_empty() { root.dir.dir_metadata() } else { root.dir.metadata(inner) };
        let meta = meta.map_err(failed)?;
        self.rules = Rules::on_the_way(&root.dir, inner, meta.is_dir()).ok_or_else(|| hidden(path))?;
        if inner.is_empty() {
            self.directory(&root.name, &root.dir, "", 0)
        } else if meta.is_dir() {
            self.directory(&root.name, &root.dir.open_dir(inner).map_err(failed)?, inner, 0)
        } else if meta.is_file() {
            let modified = meta.modified().map_err(failed)?.into_std();
            let entry = FileEntry { path: format!("{}/{inner}", root.name), size: meta.len(), modified };
            (self.each)(Seen { entry, dir: &root.dir, name: inner })
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    fn directory(&mut self, root: &str, dir: &Dir, at: &str, depth: usize) -> Result<ControlFlow<()>, ToolError> {
        // A directory that cannot be read is left out: it is for the operator to see to, not for the session.
        let Ok(entries) = dir.entries() else { return Ok(ControlFlow::Continue(())) };
        let mut named: Vec<(String, FileType, DirEntry)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let (name, kind) = (entry.file_name().into_string().ok()?, entry.file_type().ok()?);
                (!name.starts_with('.') && (kind.is_dir() || kind.is_file())).then_some((name, kind, entry))
            })
            .collect();
        // A directory's files have its name and a `/` before theirs: so ordered, all paths come in their order.
        let key = |name: &str, kind: &FileType| format!("{name}{}", if kind.is_dir() { "/" } else { "" });
        named.sort_by_cached_key(|(name, kind, _)| key(name, kind));
        let has_rules = self.rules.enter(dir, "", at);
        for (name, kind, entry) in named {
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            let mut path = at.to_owned();
            join(&mut path, &name);
            if self.rules.ignores(&path, kind.is_dir()) {
                continue;
            }
            let flow = if kind.is_dir() {
                match entry.open_dir() {
                    Ok(inner) if depth < MAX_DEPTH => self.directory(root, &inner, &path, depth + 1)?,
                    _ => continue,
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
        let found = || -> io::Result<FileEntry> {
            let meta = entry.metadata()?;
            let modified = meta.modified()?.into_std();
            Ok(FileEntry { path, size: meta.len(), modified })
        };
        match found() {
            Ok(entry) => (self.each)(Seen { entry, dir, name }),
            Err(_) => Ok(ControlFlow::Continue(())),
        }
    }
}

/// Nobody waits for the answer any more.
pub(super) fn cancelled() -> ToolError {
    ToolError::Unavailable("the search was cancelled".to_owned())
}
