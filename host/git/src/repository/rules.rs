//! Bounds ignore and attribute files.
//!
//! Git reads them whole in each run, and matches each of their patterns with each file. A large one makes every run
//! slow, so they are bounded from all sources: sessions and callers that write them, commits, and the repository's own.
//! Many small ones have the same effect, so the files of an attempt, and the files of a project, are bounded together,
//! too.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::error::GitError;

/// The most bytes of an ignore or attribute file, and of all that an attempt writes together. Usual files have some
/// thousands.
pub const RULES_BYTES: usize = 128 << 10;
/// The most lines of such a file, and of all that an attempt writes together.
pub const RULES_LINES: usize = 5000;
/// The factor for all files of a project together, since a large project has many small ones.
const PROJECT: usize = 16;
/// The reason that a path of the configuration is refused, and the remedy.
const EXPANDED: &str = "whose path only git can expand; set the whole path, from `/` on: git config KEY /PATH";

/// A group of ignore and attribute files that are bounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The files that an attempt adds or changes.
    Attempt,
    /// The files of a project, or the files that its user adds or changes.
    Project,
}

/// The sum of ignore and attribute files.
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

    /// Checks the files that an attempt writes together.
    ///
    /// # Errors
    ///
    /// The exceeded bound.
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
///
/// The exceeded bound.
pub fn check_rules(contents: &[u8]) -> Result<(), String> {
    if contents.len() > RULES_BYTES {
        return Err(too_large(contents.len()));
    }
    match lines(contents) {
        lines if lines > RULES_LINES => Err(format!("has {lines} lines, and git is given at most {RULES_LINES}")),
        _ => Ok(()),
    }
}

/// The number of lines of a file, with an unfinished last one.
fn lines(contents: &[u8]) -> usize {
    contents.split_inclusive(|&byte| byte == b'\n').count()
}

pub(crate) fn too_large(bytes: usize) -> String {
    format!("has {bytes} bytes, and git is given at most {RULES_BYTES}")
}

/// Checks a file of patterns that is not in a tree: one below `.git/info`, or one that the configuration names. Opening
/// a pipe would block git, and reading a device would not end.
pub(crate) fn check_file(path: &Path, worktree: &Path) -> Result<(), GitError> {
    // Git treats an unreadable file as empty.
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
///
/// [`GitError::RefusedSetting`] if git reads another file than the checked one: a file in a user's home, a file beside
/// the program, or an optional file.
pub(crate) fn configured(key: &str, value: &str, worktree: &Path) -> Result<PathBuf, GitError> {
    if value.starts_with("~/") {
        return Ok(PathBuf::from("/dev/null"));
    }
    if ["~", "%(", ":("].iter().any(|begin| value.starts_with(begin)) {
        return Err(GitError::RefusedSetting { path: worktree.to_owned(), key: key.to_owned(), why: EXPANDED });
    }
    Ok(worktree.join(value))
}
