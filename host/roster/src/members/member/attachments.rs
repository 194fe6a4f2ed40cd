//! Reads the files that come with a dispatch.

use guild_contract::{
    Limits,
    rpc::{Attachment, RpcError},
};
use guild_jobs::{ATTACHMENTS, AttachedBytes, Names, Staged};

/// The most directories in the path of a file.
const DEPTH: usize = 8;

/// Decodes the files of a dispatch, and adds those that came with the `earlier` job that it continues. A file of the
/// dispatch replaces an earlier one at its path.
///
/// # Errors
///
/// Returns -32602, which names the file and the field, also when all files together exceed the limits.
pub(super) fn read(
    attachments: Vec<Attachment>,
    earlier: Vec<AttachedBytes>,
    limits: &Limits,
) -> Result<Vec<AttachedBytes>, RpcError> {
    // Each file is compared with all before it.
    check_number(attachments.len(), limits)?;
    let mut files: Vec<AttachedBytes> = Vec::new();
    for (index, attachment) in attachments.into_iter().enumerate() {
        let path = attachment.path.clone();
        let refused = |why: &str| RpcError::invalid_params(format!("`attachments[{index}]`: {why}"));
        let names = Names::within(&path, DEPTH).map_err(|e| refused(&e.to_string()))?;
        if names.as_slice().iter().any(|name| name.starts_with('.')) {
            return Err(refused("no name of its path may begin with a dot, since sessions read no hidden files"));
        }
        if let Some(other) = in_the_way(&files, &path) {
            return Err(refused(&format!("its path is taken by {:?}", other.path)));
        }
        let content = attachment.content().ok_or_else(|| refused("it needs either `text`, or `data` in base64"))?;
        files.push(AttachedBytes { path, bytes: content });
    }
    let kept: Vec<_> = earlier.into_iter().filter(|file| in_the_way(&files, &file.path).is_none()).collect();
    files.extend(kept);
    check_number(files.len(), limits)?;
    let bytes = files.iter().map(|file| file.bytes.len() as u64).sum::<u64>();
    if bytes > limits.attachments_bytes {
        let limit = Limits::cited("attachments_bytes");
        let why =
            format!("the attachments have {bytes} bytes together, more than {limit} = {}", limits.attachments_bytes);
        return Err(RpcError::invalid_params(why));
    }
    Ok(files)
}

fn check_number(files: usize, limits: &Limits) -> Result<(), RpcError> {
    let most = limits.attachments as usize;
    if files <= most {
        return Ok(());
    }
    let limit = Limits::cited("attachments");
    Err(RpcError::invalid_params(format!("{files} files are attached, more than {limit} = {most}")))
}

/// The file that takes a path: it is at the path, below it, or in place of one of its directories.
fn in_the_way<'a>(files: &'a [AttachedBytes], path: &str) -> Option<&'a AttachedBytes> {
    let is_within = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
    files.iter().find(|file| is_within(path, &file.path) || is_within(&file.path, path))
}

/// The files of a dispatch under way.
#[derive(Default)]
pub(super) struct Attached {
    /// The stored files, if there are some.
    pub(super) staged: Option<Staged>,
    /// The end of the task that the worker sees, which is not stored.
    pub(super) listed: String,
}

/// The end of a task with attachments, which tells the worker of them.
pub(super) fn listed(files: &[AttachedBytes]) -> String {
    let lines = files.iter().map(|file| format!("- {ATTACHMENTS}/{} ({} bytes)\n", file.path, file.bytes.len()));
    format!("\n\n# Attached files\n\n{}", lines.collect::<String>())
}
