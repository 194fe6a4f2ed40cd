//! A directory's entries, some at a time: a directory of a million takes no more memory than one of a hundred.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use cap_std::fs::{Dir, DirEntry, FileType, FileTypeExt, ReadDir};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::streams::Kept;

/// Entries that are read at a time. They take at most some [`BUFFER`](super::streams::BUFFER) bytes.
const AT_A_TIME: usize = 128;

/// What `read-directory` began.
pub(crate) struct Listing {
    /// Where the next ones come from.
    rest: Arc<Mutex<ReadDir>>,
    read: VecDeque<Result<DirectoryEntry, ErrorCode>>,
    _kept: Kept,
}

impl Listing {
    /// Opens a directory for reading. It blocks.
    pub(crate) fn begin(dir: &Dir) -> io::Result<ReadDir> {
        dir.entries()
    }

    pub(crate) fn new(entries: ReadDir, kept: Kept) -> Self {
        Self { rest: Arc::new(Mutex::new(entries)), read: VecDeque::new(), _kept: kept }
    }

    /// An entry that was read already.
    pub(crate) fn take(&mut self) -> Option<Result<DirectoryEntry, ErrorCode>> {
        self.read.pop_front()
    }

    /// What reads the next ones; it blocks.
    pub(crate) fn more(&self) -> impl FnOnce() -> VecDeque<Result<DirectoryEntry, ErrorCode>> + use<> {
        let rest = self.rest.clone();
        move || {
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.by_ref().take(AT_A_TIME).map(|entry| told(&entry?)).collect()
        }
    }

    /// Adds what was read.
    pub(crate) fn add(&mut self, read: VecDeque<Result<DirectoryEntry, ErrorCode>>) {
        self.read = read;
    }
}

fn told(entry: &DirEntry) -> Result<DirectoryEntry, ErrorCode> {
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
