//! Writes and lists a job's `attachments/`: the files that came with its dispatch.

use std::io;

use cap_std::fs::Dir;
use guild_contract::rpc::AttachedFile;
use guild_fs::{
    durable::{Survives, create, if_there, open_dir, open_or_make_dir, read_whole, sync_dir},
    tree::walk,
};

/// The directory's name in the job's, which is also that of the root that sessions read.
pub const ATTACHMENTS: &str = "attachments";

/// A file that comes with a dispatch.
#[derive(Clone, Debug)]
pub struct AttachedBytes {
    /// The path below `attachments/`: valid [`Names`](crate::Names).
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Writes the files of a new job. The directory exists only if there are some.
pub(crate) fn write(job: &Dir, files: &[AttachedBytes]) -> io::Result<()> {
    for AttachedBytes { path, bytes } in files {
        let mut dir = open_or_make_dir(job, ATTACHMENTS)?;
        let (parents, name) =
            path.rsplit_once('/').map_or((None, path.as_str()), |(parents, name)| (Some(parents), name));
        for parent in parents.into_iter().flat_map(|parents| parents.split('/')) {
            dir = open_or_make_dir(&dir, parent)?;
        }
        create(&dir, name, bytes, Survives::PowerCut.into())?;
        sync_dir(&dir)?;
    }
    Ok(())
}

/// The files of a job, sorted by path.
pub(crate) fn list(job: &Dir) -> io::Result<Vec<AttachedFile>> {
    let Some(root) = if_there(open_dir(job, ATTACHMENTS))? else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for found in walk(&root) {
        let found = found?;
        if let (true, Some(path)) = (found.kind.is_file(), found.path.to_str()) {
            let bytes = root.symlink_metadata(&found.path)?.len();
            files.push(AttachedFile { path: format!("{ATTACHMENTS}/{path}"), bytes });
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Reads the files of a job.
///
/// # Errors
///
/// Returns an error when a file cannot be read, or has more than `max` bytes.
pub(crate) fn read(job: &Dir, max: u64) -> io::Result<Vec<AttachedBytes>> {
    let mut files = Vec::new();
    for AttachedFile { path, .. } in list(job)? {
        // A file that was removed meanwhile is none of the job's any more.
        let Some((bytes, _)) = read_whole(job, &path, max)? else { continue };
        let path = path.trim_start_matches(ATTACHMENTS).trim_start_matches('/').to_owned();
        files.push(AttachedBytes { path, bytes });
    }
    Ok(files)
}

/// Whether a job has files.
pub(crate) fn are_there(job: &Dir) -> bool {
    job.symlink_metadata(ATTACHMENTS).is_ok_and(|found| found.is_dir())
}
