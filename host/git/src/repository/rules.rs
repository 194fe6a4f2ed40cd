//! Bounds ignore and attribute files.
//!
//! Git reads them whole in each run, and matches each of their patterns with each file. A large one makes every run slow, so
//! they are bounded wherever they come from: sessions and callers that write them, commits, and the repository's own. Many
//! small ones do the same, so those of an attempt, and those of a project, are bounded together, too.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::error::GitError;

/// The most bytes of an ignore or attribute file, and of all together that an attempt writes. Those that people write have
/// some thousands.
pub const RULES_BYTES: usize = 128 << 10;
/// The most lines of one, and of all together that an attempt writes.
pub const RULES_LINES: usize = 5000;
/// How much more those of a project may have together: a large one has many small ones.
const PROJECT: usize = 16;
/// Why a path of the configuration is refused, and what to do.
const EXPANDED: &str = "whose path only git can expand; set the whole path, from `/` on: git config KEY /PATH";

/// Whose ignore and attribute files are bounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those that an attempt adds or changes.
    Attempt,
    /// Those of a project, or that its user adds or changes.
    Project,
}

/// What ignore and attribute files have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesUsage {
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
}

impl RulesUsage {
    /// Counts one more file.
    pub fn add(&mut self, contents: &[u8]) {
        self.bytes = self.bytes.saturating_add(contents.len());
        self.lines = self.lines.saturating_add(lines(contents));
    }

    /// Checks what an attempt writes.
    ///
    /// # Errors
    /// What is wrong with them together.
    pub fn check(self) -> Result<(), String> {
        self.within(Whose::Attempt)
    }

    pub(crate) fn within(self, whose: Whose) -> Result<(), String> {
        let times = if whose == Whose::Project { PROJECT } else { 1 };
        let (most_bytes, most_lines) = (RULES_BYTES * times, RULES_LINES * times);
        let Self { bytes, lines } = self;
        if bytes <= most_bytes && lines <= most_lines {
            return Ok(());
        }
        Err(format!(
            "have {bytes} bytes and {lines} lines together, and git is given at most {most_bytes} and {most_lines}"
        ))
    }
}

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
    match lines(contents) {
        lines if lines > RULES_LINES => Err(format!("has {lines} lines, and git is given at most {RULES_LINES}")),
        _ => Ok(()),
    }
}

/// The lines of a file, the last one too where it has no end.
fn lines(contents: &[u8]) -> usize {
    contents.split_inclusive(|&byte| byte == b'\n').count()
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
        let mut contents = Vec::new();
        let read = File::open(path).and_then(|file| file.take(RULES_BYTES as u64 + 1).read_to_end(&mut contents));
        match read.map(|_| check_rules(&contents)) {
            Ok(Err(why)) => format!("{why}; make it smaller"),
            Ok(Ok(())) | Err(_) => return Ok(()),
        }
    };
    Err(GitError::Rules { path: worktree.to_owned(), file: path.display().to_string(), why })
}

/// A path of the configuration, as git reads it in a worktree: its home directory is `/dev/null`.
///
/// # Errors
/// [`GitError::RefusedSetting`] where git reads another file than the one that would be checked: that of a user's home, one
/// beside the program, or one that may be missing.
pub(crate) fn configured(key: &str, value: &str, worktree: &Path) -> Result<PathBuf, GitError> {
    if value.starts_with("~/") {
        return Ok(PathBuf::from("/dev/null"));
    }
    if ["~", "%(", ":("].iter().any(|begin| value.starts_with(begin)) {
        return Err(GitError::RefusedSetting { path: worktree.to_owned(), key: key.to_owned(), why: EXPANDED });
    }
    Ok(worktree.join(value))
}
