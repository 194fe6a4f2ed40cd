//! Reads a component's bytes from a file.

use std::io::{self, Read};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use guild_contract::text::hex;
use guild_inspect::Outside;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::error::LoadError;

/// Characters of a link's target that an error shows.
const TARGET_CHARS: usize = 200;

/// A component that may be loaded: its bytes, read once, so that the approved bytes are the compiled ones.
pub struct Candidate {
    /// The file's bytes.
    pub bytes: Bytes,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// Their imports and exports.
    pub outside: Outside,
}

impl Candidate {
    /// Reads a component's file, of at most `max` bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too large, or is no component.
    pub fn read(member: &Dir, file: &str, max: u64) -> Result<Self, LoadError> {
        Self::of(read(member, file, max)?)
    }

    /// The SHA-256 in lower-case hexadecimal, as `sha256sum` prints it.
    pub fn hash(&self) -> String {
        hex(&self.sha256)
    }

    /// A candidate of these bytes.
    ///
    /// # Errors
    ///
    /// The bytes are no component.
    pub fn of(bytes: Vec<u8>) -> Result<Self, LoadError> {
        let outside = guild_inspect::outside(&bytes)?;
        Ok(Self { sha256: Sha256::digest(&bytes).into(), outside, bytes: bytes.into() })
    }
}

/// Reads a component's file, a regular one inside the member's directory of at most `max` bytes.
fn read(member: &Dir, file: &str, max: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |why: String| LoadError::Read { file: file.to_owned(), why };
    let mut options = OpenOptions::new();
    // A pipe in its place is opened without waiting for a writer, and refused.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = member.open_with(file, &options).map_err(|e| failed(why_not_opened(member, file, &e)))?;
    let found = opened.metadata().map_err(|e| failed(e.kind().to_string()))?;
    if !found.is_file() {
        let what = if found.is_dir() { "a directory" } else { "no regular file" };
        return Err(failed(format!("it is {what}; name the component's file in `component.file` of the manifest")));
    }
    // The file's size is only a hint; the number of bytes read decides.
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(max)).unwrap_or_default());
    opened.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| failed(e.kind().to_string()))?;
    if bytes.len() as u64 > max {
        return Err(LoadError::TooLarge { file: file.to_owned(), max });
    }
    Ok(bytes)
}

/// The reason that a file was not opened: the part of its path, and its type. All paths are relative to the member's
/// directory.
fn why_not_opened(member: &Dir, file: &str, error: &io::Error) -> String {
    let ends = file.match_indices('/').map(|(at, _)| at).chain([file.len()]);
    for part in ends.filter_map(|end| file.get(..end)) {
        let found = match member.symlink_metadata(part) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return format!("`{part}` does not exist in the member's directory");
            }
            Err(e) => return format!("`{part}` in the member's directory: {}", e.kind()),
        };
        if found.is_symlink() {
            let target = member.read_link_contents(part).unwrap_or_default();
            let target: String =
                target.to_string_lossy().chars().flat_map(char::escape_debug).take(TARGET_CHARS).collect();
            let leads = match member.metadata(part) {
                Ok(_) if error.kind() == io::ErrorKind::PermissionDenied => "whose file this user may not read",
                Ok(_) => continue,
                Err(e) if e.kind() == io::ErrorKind::NotFound => "which leads to nothing",
                Err(_) => "which leads out of the member's directory, or cannot be followed",
            };
            return format!("`{part}` is a symbolic link to {target}, {leads}; put the file itself there");
        }
        if !found.is_dir() && part.len() < file.len() {
            return format!("`{part}` in the member's directory is no directory");
        }
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("this user may not read `{file}` in the member's directory; `chmod +r` it")
        }
        kind => format!("`{file}` in the member's directory: {kind}"),
    }
}
