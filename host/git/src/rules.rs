//! The bounds of ignore and attribute files.
//!
//! Git reads them whole in each run, and matches each of their patterns with each file. A large one makes every run slow, so
//! they are bounded wherever they come from: sessions and callers that write them, commits, and the repository's own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::error::GitError;

/// The most bytes of an ignore or attribute file. Those that people write have some thousands.
pub const RULES_BYTES: usize = 128 << 10;
/// The most lines of one.
pub const RULES_LINES: usize = 5000;
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

pub(crate) fn too_large(bytes: usize) -> String {
    format!("has {bytes} bytes, and git is given at most {RULES_BYTES}")
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
