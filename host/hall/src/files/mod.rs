//! Reads and writes the files of a worktree on behalf of the host.
//!
//! Each directory in a path is opened by its own name, without following a symlink, and a file is replaced in the
//! directory that is open at that time: a directory that is swapped in meanwhile has no effect. A new file is created
//! outside of the worktree and moved there as a whole, so that no commit contains half of it.

pub(crate) mod frontmatter;
pub(crate) mod protected;

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_fs::{
    durable::{
        ANYBODY, Survives, Write, if_there, open_dir, open_directory, open_or_make_dir, read_whole, replace_from,
        sync_dir,
    },
    fingerprint::Fingerprint,
    tree::walk,
};
use guild_git::{DocumentQuota, DocumentUsage};
use guild_jobs::Names;
use guild_session::tools::ToolError;

use crate::{files::protected::LORE, home::Home};

/// The most names in a path.
pub(crate) const MAX_DEPTH: usize = 32;
/// The most bytes of a path. Git opens files by their paths, and the system accepts 4,095 bytes.
const MAX_PATH_BYTES: usize = 1024;
/// The most entries that are read for one list.
const MAX_WALKED: usize = 20_000;

/// The files of a worktree. The methods block on the file system.
pub(crate) struct Files {
    top: Dir,
    /// The directory in which new files are created.
    new: Dir,
}

/// The files below a directory.
pub(crate) struct FileList {
    /// The files' paths relative to the directory, in order.
    pub(crate) files: Vec<String>,
    /// Whether there are more entries than are read, so that some files are missing.
    pub(crate) truncated: bool,
}

/// The place of a file to write, and the state of its path.
pub(crate) struct Place<'a> {
    dir: Dir,
    missing: &'a [&'a str],
    name: &'a str,
    mode: u32,
}

impl Place<'_> {
    /// The number of directories that have to be created.
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }
}

impl Files {
    /// Opens the files of the worktree with this top directory.
    pub(crate) fn open(home: &Home, top: &Path) -> io::Result<Self> {
        // The directory is opened with read access, and not only by path, so that its renames can be synced.
        let top = open_directory(top).and_then(|top| open_dir(&top, "."))?;
        Ok(Self { top, new: home.new_files().map_err(io::Error::other)? })
    }

    /// The whole content of a file; `None` if there is none. The error is `FileTooLarge` if it has more than `max`
    /// bytes.
    pub(crate) fn read(&self, path: &Names<'_>, max: u64) -> io::Result<Option<(Vec<u8>, Fingerprint)>> {
        let [parents @ .., name] = path.as_slice() else { return Ok(None) };
        match self.directory(parents)? {
            Some(dir) => read_whole(&dir, name, max),
            None => Ok(None),
        }
    }

    /// The state of a regular file; `None` if there is no regular file at that path.
    pub(crate) fn state(&self, path: &Names<'_>) -> io::Result<Option<Fingerprint>> {
        let [parents @ .., name] = path.as_slice() else { return Ok(None) };
        let Some(dir) = self.directory(parents)? else { return Ok(None) };
        let is_file = if_there(dir.symlink_metadata(name))?.is_some_and(|about| about.is_file());
        if is_file { Fingerprint::at(&dir, name) } else { Ok(None) }
    }

    /// The files below a directory; `None` if there is no such directory.
    pub(crate) fn list(&self, path: &Names<'_>) -> io::Result<Option<FileList>> {
        let Some(dir) = self.directory(path.as_slice())? else { return Ok(None) };
        let (mut files, mut truncated) = (Vec::new(), false);
        for (n, found) in walk(&dir).enumerate() {
            truncated = n == MAX_WALKED;
            if truncated {
                break;
            }
            // Entries that cannot be read, or whose names are not UTF-8, are left out.
            let Ok(found) = found else { continue };
            let name = found.path.to_str().filter(|_| found.kind.is_file());
            files.extend(name.filter(|name| !name.contains(char::is_control)).map(str::to_owned));
        }
        files.sort_unstable();
        Ok(Some(FileList { files, truncated }))
    }

    /// The number and the size of the documents. Counting stops after `most` files.
    pub(crate) fn documents(&self, most: u64) -> io::Result<DocumentUsage> {
        let mut used = DocumentUsage::default();
        let Some(dir) = self.directory(&[LORE])? else { return Ok(used) };
        for found in walk(&dir).flatten().filter(|found| !found.kind.is_dir()) {
            used.add(&in_lore(&found.path.to_string_lossy()), found.size);
            if used.files > most {
                break;
            }
        }
        Ok(used)
    }

    /// Checks that a document of that size can be written without exceeding a quota.
    ///
    /// # Errors
    ///
    /// Returns, in the inner result, a sentence that names the limit.
    pub(crate) fn check_documents(
        &self,
        path: &Names<'_>,
        bytes: usize,
        quota: DocumentQuota,
    ) -> io::Result<Result<(), String>> {
        let old = self.state(path)?.map(|state| state.size());
        let before = self.documents(quota.files)?;
        let mut new = DocumentUsage::default();
        new.add(&text(path), bytes as u64);
        let after = DocumentUsage {
            files: if old.is_some() { before.files } else { before.files + new.files },
            bytes: before.bytes.saturating_sub(old.unwrap_or_default()).saturating_add(new.bytes),
        };
        Ok(quota.check(before, after))
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &Names<'_>) -> io::Result<()> {
        let [parents @ .., name] = path.as_slice() else { return Ok(()) };
        match self.directory(parents)? {
            Some(dir) => if_there(dir.remove_file(name)).map(drop),
            None => Ok(()),
        }
    }

    /// Finds the place of a file to write. The error is `IsADirectory` if the path exists and is not a file.
    pub(crate) fn place<'a>(&self, path: &'a Names<'_>) -> io::Result<Place<'a>> {
        let [parents @ .., name] = path.as_slice() else { return Err(ErrorKind::InvalidInput.into()) };
        let (mut dir, mut missing) = (open_dir(&self.top, ".")?, parents);
        while let [parent, rest @ ..] = missing {
            let Some(inner) = if_there(open_dir(&dir, parent))? else { break };
            (dir, missing) = (inner, rest);
        }
        let old = if missing.is_empty() { if_there(dir.symlink_metadata(name))? } else { None };
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Err(ErrorKind::IsADirectory.into());
        }
        let executable = old.is_some_and(|old| old.mode() & 0o111 != 0);
        let mode = if executable { ANYBODY | 0o111 } else { ANYBODY };
        Ok(Place { dir, missing, name, mode })
    }

    /// Writes a file, and creates the missing directories. `temporary` is the file's name until it is complete: only
    /// one writer at a time uses that name.
    pub(crate) fn put(&self, place: Place<'_>, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        let Place { mut dir, missing, name, mode } = place;
        for parent in missing {
            dir = open_or_make_dir(&dir, parent)?;
        }
        replace_from(&self.new, temporary, &dir, name.as_ref(), bytes, Write { mode, survives: Survives::PowerCut })?;
        sync_dir(&dir)
    }

    /// A directory; `None` if there is none with that path.
    fn directory(&self, names: &[&str]) -> io::Result<Option<Dir>> {
        let mut dir = open_dir(&self.top, ".")?;
        for name in names {
            let Some(inner) = if_there(open_dir(&dir, name))? else { return Ok(None) };
            dir = inner;
        }
        Ok(Some(dir))
    }
}

/// The names of a path from the top of a worktree.
///
/// # Errors
///
/// Returns an error that describes valid paths when the path is invalid.
pub(crate) fn names(path: &str) -> Result<Names<'_>, ToolError> {
    if path.len() > MAX_PATH_BYTES {
        return Err(ToolError::InvalidInput(format!("a path has at most {MAX_PATH_BYTES} bytes")));
    }
    Names::within(path, MAX_DEPTH)
}

/// Converts a caller's path below `.lore/` to a path from the top of a worktree. The caller's path may include
/// `.lore/`.
pub(crate) fn in_lore(path: &str) -> String {
    format!("{LORE}/{}", below_lore(path))
}

/// The path from `.lore/`.
pub(crate) fn below_lore(path: &str) -> &str {
    path.strip_prefix(LORE).and_then(|path| path.strip_prefix('/')).unwrap_or(path)
}

/// A path in the form in which callers write it.
pub(crate) fn text(path: &Names<'_>) -> String {
    path.as_slice().join("/")
}

/// Whether an error was caused by the host's file system, and not by the files in the worktree.
pub(crate) fn is_of_host(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull
    )
}
