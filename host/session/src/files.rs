//! Defines the reading of local files under the read roots that the operator granted.

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
    /// The time of the last write: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
}

/// A reason that a file or directory under the read roots is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
pub enum Reason {
    /// The system does not let the host read it, mostly for lack of permission.
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
    /// It is larger than the largest file that is read.
    #[error("too large")]
    Large,
    /// It is binary.
    #[error("binary")]
    Binary,
    /// Its name is that of a file without text to quote: tables, styles, lock files, pictures.
    #[error("tables, styles, lock files and other kinds without text to quote")]
    Kind,
    /// Other files filled the memory for documents.
    #[error("beyond the text that is held at a time")]
    Beyond,
    /// Reading it took too long, or too much memory.
    #[error("that took too long, or too much memory, to read")]
    Costly,
    /// The process that read it failed.
    #[error("whose reader failed, see the host's log")]
    Failed,
}

/// The files and directories under the read roots that were not read: their number for each reason, with the first
/// paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread(BTreeMap<Reason, Tally>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    count: usize,
    first: Vec<String>,
}

impl Unread {
    /// The number of paths that are named for a reason.
    const NAMED: usize = 3;
    /// Characters of a path that are kept.
    const PATH_CHARS: usize = 200;

    /// Adds a path.
    pub fn add(&mut self, reason: Reason, path: &str) {
        let tally = self.0.entry(reason).or_default();
        tally.count += 1;
        if tally.first.len() < Self::NAMED {
            tally.first.push(path.chars().take(Self::PATH_CHARS).collect());
        }
    }

    /// Adds the paths of another tally.
    pub fn extend(&mut self, other: Self) {
        for (reason, tally) in other.0 {
            let own = self.0.entry(reason).or_default();
            own.count += tally.count;
            let room = Self::NAMED.saturating_sub(own.first.len());
            own.first.extend(tally.first.into_iter().take(room));
        }
    }

    /// The number of paths for this reason.
    pub fn count(&self, reason: Reason) -> usize {
        self.0.get(&reason).map_or(0, |tally| tally.count)
    }

    /// The number of paths.
    pub fn total(&self) -> usize {
        self.0.values().map(|tally| tally.count).sum()
    }

    /// Whether there are no paths.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line for each reason: the reason, the number, and the first paths.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(reason, tally)| {
            // Paths are shown on one line, and in backticks.
            let plain = |path: &String| path.replace(['`', '\n', '\r'], "?");
            let named = tally.first.iter().map(|path| format!("`{}`", plain(path))).collect::<Vec<_>>().join(", ");
            let more = tally.count - tally.first.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{reason} ({}): {named}{more}", tally.count)
        })
    }
}

/// The result of a walk over the read roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The device and inode of each root's directory, since another directory may have the same name.
    pub roots: Vec<(u64, u64)>,
    /// The files, sorted by path.
    pub files: Vec<FileEntry>,
    /// Files and directories that are not read.
    pub unread: Unread,
}

/// A search for a pattern in files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepRequest {
    /// A regular expression.
    pub pattern: String,
    /// Whether to ignore case.
    pub ignore_case: bool,
    /// Whether a match may reach over several lines, and `.` matches the end of a line too.
    pub multiline: bool,
    /// The file or directory to search; by default all roots.
    pub path: Option<String>,
    /// A glob that the paths of files have to match.
    pub glob: Option<String>,
    /// The type that files have to have, as ripgrep names types.
    pub file_type: Option<String>,
    /// The kind of result.
    pub wanted: GrepWanted,
    /// The greatest number of lines or files in the result.
    pub limit: u32,
}

/// The kind of result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepWanted {
    /// The matching files, newest first.
    #[default]
    Files,
    /// The number of matching lines in each file, by path.
    Counts,
    /// The matching lines, by path, with some lines before and after each.
    Lines {
        /// The number of lines before.
        before: u32,
        /// The number of lines after.
        after: u32,
    },
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepResult {
    /// The matching files, in the order of the wanted kind.
    pub files: Vec<FileMatches>,
    /// The number of files that could not be searched to their end, such as too large ones.
    pub skipped: u32,
    /// The files and directories that were not searched at all.
    pub unread: Unread,
    /// Whether the search stopped because its result is too large to keep.
    pub full: bool,
}

/// The matches in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMatches {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// The number of matching lines in the searched part.
    pub count: u32,
    /// The lines, if they are wanted.
    pub lines: Vec<FoundLine>,
}

/// A line of a matching file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// The line's number, from 1.
    pub number: u32,
    /// The line's text, without its end.
    pub text: String,
    /// Whether the line matches; otherwise it precedes or follows a matching one.
    pub matches: bool,
}

/// The granted read roots. A path is `<root's name>/<path in it>`, with `/` between; a leading `/` is ignored. No host
/// path is ever shown, and no file outside of the roots can be reached, by `..` or by a symlink.
///
/// All methods block on the file system: call them where blocking is allowed. Methods that look at many files stop soon
/// after they are cancelled, with an error that nobody reads.
pub trait Files: Send + Sync {
    /// The names of the roots, in the order in which they were granted.
    fn roots(&self) -> Vec<String>;

    /// A sentence about files that a session may look for and that are missing, if there are any.
    fn absent(&self) -> Option<String> {
        None
    }

    /// All files under the roots that no `.gitignore` excludes, and the visible files that cannot be read. Symlinks are
    /// not followed.
    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError>;

    /// The files of [`Files::walk`] that reports may cite. The host's own files about its work are no sources, though
    /// sessions can read them.
    fn sources(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.walk(cancel)
    }

    /// A file's bytes. A file larger than `max` is `OverLimit`.
    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError>;

    /// The bytes of a file that [`Files::walk`] has just listed. This does not check `.gitignore` again, which would be
    /// slow for many files.
    fn listed_bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.bytes(path, max)
    }

    /// Lines `offset` to `offset + limit` of a text file, from 1, each with its number before it.
    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError>;

    /// Searches the contents of files. It stops at `request.limit`.
    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError>;

    /// Paths that match a glob, newest first; at most `limit`. With a directory, only the paths in it, and the glob may
    /// be relative to it.
    fn glob(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError>;
}
