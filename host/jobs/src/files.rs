//! Reading local files under the read roots that the operator granted.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::tools::ToolError;

/// A file that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: SystemTime,
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
pub struct Found {
    /// The files in which something matches, in the order that was wanted.
    pub files: Vec<FileMatches>,
    /// Files that could not be searched to their end, such as those that are too large.
    pub skipped: u32,
    /// Whether it stopped since what it found is too much to keep.
    pub full: bool,
}

/// What a search found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMatches {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// How many lines match, as far as was looked.
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
/// after they are cancelled, with an error that nobody waits for.
pub trait Files: Send + Sync {
    /// The names of the roots, in the order in which they were granted.
    fn roots(&self) -> Vec<String>;

    /// All files under the roots that `.gitignore` does not leave out, sorted by path. Symlinks are not followed.
    fn walk(&self, cancel: &CancellationToken) -> Result<Vec<FileEntry>, ToolError>;

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
    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<Found, ToolError>;

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
