//! Files beside `guild.toml`, in which the operator's decisions are kept: `guild.lock`, `guild.trust`, `guild.tokens`,
//! `guild.seal`.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use guild_jobs::durable::{Stamp, Survives, open_dir, replace_as};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::discovery::open_directory;

/// How long others may take to change a file. Each takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const POLL: Duration = Duration::from_millis(2);
/// Everybody's write permission. That of a file's group is the operator's own to give, and usual where each user has one.
const ANYBODY_WRITES: u32 = 0o002;

/// Refuses what is decided by a file that anybody can write, by the file's mode.
pub(crate) fn check_unshared(mode: u32) -> io::Result<()> {
    if mode & ANYBODY_WRITES == 0 {
        return Ok(());
    }
    let why =
        "anybody can write it, and so could have decided what it says; `chmod o-w` it after a look at what is in it";
    Err(io::Error::other(why))
}

/// The directory of `guild.toml`, held so that nobody else changes what is in it: whoever does holds the operating
/// system's lock on it, which ends with the process.
pub(crate) struct Held {
    dir: Dir,
}

impl Held {
    /// Waits for the lock of a directory, which is made where it is missing.
    pub(crate) fn acquire(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let dir = open_dir(&open_directory(directory)?, ".")?;
        let until = Instant::now() + PATIENCE;
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { dir }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => thread::sleep(POLL),
                Err(Errno::WOULDBLOCK) => {
                    let why = "another process has held its lock for too long";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Replaces a file, or makes it, with that mode: a reader, or a crash, sees the old or the new.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<Stamp> {
        replace_as(&self.dir, name, bytes, (mode, Survives::PowerCut))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A process that is being started just now has a copy of the descriptor, so closing ours is not enough.
        let _ = flock(&self.dir, FlockOperation::Unlock);
    }
}
