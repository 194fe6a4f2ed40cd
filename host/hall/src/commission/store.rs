//! Where commissions are kept: a file of each, and its record in a worktree.

use std::{io, path::Path};

use cap_std::fs::Dir;
use guild_jobs::durable::{
    ANYBODY, Survives, open_dir, open_directory, open_or_make_dir, read_whole, replace, replace_from,
};

use super::{Commission, CommissionId, record};
use crate::error::HallError;

/// A state or a record that is larger is none.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The commissions that are kept, and why others are not read.
pub(crate) fn load(dir: &Dir) -> io::Result<Vec<Commission>> {
    let mut found = Vec::new();
    for entry in dir.entries()? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        if id.parse::<CommissionId>().is_err() {
            continue;
        }
        let read = read_whole(dir, &name, MAX_BYTES).and_then(|read| match read {
            Some((bytes, _)) => Ok(Some(serde_json::from_slice::<Commission>(&bytes)?)),
            None => Ok(None),
        });
        match read {
            Ok(Some(commission)) if commission.commission_id.as_str() == id => found.push(commission),
            Ok(Some(_)) => {
                tracing::error!(id, "state/commissions: the file names another commission; it is left alone")
            }
            Ok(None) => {}
            // The original's has no record: the one in the project is read.
            Err(e) => tracing::warn!(id, "state/commissions: the file is left alone: {e}"),
        }
    }
    Ok(found)
}

/// Keeps a commission. It survives a power cut.
pub(crate) fn save(dir: &Dir, commission: &Commission) -> io::Result<()> {
    let json = serde_json::to_vec_pretty(commission)?;
    replace(dir, &format!("{}.json", commission.commission_id), &json, Survives::PowerCut).map(drop)
}

/// Forgets a commission that was never told of.
pub(crate) fn forget(dir: &Dir, id: &CommissionId) {
    if let Err(e) = dir.remove_file(format!("{id}.json")) {
        tracing::warn!(%id, "state/commissions: the file cannot be removed: {e}");
    }
}

/// Writes the record of a commission into a worktree. The file is made in `new`, so that nobody commits half of it.
pub(crate) fn write_record(new: &Dir, worktree: &Path, commission: &Commission) -> Result<(), HallError> {
    let id = &commission.commission_id;
    let doing = || format!("the record of {id} cannot be written");
    let text =
        commission.record.render(commission.status).map_err(|e| HallError::Invalid(format!("{}: {e}", doing())))?;
    let [lore, work, commissions, file] = record::path(id);
    let written = open_directory(worktree).and_then(|mut dir| {
        for name in [lore, work, commissions] {
            dir = open_or_make_dir(&dir, name)?;
        }
        replace_from(new, id.as_str(), (&dir, file.as_ref()), text.as_bytes(), (ANYBODY, Survives::Process))
    });
    written.map(drop).map_err(HallError::io(doing()))
}

/// The text of a record in a worktree; `None` if there is none. Those of older projects are in `.lore/commissions`.
pub(crate) fn read_record(worktree: &Path, id: &CommissionId) -> io::Result<Option<String>> {
    for dir in record_dirs(worktree)? {
        if let Some((bytes, _)) = read_whole(&dir, id.file(), MAX_BYTES)? {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(None)
}

/// The commissions that have a record in a worktree.
pub(crate) fn recorded(worktree: &Path) -> io::Result<Vec<CommissionId>> {
    let mut found: Vec<CommissionId> = Vec::new();
    for dir in record_dirs(worktree)? {
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".md")).and_then(|name| name.parse().ok());
            if let Some(id) = id
                && entry.file_type()?.is_file()
                && !found.contains(&id)
            {
                found.push(id);
            }
        }
    }
    Ok(found)
}

/// The directories that have records, those that are there.
fn record_dirs(worktree: &Path) -> io::Result<Vec<Dir>> {
    let top = open_directory(worktree)?;
    let open = |path: &[&str]| {
        let mut dir = top.try_clone()?;
        for name in path {
            dir = open_dir(&dir, name)?;
        }
        Ok(dir)
    };
    let found = [open(&[".lore", "work", "commissions"]), open(&[".lore", "commissions"])];
    // A link in the place of a directory is no directory.
    Ok(found.into_iter().flat_map(|dir: io::Result<Dir>| dir).collect())
}
