//! Locks and replaces the files next to `guild.toml`: `guild.lock`, `guild.trust`, `guild.tokens`, `guild.seal`.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use guild_fs::{
    durable::{Survives, Write, open_dir, open_directory, remove_temporary, replace_as},
    file_lock::FileLock,
    fingerprint::Fingerprint,
};

/// The file that is locked while one of the other files is changed.
const LOCK: &str = ".guild-lock";
/// The files that are changed under the lock: pins and approvals, hashes of tokens, the key of seals.
const FILES: [&str; 3] = ["guild.lock", "guild.tokens", "guild.seal"];

/// The longest wait for other processes to change a file. Each change takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(2);

/// A lock of the directory of `guild.toml`, under which its files are changed. It is the operating system's lock on a
/// file there that other users cannot open, and ends with the process.
pub struct DirectoryLock {
    dir: Arc<Dir>,
    _lock: FileLock,
}

impl DirectoryLock {
    /// Waits for the lock of a directory, and creates the directory if it is missing.
    pub fn acquire(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let dir = Arc::new(open_dir(&open_directory(directory)?, ".")?);
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = FileLock::try_acquire(&dir, LOCK)? {
                FILES.into_iter().try_for_each(|file| remove_temporary(&dir, file))?;
                return Ok(Self { dir, _lock: lock });
            }
            if Instant::now() >= until {
                let why = format!("another process has held the lock of its file {LOCK} for too long");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(POLL);
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Replaces or creates a file with that mode, atomically: readers see the old or the new file, even after a crash.
    pub fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<Fingerprint> {
        replace_as(&self.dir, name, bytes, Write { mode, survives: Survives::PowerCut })
    }
}
