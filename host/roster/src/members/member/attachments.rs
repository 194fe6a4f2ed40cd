//! Reads the files that come with a dispatch.

use guild_contract::{
    Limits,
    rpc::{Attachment, RpcError},
};
use guild_jobs::{ATTACHMENTS, AttachedBytes, Names, Staged};

/// The most directories in the path of a file.
const DEPTH: usize = 8;

/// Decodes the files, within the limits.
///
/// # Errors
///
/// Returns -32602, which names the file and the field.
pub(super) fn read(attachments: Vec<Attachment>, limits: &Limits) -> Result<Vec<AttachedBytes>, RpcError> {
    let most = limits.attachments as usize;
    if attachments.len() > most {
        let why = format!(
            "`attachments` has {} files, more than {} = {most}",
            attachments.len(),
            Limits::cited("attachments")
        );
        return Err(RpcError::invalid_params(why));
    }
    let (mut files, mut bytes): (Vec<AttachedBytes>, u64) = (Vec::new(), 0);
    for (index, attachment) in attachments.into_iter().enumerate() {
        let path = attachment.path.clone();
        let refused = |why: &str| RpcError::invalid_params(format!("`attachments[{index}]`: {why}"));
        let names = Names::within(&path, DEPTH).map_err(|e| refused(&e.to_string()))?;
        if names.as_slice().iter().any(|name| name.starts_with('.')) {
            return Err(refused("no name of its path may begin with a dot, since sessions read no hidden files"));
        }
        let is_within = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        if let Some(other) = files.iter().find(|file| is_within(&path, &file.path) || is_within(&file.path, &path)) {
            return Err(refused(&format!("its path is taken by {:?}", other.path)));
        }
        let content = attachment.content().ok_or_else(|| refused("it needs either `text`, or `data` in base64"))?;
        bytes = bytes.saturating_add(content.len() as u64);
        if bytes > limits.attachments_bytes {
            let limit = Limits::cited("attachments_bytes");
            let why = format!("`attachments` has more bytes together than {limit} = {}", limits.attachments_bytes);
            return Err(RpcError::invalid_params(why));
        }
        files.push(AttachedBytes { path, bytes: content });
    }
    Ok(files)
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
