//! Reads files of the granted read roots, over cap-std directories that were opened once.
//!
//! Sessions read files through [`ReadRoots`] only: no ambient path is used after the roots are opened, and cap-std
//! refuses `..`, absolute paths and symlinks that lead out of a root. Hidden files, and files that a `.gitignore`
//! excludes, are neither listed nor read. A worktree of the host is shown without regard to `.gitignore`: its files are
//! tracked or were written by the job, so rules could only hide files of the project.
//!
//! Walks and searches run in a child process, see `confined.rs`.

mod confined;
mod glob;
mod search;
mod visible;

use std::{
    io::{self, BufRead, BufReader, Read, Seek as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt},
};
use encoding_rs::UTF_8;
use encoding_rs_io::DecodeReaderBytesBuilder;
use guild_contract::{Limits, text::cut};
use guild_session::{
    charset,
    document::document_format,
    files::{FileEntry, Files, GrepRequest, GrepResult, GrepWanted, Listing, Reason, Unread},
    tools::ToolError,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use confined::FILES_TASK;
use confined::{ChildSearch, Operation};
use glob::PathGlob;
use search::Search;
use visible::{Rules, VisibleFile, Walk};

/// Files larger than this are neither searched nor read line by line.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The most bytes that one `read` returns.
const MAX_READ_BYTES: usize = 256 << 10;
/// The characters after which a long line is cut.
const MAX_LINE_CHARS: usize = 2000;
/// The bytes of a piece of a file that is read line by line.
const PIECE_BYTES: usize = 64 << 10;
/// The most bytes of all paths of a listing together.
const MAX_LISTED_BYTES: usize = 64 << 20;
/// Bytes that a path of a listing takes besides its text.
const OVERHEAD: usize = 64;

/// The number of files that are looked at for each wanted document.
const LOOKED_AT: u32 = 1000;

/// The files of a root, counted by their use for sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// The root's name.
    pub name: String,
    /// The reason that the directory itself cannot be read.
    pub unreadable: Option<String>,
    /// Files with text that the built-in runtime quotes.
    pub documents: u32,
    /// Documents without text.
    pub empty: u32,
    /// The files that the built-in runtime does not read, and the reasons, as in its reports.
    pub unread: Unread,
    /// Whether the count stopped before the end, so that there may be more files.
    pub stopped: bool,
}

impl Looked {
    /// The reason that there is nothing to read; `None` if there are documents.
    pub fn problem(&self) -> Option<String> {
        if let Some(why) = &self.unreadable {
            return Some(format!("cannot be read: {why}"));
        }
        if self.documents > 0 {
            return None;
        }
        Some(match self.left_out() {
            None => "has no file that sessions can see".to_owned(),
            Some(left_out) => format!("has no document; {left_out}"),
        })
    }

    /// Whether there are files that a session can read with its tools, documents or not.
    pub fn has_files(&self) -> bool {
        let other = [Reason::Kind, Reason::Large, Reason::Binary].map(|reason| self.unread.count(reason));
        self.documents > 0 || self.empty > 0 || other.iter().any(|count| *count > 0)
    }

    /// The files that are not documents, and the reasons; `None` if all are documents.
    pub fn left_out(&self) -> Option<String> {
        let empty = (self.empty > 0).then(|| format!("without text ({})", self.empty));
        let all: Vec<String> = self.unread.lines().chain(empty).collect();
        let so_far = if self.stopped { " so far" } else { "" };
        (!all.is_empty()).then(|| format!("not read{so_far}: {}", all.join("; ")))
    }
}

/// The error of opening read roots: a directory is missing or not a directory, or two directories have the same name.
/// Roots are granted and denied by name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RootError(String);

struct Root {
    name: String,
    /// The path as it was given.
    path: PathBuf,
    /// The real path when it was opened.
    real: PathBuf,
    dir: Dir,
    /// Whether a `.gitignore` hides files.
    has_rules: bool,
}

/// The directories that the operator lets sessions read.
///
/// A root's name is the operator's name for it, or else its directory's base name. Names are unique.
#[derive(Clone)]
pub struct ReadRoots {
    roots: Vec<Arc<Root>>,
    /// Directories that have no sources, as sessions spell them.
    no_sources: Vec<String>,
    /// A sentence about files that are missing.
    absent: Option<String>,
    child: ChildSearch,
}

impl ReadRoots {
    /// Opens directories under their own names.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first directory that is missing, is not a directory, or has the name of an
    /// earlier one.
    pub fn open<P: AsRef<Path>>(directories: impl IntoIterator<Item = P>) -> Result<Self, RootError> {
        Self::open_named(directories.into_iter().map(|path| (None, path)))
    }

    /// Opens directories under the given names.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first directory that is missing, is not a directory, or has the name of an
    /// earlier one.
    pub fn open_named<P: AsRef<Path>>(
        directories: impl IntoIterator<Item = (Option<String>, P)>,
    ) -> Result<Self, RootError> {
        Self::open_all(directories, true)
    }

    fn open_all<P: AsRef<Path>>(
        directories: impl IntoIterator<Item = (Option<String>, P)>,
        has_rules: bool,
    ) -> Result<Self, RootError> {
        let mut roots: Vec<Arc<Root>> = Vec::new();
        for (name, path) in directories {
            let path = path.as_ref();
            let failed = |e| RootError(format!("cannot read the directory {}: {e}", path.display()));
            // The real path gives `.` and `docs/..` a name.
            let real = path.canonicalize().map_err(failed)?;
            let dir = Dir::open_ambient_dir(&real, ambient_authority()).map_err(failed)?;
            let name = name
                .unwrap_or_else(|| real.file_name().map_or("root".into(), |name| name.to_string_lossy().into_owned()));
            if let Some(first) = roots.iter().find(|root| root.name == name) {
                return Err(RootError(format!(
                    "two read roots are called {name:?}, {} and {}; give one of them a `name` of its own in \
                     `[[roots]]`, or remove it",
                    first.path.display(),
                    path.display()
                )));
            }
            roots.push(Arc::new(Root { name, path: path.to_owned(), real, dir, has_rules }));
        }
        Ok(Self { roots, no_sources: Vec::new(), absent: None, child: ChildSearch::new(&Limits::default()) })
    }

    /// The open roots with these names, for one member: its searches share permits with each other, and with no other
    /// member's.
    #[must_use]
    pub fn only(&self, names: &[String]) -> Self {
        let roots = self.roots.iter().filter(|root| names.contains(&root.name)).cloned().collect();
        Self { roots, child: self.child.for_member(), ..self.clone() }
    }

    /// These roots and others, for one job. Searches share permits with those of `self`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first root that has the name of an earlier one.
    pub fn and(&self, others: &Self) -> Result<Self, RootError> {
        let mut roots = self.roots.clone();
        for root in &others.roots {
            if roots.iter().any(|known| known.name == root.name) {
                return Err(RootError(format!(
                    "there is a read root called {:?} already; give it another `name` in `[[roots]]`",
                    root.name
                )));
            }
            roots.push(root.clone());
        }
        let no_sources = [self.no_sources.as_slice(), &others.no_sources].concat();
        let absent = self.absent.clone().or_else(|| others.absent.clone());
        Ok(Self { roots, no_sources, absent, child: self.child.clone() })
    }

    /// Excludes the files of these directories from the sources of reports; sessions can read them all the same. A
    /// directory is `<root's name>/<path in it>`.
    #[must_use]
    pub fn without_sources(self, directories: Vec<String>) -> Self {
        Self { no_sources: directories, ..self }
    }

    /// Sets the sentence about files that a session may look for and that are missing.
    #[must_use]
    pub fn without(self, absent: Option<String>) -> Self {
        Self { absent, ..self }
    }

    /// Sets the limits of searches, in place of the default ones.
    #[must_use]
    pub fn with_limits(self, limits: &Limits) -> Self {
        Self { child: ChildSearch::new(limits), ..self }
    }

    /// Opens directories of a worktree, where no `.gitignore` hides files: worktrees have only tracked files and files
    /// that the job wrote.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open_named`].
    pub fn open_worktree<P: AsRef<Path>>(
        directories: impl IntoIterator<Item = (String, P)>,
    ) -> Result<Self, RootError> {
        Self::open_all(directories.into_iter().map(|(name, path)| (Some(name), path)), false)
    }

    /// The names of the roots and their absolute paths, without symlinks.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.roots.iter().map(|root| (root.name.as_str(), root.real.as_path()))
    }

    /// Counts the files of each root. The count stops in a root after `enough` documents, or after a thousand files for
    /// each of them.
    ///
    /// # Errors
    ///
    /// Returns an error when the count takes too long, or too much memory.
    pub fn look(&self, enough: u32) -> Result<Vec<Looked>, ToolError> {
        self.ask(Operation::Look { enough }, &CancellationToken::new())
    }

    /// Runs [`Self::look`] in this process.
    fn look_here(&self, enough: u32, cancel: &CancellationToken) -> Result<Vec<Looked>, ToolError> {
        let look = |root: &Arc<Root>| {
            let mut looked = Looked { name: root.name.clone(), ..Looked::default() };
            if let Err(error) = root.dir.entries() {
                looked.unreadable = Some(error.kind().to_string());
                return Ok(looked);
            }
            let mut seen = 0;
            let mut each = |file: VisibleFile<'_>| {
                seen += 1;
                match has_text(&file) {
                    Ok(true) => looked.documents += 1,
                    Ok(false) => looked.empty += 1,
                    Err(reason) => looked.unread.add(reason, &file.entry.path),
                }
                looked.stopped = looked.documents >= enough || seen >= enough.saturating_mul(LOOKED_AT);
                Ok(if looked.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            // A break means `stopped`.
            let mut walk = Walk::new(cancel, &self.child.beyond, &mut each);
            let _ = walk.root(root)?;
            let unread = walk.unread();
            looked.unread.extend(unread);
            Ok(looked)
        };
        self.roots.iter().map(look).collect()
    }

    /// The root of a session's path, and the path in the root, which is empty for the root itself.
    fn locate<'a>(&self, path: &'a str) -> Result<(&Root, &'a str), ToolError> {
        let (name, inner) = plain(path).split_once('/').unwrap_or((plain(path), ""));
        let Some(root) = self.roots.iter().find(|root| root.name == name) else {
            return Err(ToolError::InvalidInput(format!(
                "{path:?} is in no read root: paths begin with {}",
                self.roots.iter().map(|root| format!("{}/", root.name)).collect::<Vec<_>>().join(" or ")
            )));
        };
        if !inner.is_empty() && inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ToolError::InvalidInput(format!("{path:?} is not a plain path: {name}/...")));
        }
        Ok((root, inner))
    }

    /// Opens a file if a session may see it.
    fn open_file(&self, path: &str, max: u64) -> Result<(File, Metadata), ToolError> {
        let (root, inner) = self.locate(path)?;
        Rules::on_the_way(root, inner, path, false)?;
        Self::open_in(root, inner, path, max)
    }

    fn open_in(root: &Root, inner: &str, path: &str, max: u64) -> Result<(File, Metadata), ToolError> {
        let is_dir = inner.is_empty() || root.dir.metadata(inner).is_ok_and(|meta| meta.is_dir());
        if is_dir {
            return Err(ToolError::InvalidInput(format!("{path:?} is a directory: name a file in it")));
        }
        let file = open(&root.dir, inner).map_err(|error| unreadable(path, &error))?;
        let meta = file.metadata().map_err(|error| unreadable(path, &error))?;
        if !meta.is_file() {
            return Err(ToolError::InvalidInput(format!("{path:?} is not a file")));
        }
        if meta.len() > max {
            return Err(ToolError::OverLimit(format!("{path:?} has {} bytes, and {max} are read at most", meta.len())));
        }
        Ok((file, meta))
    }

    /// Calls `each` with all files that a session can see at a path, or in all roots without one, sorted by path.
    fn for_each_file(
        &self,
        path: Option<&str>,
        cancel: &CancellationToken,
        each: &mut dyn FnMut(VisibleFile<'_>) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<Unread, ToolError> {
        let mut walk = Walk::new(cancel, &self.child.beyond, each);
        if let Some(path) = path.filter(|path| !everything(path)) {
            let (root, inner) = self.locate(path)?;
            let _ = walk.at(root, inner, path)?;
            return Ok(walk.unread());
        }
        let mut roots: Vec<&Root> = self.roots.iter().map(Arc::as_ref).collect();
        roots.sort_by_cached_key(|root| format!("{}/", root.name));
        for root in roots {
            if walk.root(root)?.is_break() {
                break;
            }
        }
        Ok(walk.unread())
    }

    /// The wanted files at a path, in the order of their paths, and the files that could not be read there.
    fn list(
        &self,
        path: Option<&str>,
        cancel: &CancellationToken,
        wants: &mut dyn FnMut(&FileEntry) -> bool,
    ) -> Result<Listing, ToolError> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        let unread = self.for_each_file(path, cancel, &mut |seen| {
            if wants(&seen.entry) {
                bytes += seen.entry.path.len() + OVERHEAD;
                files.push(seen.entry);
            }
            if bytes > MAX_LISTED_BYTES {
                return Err(ToolError::OverLimit(format!(
                    "the paths of the files have more than {MAX_LISTED_BYTES} bytes: name a directory in the read roots"
                )));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let roots = self.roots.iter().filter_map(|root| root.dir.dir_metadata().ok());
        Ok(Listing { roots: roots.map(|root| (root.dev(), root.ino())).collect(), files, unread })
    }

    /// Runs [`Files::grep`] in this process.
    fn grep_here(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError> {
        let path = request.path.as_deref().filter(|path| !everything(path));
        let mut search = Search::new(request, path.map_or("", plain), cancel)?;
        let unread = if request.wanted == GrepWanted::Files {
            // The newest files come first, so all are listed before any is opened.
            let mut wanted = self.list(path, cancel, &mut |entry| search.wants(entry))?;
            newest_first(&mut wanted.files);
            for entry in wanted.files {
                let (root, inner) = self.locate(&entry.path)?;
                if search.file(&entry.path, open(&root.dir, inner))?.is_break() {
                    break;
                }
            }
            wanted.unread
        } else {
            self.for_each_file(path, cancel, &mut |seen| {
                if !search.wants(&seen.entry) {
                    return Ok(ControlFlow::Continue(()));
                }
                search.file(&seen.entry.path, open(seen.dir, seen.name))
            })?
        };
        Ok(search.finish(unread))
    }

    /// Runs [`Files::glob`] in this process.
    fn glob_here(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError> {
        let directory = directory.filter(|directory| !everything(directory));
        let glob = PathGlob::new(pattern, directory.map_or("", plain))?;
        let mut found = self.list(directory, cancel, &mut |entry| glob.matches(&entry.path))?.files;
        newest_first(&mut found);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found.into_iter().map(|entry| entry.path).collect())
    }
}

/// Reads a line, and keeps only its first bytes, enough for one character more than is shown. `None` at the end of the
/// file.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    const KEPT: u64 = 4 * (MAX_LINE_CHARS as u64 + 1);
    let mut line = Vec::new();
    if reader.by_ref().take(KEPT).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        reader.skip_until(b'\n')?;
    }
    Ok(Some(line))
}

/// Reads all bytes of a file.
fn whole(file: File, size: u64, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One byte more than allowed is read, in case the file has grown.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > max {
        return Err(ToolError::OverLimit(format!("{path:?} has more than {max} bytes")));
    }
    Ok(bytes)
}

/// Opens a file for reading. A file that was replaced by a pipe is opened without waiting for its writer; a symlink is
/// not opened.
fn open(dir: &Dir, path: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed());
    dir.open_with(path, &options)
}

/// A path without the `/` that agents add before it, as if it were absolute, or after it.
fn plain(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path).trim_end_matches('/')
}

/// Whether a path names all roots together.
fn everything(path: &str) -> bool {
    matches!(plain(path), "" | ".")
}

fn hidden(path: &str) -> ToolError {
    ToolError::InvalidInput(format!("{path:?} is hidden, left out by .gitignore, or behind a symlink"))
}

/// The error for a path of a session. It has only the error's kind, since the error's text could name a path of the
/// host.
fn unreadable(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ToolError::InvalidInput(format!("there is no file {path:?}"))
        }
        kind => ToolError::Unavailable(format!("{path:?} cannot be read: {kind}")),
    }
}

impl Files for ReadRoots {
    fn roots(&self) -> Vec<String> {
        self.roots.iter().map(|root| root.name.clone()).collect()
    }

    fn absent(&self) -> Option<String> {
        self.absent.clone()
    }

    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.ask(Operation::Walk, cancel)
    }

    fn sources(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        let mut listing = self.walk(cancel)?;
        let is_in =
            |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        listing.files.retain(|file| !self.no_sources.iter().any(|directory| is_in(&file.path, directory)));
        Ok(listing)
    }

    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        let (file, meta) = self.open_file(path, max)?;
        whole(file, meta.len(), path, max)
    }

    fn listed_bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        let (root, inner) = self.locate(path)?;
        if Rules::is_hidden(root, inner) {
            return Err(hidden(path));
        }
        let (file, meta) = Self::open_in(root, inner, path, max)?;
        whole(file, meta.len(), path, max)
    }

    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError> {
        let (mut file, _) = self.open_file(path, MAX_FILE_BYTES)?;
        let failed = |error| unreadable(path, &error);
        let sample = charset::sample(&mut file).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if charset::is_binary(&sample) {
            return Err(ToolError::InvalidInput(format!("{path:?} is a binary file")));
        }
        let mut decoder = DecodeReaderBytesBuilder::new();
        let encoding = Some(charset::encoding(&sample, None)).filter(|encoding| *encoding != UTF_8);
        let decoder = decoder.encoding(encoding).utf8_passthru(true).strip_bom(true).build(file);
        let mut reader = BufReader::with_capacity(PIECE_BYTES, decoder);
        let first = offset.max(1);
        let mut text = String::new();
        for number in 1..first.saturating_add(limit) {
            let Some(line) = read_line(&mut reader).map_err(failed)? else {
                if number <= first && first > 1 {
                    return Err(ToolError::InvalidInput(format!("{path:?} has {} lines", number - 1)));
                }
                break;
            };
            if number < first {
                continue;
            }
            let content = String::from_utf8_lossy(&line);
            let (shown, whole) = cut(content.trim_end_matches('\r'), MAX_LINE_CHARS);
            if text.len() + shown.len() > MAX_READ_BYTES {
                text.push_str(&format!("(cut here: go on with offset {number})\n"));
                break;
            }
            text.push_str(&format!("{number:>6}\t{shown}{}\n", if whole { "" } else { " (cut)" }));
        }
        Ok(text)
    }

    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError> {
        self.ask(Operation::Grep(request.clone()), cancel)
    }

    fn glob(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError> {
        let (pattern, directory) = (pattern.to_owned(), directory.map(str::to_owned));
        self.ask(Operation::Glob { pattern, directory, limit }, cancel)
    }
}

/// Whether a document has text, judged by its beginning; the error has the reason that it is not read.
fn has_text(file: &VisibleFile<'_>) -> Result<bool, Reason> {
    document_format(&file.entry)?;
    let opened = open(file.dir, file.name).map_err(|_| Reason::Denied)?;
    let mut head = Vec::new();
    opened.take(charset::HEAD_BYTES as u64).read_to_end(&mut head).map_err(|_| Reason::Denied)?;
    if charset::is_binary(&head) { Err(Reason::Binary) } else { Ok(!head.trim_ascii().is_empty()) }
}

fn newest_first(files: &mut [FileEntry]) {
    files.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
}
