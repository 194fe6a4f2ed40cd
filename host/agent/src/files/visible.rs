//! Which files of a root exist for a session: not hidden, not left out by a `.gitignore`, no symlinks, no devices.

use std::io::{self, Read};

use cap_std::fs::Dir;
use guild_jobs::{files::FileEntry, tools::ToolError};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// Directories nested deeper than this are not walked.
const MAX_DEPTH: usize = 64;
/// Files that one walk lists at most.
const MAX_FILES: usize = 500_000;
/// Bytes that are read of one `.gitignore`.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The `.gitignore` files on the way from a root to the directory that is being looked at, outermost first, each
/// with the path of its directory in the root.
#[derive(Default)]
pub(super) struct Rules(Vec<(String, Gitignore)>);

impl Rules {
    /// Whether a path in a root is hidden from sessions: the same rule as the walk's, for one path.
    pub(super) fn hides(root: &Dir, inner: &str) -> bool {
        let mut rules = Self::default();
        rules.enter(root, "", "");
        let parts: Vec<&str> = inner.split('/').collect();
        let mut path = String::new();
        for (at, part) in parts.iter().enumerate() {
            join(&mut path, part);
            let is_dir = at + 1 < parts.len();
            if part.starts_with('.') || rules.ignores(&path, is_dir) {
                return true;
            }
            if is_dir {
                rules.enter(root, &path, &path);
            }
        }
        false
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
        let mut builder = GitignoreBuilder::new("");
        for line in text.lines() {
            // As git does, a line that is no pattern is passed over.
            let _ = builder.add_line(None, line);
        }
        let Ok(rules) = builder.build() else { return false };
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

/// Appends a name to a path in a root.
fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(name);
}

/// A walk over roots, symlinks not followed.
#[derive(Default)]
pub(super) struct Walk {
    rules: Rules,
    found: Vec<FileEntry>,
}

impl Walk {
    pub(super) fn root(&mut self, name: &str, dir: &Dir) -> Result<(), ToolError> {
        self.rules = Rules::default();
        self.directory(name, dir, "", 0)
    }

    /// The files, sorted by path.
    pub(super) fn finish(mut self) -> Vec<FileEntry> {
        self.found.sort_by(|a, b| a.path.cmp(&b.path));
        self.found
    }

    fn directory(&mut self, root: &str, dir: &Dir, at: &str, depth: usize) -> Result<(), ToolError> {
        // A directory that cannot be read is left out: it is for the operator to see to, not for the session.
        let Ok(entries) = dir.entries() else { return Ok(()) };
        let has_rules = self.rules.enter(dir, "", at);
        for entry in entries.filter_map(Result::ok) {
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            if name.starts_with('.') || !(kind.is_dir() || kind.is_file()) {
                continue;
            }
            let mut path = at.to_owned();
            join(&mut path, &name);
            if self.rules.ignores(&path, kind.is_dir()) {
                continue;
            }
            if kind.is_dir() {
                if depth < MAX_DEPTH
                    && let Ok(inner) = entry.open_dir()
                {
                    self.directory(root, &inner, &path, depth + 1)?;
                }
                continue;
            }
            if self.found.len() >= MAX_FILES {
                return Err(ToolError::OverLimit(format!(
                    "the read roots have more than {MAX_FILES} files: name narrower directories"
                )));
            }
            let file = || -> io::Result<FileEntry> {
                let meta = entry.metadata()?;
                let modified = meta.modified()?.into_std();
                Ok(FileEntry { path: format!("{root}/{path}"), size: meta.len(), modified })
            };
            self.found.extend(file().ok());
        }
        if has_rules {
            self.rules.leave();
        }
        Ok(())
    }
}
