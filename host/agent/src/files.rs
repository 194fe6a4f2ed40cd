//! The granted read roots, over cap-std directories that were opened once.
//!
//! Everything a session can read goes through [`ReadRoots`]: no ambient path is used after the roots are opened, and
//! cap-std refuses `..`, absolute paths and symlinks that lead out of a root. One rule says what exists for a
//! session: hidden files, and what `.gitignore` leaves out, are neither listed nor read.

mod glob;
mod visible;

use std::{
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, Metadata},
};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, SearcherBuilder, sinks::Lossy};
use guild_jobs::{
    files::{FileEntry, Files, Passage},
    tools::ToolError,
};

use glob::PathGlob;
use visible::{Rules, Walk};

/// Files larger than this are neither searched nor read line by line.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// What one `read` answers at most, in bytes.
const MAX_READ_BYTES: usize = 256 << 10;
/// Where a long line is cut, in characters.
const MAX_LINE_CHARS: usize = 2000;
/// How much of a file decides whether it is binary: a NUL in there says so.
const HEAD_BYTES: usize = 8192;
/// Memory for one compiled pattern.
const MAX_PATTERN_BYTES: usize = 4 << 20;

/// A read root could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the directory {}: {source}", path.display())]
pub struct RootError {
    /// The directory, as it was named.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

struct Root {
    name: String,
    dir: Dir,
}

/// The directories that the operator lets sessions read.
///
/// A root's name is the one that the operator gave it, else its directory's base name; where that is taken, `-2`, `-3`
/// and so on is added.
pub struct ReadRoots {
    roots: Vec<Root>,
}

impl ReadRoots {
    /// Opens directories under the names of their own.
    ///
    /// # Errors
    /// The first that is missing, or is no directory.
    pub fn open<P: AsRef<Path>>(directories: impl IntoIterator<Item = P>) -> Result<Self, RootError> {
        Self::open_named(directories.into_iter().map(|path| (None, path)))
    }

    /// Opens directories, under the names that are given.
    ///
    /// # Errors
    /// The first that is missing, or is no directory.
    pub fn open_named<P: AsRef<Path>>(
        directories: impl IntoIterator<Item = (Option<String>, P)>,
    ) -> Result<Self, RootError> {
        let mut roots: Vec<Root> = Vec::new();
        for (name, path) in directories {
            let path = path.as_ref();
            let failed = |source| RootError { path: path.to_owned(), source };
            // The real path gives `.` and `docs/..` a name of their own.
            let real = path.canonicalize().map_err(failed)?;
            let dir = Dir::open_ambient_dir(&real, ambient_authority()).map_err(failed)?;
            let base = name
                .unwrap_or_else(|| real.file_name().map_or("root".into(), |name| name.to_string_lossy().into_owned()));
            let taken = |name: &str| roots.iter().any(|root| root.name == name);
            let name = std::iter::once(base.clone())
                .chain((2..).map(|n| format!("{base}-{n}")))
                .find(|name| !taken(name))
                .unwrap_or_default();
            roots.push(Root { name, dir });
        }
        Ok(Self { roots })
    }

    /// The root and the path in it that a session's path means, if a session may see it.
    fn locate<'a>(&self, path: &'a str) -> Result<(&Root, &'a str), ToolError> {
        let (name, inner) = path.split_once('/').unwrap_or((path, ""));
        let Some(root) = self.roots.iter().find(|root| root.name == name) else {
            return Err(ToolError::InvalidInput(format!(
                "{path:?} is in no read root: paths begin with {}",
                self.roots.iter().map(|root| format!("{}/", root.name)).collect::<Vec<_>>().join(" or ")
            )));
        };
        if inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ToolError::InvalidInput(format!("{path:?} is not a plain path to a file: {name}/...")));
        }
        if Rules::hides(&root.dir, inner) {
            return Err(ToolError::InvalidInput(format!("{path:?} is hidden, or left out by .gitignore")));
        }
        Ok((root, inner))
    }

    fn open_file(&self, path: &str, max: u64) -> Result<(File, Metadata), ToolError> {
        let (root, inner) = self.locate(path)?;
        // A look before opening: opening a pipe would wait for its writer.
        let meta = root.dir.metadata(inner).map_err(|error| unreadable(path, &error))?;
        if !meta.is_file() {
            return Err(ToolError::InvalidInput(format!("{path:?} is not a file")));
        }
        if meta.len() > max {
            return Err(ToolError::OverLimit(format!("{path:?} has {} bytes, and {max} are read at most", meta.len())));
        }
        let file = root.dir.open(inner).map_err(|error| unreadable(path, &error))?;
        Ok((file, meta))
    }
}

/// The error of a session's path. It has the error's kind only: its text could name a place of the host.
fn unreadable(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ToolError::InvalidInput(format!("there is no file {path:?}"))
        }
        kind => ToolError::Unavailable(format!("{path:?} cannot be read: {kind}")),
    }
}

/// Whether a file that begins so is binary.
pub(crate) fn is_binary(head: &[u8]) -> bool {
    head.iter().take(HEAD_BYTES).any(|byte| *byte == 0)
}

/// The first `max` characters of a text, and whether that is all of it.
pub(crate) fn cut(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    }
}

impl Files for ReadRoots {
    fn roots(&self) -> Vec<String> {
        self.roots.iter().map(|root| root.name.clone()).collect()
    }

    fn walk(&self) -> Result<Vec<FileEntry>, ToolError> {
        let mut walk = Walk::default();
        for root in &self.roots {
            walk.root(&root.name, &root.dir)?;
        }
        Ok(walk.finish())
    }

    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        let (file, meta) = self.open_file(path, max)?;
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        // One more than allowed, in case the file grew since it was looked at.
        file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > max {
            return Err(ToolError::OverLimit(format!("{path:?} has more than {max} bytes")));
        }
        Ok(bytes)
    }

    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError> {
        let (file, _) = self.open_file(path, MAX_FILE_BYTES)?;
        let failed = |error| unreadable(path, &error);
        let mut reader = BufReader::with_capacity(HEAD_BYTES, file);
        if is_binary(reader.fill_buf().map_err(failed)?) {
            return Err(ToolError::InvalidInput(format!("{path:?} is a binary file")));
        }
        let first = offset.max(1);
        let mut text = String::new();
        let mut line = Vec::new();
        for number in 1..first.saturating_add(limit) {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                if number <= first && first > 1 {
                    return Err(ToolError::InvalidInput(format!("{path:?} has {} lines", number - 1)));
                }
                break;
            }
            if number < first {
                continue;
            }
            let content = String::from_utf8_lossy(&line);
            let (shown, whole) = cut(content.trim_end_matches(['\n', '\r']), MAX_LINE_CHARS);
            if text.len() + shown.len() > MAX_READ_BYTES {
                text.push_str(&format!("(cut here: go on with offset {number})\n"));
                break;
            }
            text.push_str(&format!("{number:>6}\t{shown}{}\n", if whole { "" } else { " (cut)" }));
        }
        Ok(text)
    }

    fn grep(&self, pattern: &str, glob: Option<&str>, limit: u32) -> Result<Vec<Passage>, ToolError> {
        let matcher = RegexMatcherBuilder::new()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES)
            .line_terminator(Some(b'\n'))
            .build(pattern)
            .map_err(|error| ToolError::InvalidInput(format!("pattern {pattern:?}: {error}")))?;
        let glob = glob.map(PathGlob::new).transpose()?;
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(16 << 20))
            .build();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for entry in self.walk()? {
            if found.len() >= limit {
                break;
            }
            if entry.size > MAX_FILE_BYTES || glob.as_ref().is_some_and(|glob| !glob.matches(&entry.path)) {
                continue;
            }
            // A file that vanished or cannot be read is no reason to leave the others out.
            let Ok((file, _)) = self.open_file(&entry.path, MAX_FILE_BYTES) else { continue };
            let sink = Lossy(|line, text| {
                let (shown, _) = cut(text.trim_end_matches(['\n', '\r']), MAX_LINE_CHARS);
                let line = u32::try_from(line).unwrap_or(u32::MAX);
                found.push(Passage { path: entry.path.clone(), line, text: shown.to_owned() });
                Ok(found.len() < limit)
            });
            if let Err(error) = searcher.search_reader(&matcher, file, sink) {
                tracing::debug!(path = %entry.path, %error, "left out of a search");
            }
        }
        Ok(found)
    }

    fn glob(&self, pattern: &str, limit: u32) -> Result<Vec<String>, ToolError> {
        let glob = PathGlob::new(pattern)?;
        let mut found: Vec<FileEntry> = self.walk()?.into_iter().filter(|entry| glob.matches(&entry.path)).collect();
        found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found.into_iter().map(|entry| entry.path).collect())
    }
}
