//! Lists a directory some entries at a time: a directory of a million takes no more memory than one of a hundred.

use std::collections::VecDeque;

use cap_std::fs::{DirEntry, FileType, FileTypeExt, ReadDir};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::streams::StreamReservation;

/// Entries that are read at a time. They take at most some [`BUFFER`](super::streams::BUFFER) bytes.
const AT_A_TIME: usize = 128;

/// A listing that `read-directory` began.
pub(crate) struct Listing {
    /// The source of the next entries, unless they are being read.
    pub(super) rest: Option<ReadDir>,
    /// Entries that were read, and that the component has not received yet.
    pub(super) read: Entries,
    _reservation: StreamReservation,
}

type Entries = VecDeque<Result<DirectoryEntry, ErrorCode>>;

impl Listing {
    pub(crate) fn new(entries: ReadDir, reservation: StreamReservation) -> Self {
        Self { rest: Some(entries), read: VecDeque::new(), _reservation: reservation }
    }
}

/// Reads the next entries; it blocks.
pub(crate) fn read(mut rest: ReadDir) -> (ReadDir, Entries) {
    let read = rest.by_ref().take(AT_A_TIME).map(|entry| to_wit(&entry?)).collect();
    (rest, read)
}

fn to_wit(entry: &DirEntry) -> Result<DirectoryEntry, ErrorCode> {
    let type_ = descriptor_type(entry.file_type()?);
    let name = entry.file_name().into_string().map_err(|_| ErrorCode::IllegalByteSequence)?;
    Ok(DirectoryEntry { type_, name })
}

fn descriptor_type(kind: FileType) -> DescriptorType {
    if kind.is_file() {
        DescriptorType::RegularFile
    } else if kind.is_dir() {
        DescriptorType::Directory
    } else if kind.is_symlink() {
        DescriptorType::SymbolicLink
    } else if kind.is_block_device() {
        DescriptorType::BlockDevice
    } else if kind.is_char_device() {
        DescriptorType::CharacterDevice
    } else if kind.is_fifo() {
        DescriptorType::Fifo
    } else {
        DescriptorType::Unknown
    }
}
