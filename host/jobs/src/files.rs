//! Reading local files under the read roots that the operator granted.

use std::time::SystemTime;

use crate::tools::ToolError;

/// A line that matched a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The file, as [`Files`] spells paths.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The line's text.
    pub text: String,
}

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

/// The granted read roots. A path is `<root's name>/<path in it>`, with `/` between; no host path is ever shown,
/// and nothing outside of the roots can be reached, by `..` or by a symlink.
///
/// All methods block on the file system: call them where blocking is allowed.
pub trait Files: Send + Sync {
    /// The names of the roots, in the order in which they were granted.
    fn roots(&self) -> Vec<String>;

    /// All files under the roots that `.gitignore` does not leave out, sorted by path. Symlinks are not followed.
    fn walk(&self) -> Result<Vec<FileEntry>, ToolError>;

    /// A file's bytes. A file larger than `max` is `OverLimit`.
    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError>;

    /// Lines `offset` to `offset + limit` of a text file, from 1, each with its number before it.
    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError>;

    /// Lines that match a regular expression, in files whose path matches `glob`; at most `limit`.
    fn grep(&self, pattern: &str, glob: Option<&str>, limit: u32) -> Result<Vec<Passage>, ToolError>;

    /// Paths that match a glob, newest first; at most `limit`.
    fn glob(&self, pattern: &str, limit: u32) -> Result<Vec<String>, ToolError>;
}
