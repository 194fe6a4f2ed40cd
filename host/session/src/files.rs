//! Reading local files under the read roots that the operator granted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::tools::ToolError;

/// A file that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
}

/// Why something under the read roots is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
pub enum Reason {
    /// The system does not let the host read it: mostly for lack of permission.
    #[error("cannot be read, check the permissions")]
    Denied,
    /// It is a symbolic link.
    #[error("symbolic links, which are not followed")]
    Link,
    /// It is a device, a pipe or a socket.
    #[error("devices, pipes or sockets")]
    Special,
    /// It is nested too deep.
    #[error("nested too deep")]
    Deep,
    /// A `.gitignore` above it goes beyond the bounds.
    #[error("below a .gitignore that is too large or cannot be read")]
    Ignore,
    /// Its name is no UTF-8.
    #[error("with a name that is no UTF-8")]
    Name,
    /// It is larger than what is read.
    #[error("too large")]
    Large,
    /// It is binary.
    #[error("binary")]
    Binary,
    /// Its name says that it holds no text to quote: tables, styles, lock files, pictures.
    #[error("tables, styles, lock files and other kinds without text to quote")]
    Kind,
    /// Other files filled what can be held at a time.
    #[error("beyond the text that is held at a time")]
    Beyond,
    /// Reading it took longer, or more memory, than it may.
    #[error("that took too long, or too much memory, to read")]
    Costly,
    /// The process that read it failed.
    #[error("whose reader failed, see the host's log")]
    Failed,
}

/// What was found under the read roots and not read: how often for each reason, with the first paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread(BTreeMap<Reason, Tally>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    count: usize,
    first: Vec<String>,
}

impl Unread {
    /// Paths that are named for a reason.
    const NAMED: usize = 3;
    /// Characters of a path that are kept.
    const PATH_CHARS: usize = 200;

    /// Notes one.
    pub fn add(&mut self, reason: Reason, path: &str) {
        let tally = self.0.entry(reason).or_default();
        tally.count += 1;
        if tally.first.len() < Self::NAMED {
            tally.first.push(path.chars().take(Self::PATH_CHARS).collect());
        }
    }

    /// Adds those of another.
    pub fn extend(&mut self, other: Self) {
        for (reason, tally) in other.0 {
            let own = self.0.entry(reason).or_default();
            own.count += tally.count;
            let room = Self::NAMED.saturating_sub(own.first.len());
            own.first.extend(tally.first.into_iter().take(room));
        }
    }

    /// How many there are for this reason.
    pub fn count(&self, reason: Reason) -> usize {
        self.0.get(&reason).map_or(0, |tally| tally.count)
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.0.values().map(|tally| tally.count).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line for each reason: why, how many, and the first of them.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(reason, tally)| {
            // A path is what people call files: on one line, and in backticks.
            let plain = |path: &String| path.replace(['`', '\n', '\r'], "?");
            let named = tally.first.iter().map(|path| format!("`{}`", plain(path))).collect::<Vec<_>>().join(", ");
            let more = tally.count - tally.first.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{reason} ({}): {named}{more}", tally.count)
        })
    }
}

/// What a walk over the read roots gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Which directories the roots are: device and inode. Others may have the same names.
    pub roots: Vec<(u64, u64)>,
    /// The files, sorted by path.
    pub files: Vec<FileEntry>,
    /// Files and directories that were found and are not read.
    pub unread: Unread,
}

/// What is searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepRequest {
    /// A regular expression.
    pub pattern: String,
    /// Whether case does not matter.
    pub ignore_case: bool,
    /// Whether a match may reach over several lines, and `.` matches the end of a line too.
    pub multiline: bool,
    /// A file or directory; everything where it is absent.
    pub path: Option<String>,
    /// Only files whose path matches this glob.
    pub glob: Option<String>,
    /// Only files of this type, as ripgrep names types.
    pub file_type: Option<String>,
    /// What is wanted of them.
    pub wanted: GrepWanted,
    /// At most so many: lines, or files.
    pub limit: u32,
}

/// What is wanted of the files in which something matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepWanted {
    /// The files, newest first.
    #[default]
    Files,
    /// How many lines match in each, by path.
    Counts,
    /// The lines that match, by path, with so many lines before and after each.
    Lines {
        /// Lines before.
        before: u32,
        /// Lines after.
        after: u32,
    },
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepResult {
    /// The files in which something matches, in the order that was wanted.
    pub files: Vec<FileMatches>,
    /// Files that could not be searched to their end, such as those that are too large.
    pub skipped: u32,
    /// What was found and not searched at all.
    pub unread: Unread,
    /// Whether it stopped since what it found is too much to keep.
    pub full: bool,
}

/// What a search found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMatches {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// How many lines match in the searched part.
    pub count: u32,
    /// The lines, where they are wanted.
    pub lines: Vec<FoundLine>,
}

/// A line of a file in which something matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// Its number, from 1.
    pub number: u32,
    /// Its text, without its end.
    pub text: String,
    /// Whether it matches; else it stands before or after one that does.
    pub matches: bool,
}

/// The granted read roots. A path is `<root's name>/<path in it>`, with `/` between; one more `/` before it changes
/// nothing. No host path is ever shown, and nothing outside of the roots can be reached, by `..` or by a symlink.
///
/// All methods block on the file system: call them where blocking is allowed. Those that look at many files stop soon
/// after they are cancelled, with an error that has no reader.
pub trait Files: Send + Sync {
    /// The names of the roots, in the order in which they were granted.
    fn roots(&self) -> Vec<String>;

    /// A sentence that says which files are not there that one could look for, where that is known.
    fn absent(&self) -> Option<String> {
        None
    }

    /// All files under the roots that `.gitignore` does not leave out, and what of the rest is not hidden and cannot be
    /// read. Symlinks are not followed.
    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError>;

    /// Those of [`Files::walk`] that reports may cite. What the host itself writes about its work is no source, though
    /// sessions read it.
    fn sources(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.walk(cancel)
    }

    /// A file's bytes. A file larger than `max` is `OverLimit`.
    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError>;

    /// The bytes of a file that [`Files::walk`] has just listed: what `.gitignore` leaves out is not looked at again, which for
    /// many files would cost much.
    fn listed_bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.bytes(path, max)
    }

    /// Lines `offset` to `offset + limit` of a text file, from 1, each with its number before it.
    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError>;

    /// Searches the contents of files. It looks no further than `request.limit` asks.
    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError>;

    /// Paths that match a glob, newest first; at most `limit`. Where a directory is given, only those in it, and the
    /// glob may be relative to it.
    fn glob(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError>;
}
