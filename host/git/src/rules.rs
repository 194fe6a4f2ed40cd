//! Ignore and attribute files: their bounds, and which files they leave out.
//!
//! Git reads them whole in each run, and matches each of their patterns with each file. A large one makes every run slow, so
//! they are bounded wherever they come from: sessions and callers that write them, commits, and the repository's own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{error::GitError, repository::Repository, settings, worktree::Worktree};

/// The most bytes of an ignore or attribute file. Those that people write have some thousands.
pub const RULES_BYTES: usize = 128 << 10;
/// The most lines of one.
pub const RULES_LINES: usize = 5000;
/// The most bytes of all those that a commit brings.
const ALL_BYTES: usize = 64 << 20;

/// What a path begins with that is from the top of a worktree and nothing else.
const HERE: &str = "./";

/// Whether git reads a file of this name for its patterns.
pub fn is_rules_file(name: &str) -> bool {
    matches!(name, ".gitignore" | ".gitattributes")
}

/// Checks the contents of an ignore or attribute file.
///
/// # Errors
/// What is wrong with it.
pub fn check_rules(contents: &[u8]) -> Result<(), String> {
    if contents.len() > RULES_BYTES {
        return Err(too_large(contents.len()));
    }
    match contents.split(|&byte| byte == b'\n').count().saturating_sub(1) {
        lines if lines > RULES_LINES => Err(format!("has {lines} lines, and git is given at most {RULES_LINES}")),
        _ => Ok(()),
    }
}

fn too_large(bytes: usize) -> String {
    format!("has {bytes} bytes, and git is given at most {RULES_BYTES}")
}

/// The rule by which a file is left out of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoreRule {
    /// The file that is left out, from the top of the worktree.
    pub path: String,
    /// The pattern.
    pub pattern: String,
    /// The file that has the rule, as git names it.
    pub source: String,
    /// The rule's line there.
    pub line: String,
}

impl Repository {
    /// Those of these files that git leaves out of a commit of a worktree, each with its rule. Files that are tracked are never
    /// left out, whatever the rules say.
    ///
    /// # Errors
    /// [`GitError::NotAWorktree`], or why git cannot tell.
    pub async fn ignored(&self, dir: &Path, paths: &[&str]) -> Result<Vec<IgnoreRule>, GitError> {
        let Worktree { dir, .. } = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        settings::check(&self.git, &dir).await?;
        // A colon at the beginning would have a meaning to git.
        let input = paths.iter().flat_map(|path| HERE.bytes().chain(path.bytes()).chain([0])).collect();
        let ask = self.git.call(&dir, &["check-ignore", "--verbose", "-z", "--stdin"]).input(input);
        // 1: none is left out.
        let (_, said) = ask.codes(&[0, 1]).await?;
        let said = String::from_utf8_lossy(&said);
        let fields: Vec<&str> = said.split('\0').collect();
        let read = |fields: &[&str]| {
            let [source, line, pattern, path]: [&str; 4] = fields.try_into().ok()?;
            let path = path.strip_prefix(HERE).unwrap_or(path);
            let [source, line, pattern, path] = [source, line, pattern, path].map(str::to_owned);
            // The last rule that matches may be one that keeps the file.
            (!pattern.starts_with('!')).then_some(IgnoreRule { path, pattern, source, line })
        };
        Ok(fields.chunks_exact(4).filter_map(read).collect())
    }

    /// The files and directories of a worktree that its rules leave out of commits, from its top. All documents are committed,
    /// so none of those is among them.
    ///
    /// # Errors
    /// As [`Self::ignored`].
    pub async fn left_out(&self, dir: &Path) -> Result<Vec<String>, GitError> {
        let Worktree { dir, .. } = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        settings::check(&self.git, &dir).await?;
        let list = ["status", "--porcelain", "-z", "--ignored=matching", "--untracked-files=all", "--no-renames"];
        let listed = self.git.call(&dir, &list).arg("--ignore-submodules=all").run().await?;
        let entries = listed.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let files = entries.filter_map(|entry| entry.strip_prefix("!! ").map(str::to_owned));
        Ok(files.filter(|file| !file.starts_with(".lore/")).collect())
    }

    /// Checks ignore and attribute files of a tree, which are named with their objects.
    pub(crate) async fn check_rules(&self, files: &[(String, String)]) -> Result<(), GitError> {
        let refused = |file: &str, why: String| GitError::Rules {
            path: self.path.clone(),
            file: file.to_owned(),
            why: format!("{why}; make it smaller, and commit"),
        };
        let objects: Vec<u8> = files.iter().flat_map(|(_, object)| object.bytes().chain([b'\n'])).collect();
        let ask = ["cat-file", "--batch-check=%(objectsize)"];
        let sizes = self.call(&ask).input(objects.clone()).line().await?;
        for ((file, _), size) in files.iter().zip(sizes.lines()) {
            let size = size.parse().unwrap_or(usize::MAX);
            if size > RULES_BYTES {
                return Err(refused(file, too_large(size)));
            }
        }
        let contents =
            self.call(&["cat-file", "--batch=%(objectsize)"]).input(objects).at_most(ALL_BYTES).run().await?;
        // Each: its size, a newline, its contents, a newline.
        let mut rest = contents.as_slice();
        for (file, _) in files {
            let line = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            let (size, behind) = (rest.get(..line).unwrap_or_default(), rest.get(line + 1..).unwrap_or_default());
            let size: usize = String::from_utf8_lossy(size).parse().unwrap_or_default();
            check_rules(behind.get(..size).unwrap_or_default()).map_err(|why| refused(file, why))?;
            rest = behind.get(size + 1..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Checks a file of patterns that is not in a tree: one below `.git/info`, or one that the configuration names. Opening a pipe
/// would block git, and reading a device would not end.
pub(crate) fn check_file(path: &Path, worktree: &Path) -> Result<(), GitError> {
    // What git cannot read, it takes for empty.
    let Ok(about) = fs::metadata(path) else { return Ok(()) };
    let why = if about.is_dir() || path == Path::new("/dev/null") {
        return Ok(());
    } else if !about.is_file() {
        "is no regular file; replace it, or unset what names it".to_owned()
    } else if about.len() > RULES_BYTES as u64 {
        format!("{}; make it smaller", too_large(usize::try_from(about.len()).unwrap_or(usize::MAX)))
    } else {
        return Ok(());
    };
    Err(GitError::Rules { path: worktree.to_owned(), file: path.display().to_string(), why })
}

/// A path of the configuration, as git reads it in a worktree: its home directory is `/dev/null`.
pub(crate) fn configured(value: &str, worktree: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(_) => PathBuf::from("/dev/null"),
        None => worktree.join(value),
    }
}
