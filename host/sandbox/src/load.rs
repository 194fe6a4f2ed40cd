//! From a file to a component's bytes.

use std::io::Read;

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use guild_audit::inspect::{self, Outside};
use guild_contract::text::hex;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::error::LoadError;

/// A component that may be loaded: its bytes, read once, so that what is approved is what is compiled.
pub struct Candidate {
    /// The file's bytes.
    pub bytes: Bytes,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// What they import and export.
    pub outside: Outside,
}

impl Candidate {
    /// Reads a component's file, of at most `max` bytes.
    ///
    /// # Errors
    /// Where the file cannot be read, is too large, or is no component.
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
    /// Where they are no component.
    pub fn of(bytes: Vec<u8>) -> Result<Self, LoadError> {
        let outside = inspect::outside(&bytes)?;
        Ok(Self { sha256: Sha256::digest(&bytes).into(), outside, bytes: bytes.into() })
    }
}

/// Reads a component's file: a regular one inside the member's directory, and not larger than `max`.
fn read(member: &Dir, file: &str, max: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |why: String| LoadError::Read { file: file.to_owned(), why };
    let mut options = OpenOptions::new();
    // A pipe in its place is opened without waiting for a writer, and refused.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = member.open_with(file, &options).map_err(|e| failed(e.kind().to_string()))?;
    let found = opened.metadata().map_err(|e| failed(e.kind().to_string()))?;
    if !found.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    // The size that was found is only a hint: what counts is what is read.
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(max)).unwrap_or_default());
    opened.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| failed(e.kind().to_string()))?;
    if bytes.len() as u64 > max {
        return Err(LoadError::TooLarge { file: file.to_owned(), max });
    }
    Ok(bytes)
}
