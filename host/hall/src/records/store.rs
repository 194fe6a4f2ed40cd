//! Reads and writes the files of commissions and meetings: below `state/` of the home, and the records in worktrees.

use std::{collections::BTreeMap, io, path::Path};

use cap_std::fs::Dir;
use guild_contract::OperationError;
use guild_fs::durable::{Survives, open_dir, open_directory, open_or_make_dir, read_whole, replace, replace_from};

use super::HallRecord;
use crate::files::{is_of_host, protected::LORE};

/// The directory of the records of all kinds, below [`LORE`].
const WORK: &str = "work";

/// The size above which a file cannot be a state or a record. The texts of a record are bounded so that no escaping
/// makes it larger.
const MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Reads all files. Unreadable files are logged and skipped.
pub(crate) fn load<T: HallRecord>(dir: &Dir) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for entry in dir.entries()? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        let Ok(named) = id.parse::<T::Id>() else { continue };
        let read = read_whole(dir, &name, MAX_BYTES).and_then(|read| match read {
            Some((bytes, _)) => Ok(Some(serde_json::from_slice::<T>(&bytes)?)),
            None => Ok(None),
        });
        match read {
            Ok(Some(record)) if *record.id() == named => found.push(record),
            Ok(Some(_)) => {
                tracing::error!(id, "state/{}: the file contains another id; it is ignored", T::RECORDS)
            }
            Ok(None) => {}
            // A file of the original has no record in it: the record in the project is read.
            Err(e) => tracing::warn!(id, "state/{}: the file is ignored: {e}", T::RECORDS),
        }
    }
    Ok(found)
}

/// Stores a record. It survives a power cut.
pub(crate) fn save<T: HallRecord>(dir: &Dir, record: &T) -> io::Result<()> {
    let json = serde_json::to_vec_pretty(record)?;
    replace(dir, &format!("{}.json", record.id()), &json, Survives::PowerCut).map(drop)
}

/// Removes the file of a record that was never announced.
pub(crate) fn forget<T: HallRecord>(dir: &Dir, id: &T::Id) {
    if let Err(e) = dir.remove_file(format!("{id}.json")) {
        tracing::warn!(%id, "state/{}: the file cannot be removed: {e}", T::RECORDS);
    }
}

/// Writes a record into a worktree. The file is created in `new`, so that no commit contains half of it.
pub(crate) fn write_record<T: HallRecord>(new: &Dir, worktree: &Path, record: &T) -> Result<(), OperationError> {
    let id = record.id();
    let doing = || format!("the record of {id} cannot be written");
    let text = record.text().map_err(|e| OperationError::Invalid(format!("{}: {e}", doing())))?;
    let written = open_directory(worktree).and_then(|mut dir| {
        for name in [LORE, WORK, T::RECORDS] {
            dir = open_or_make_dir(&dir, name)?;
        }
        let file = format!("{id}.md");
        replace_from(new, &id.to_string(), &dir, file.as_ref(), text.as_bytes(), Survives::Process.into())
    });
    match written {
        Ok(_) => Ok(()),
        Err(e) if is_of_host(e.kind()) => Err(OperationError::io(doing())(e)),
        // Another file in the project has the record's path.
        Err(e) => Err(OperationError::Conflict(format!(
            "{}: {LORE}/{WORK}/{} and its parents have to be directories, and no symbolic links ({e}); replace the \
             present files, and commit",
            doing(),
            T::RECORDS
        ))),
    }
}

/// The text of a record in a worktree; `None` if there is none.
pub(crate) fn read_record<T: HallRecord>(worktree: &Path, id: &T::Id) -> io::Result<Option<String>> {
    for (_, dir) in record_dirs::<T>(worktree)? {
        if let Some((bytes, _)) = read_whole(&dir, format!("{id}.md"), MAX_BYTES)? {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(None)
}

/// The path, from `.lore/`, of a record that the hall writes.
pub(crate) fn record_path<T: HallRecord>(id: &T::Id) -> String {
    format!("{WORK}/{}/{id}.md", T::RECORDS)
}

/// The id of the record at that path from `.lore/`; `None` if the path is not that of a record.
pub(crate) fn record_at<T: HallRecord>(path: &str) -> Option<T::Id> {
    let path = path.strip_prefix(WORK).and_then(|path| path.strip_prefix('/')).unwrap_or(path);
    path.strip_prefix(T::RECORDS)?.strip_prefix('/')?.strip_suffix(".md")?.parse().ok()
}

/// The names of the records in a worktree, with their paths from `.lore/`.
pub(crate) fn recorded<T: HallRecord>(worktree: &Path) -> io::Result<BTreeMap<T::Id, String>> {
    let mut found = BTreeMap::new();
    for (path, dir) in record_dirs::<T>(worktree)? {
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".md"));
            if let Some(id) = id.and_then(|id| id.parse::<T::Id>().ok())
                && entry.file_type()?.is_file()
            {
                let path = format!("{path}/{id}.md");
                found.entry(id).or_insert(path);
            }
        }
    }
    Ok(found)
}

/// The existing directories of records, with their paths from `.lore/`.
fn record_dirs<T: HallRecord>(worktree: &Path) -> io::Result<Vec<(String, Dir)>> {
    let top = open_directory(worktree)?;
    let open = |path: String| {
        let mut dir = open_dir(&top, LORE)?;
        for name in path.split('/') {
            dir = open_dir(&dir, name)?;
        }
        Ok((path, dir))
    };
    let found = [open(format!("{WORK}/{}", T::RECORDS)), open(T::RECORDS.to_owned())];
    // A symbolic link in the place of a directory is ignored.
    Ok(found.into_iter().flat_map(|dir: io::Result<(String, Dir)>| dir).collect())
}
