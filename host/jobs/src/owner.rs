//! Locks a member's directory for its owner: one host owns a member.
//!
//! The lock is the operating system's and ends with the process. It is on the file `.lock` in the directory, which
//! other users cannot open. If that file is removed, the process that the file `.owner` names is still the owner, as
//! long as it is alive and has the directory open. The time when a process started distinguishes it from a later one
//! with the same id.

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use cap_std::{
    fs::{Dir, MetadataExt as _},
    time::SystemTime,
};
use guild_fs::{
    durable::{ANYBODY, Survives, Write, open_dir, read_whole, remove_temporary, replace_as},
    file_lock::FileLock,
};
use guild_session::process::start_time;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Timestamps, UTIME_NOW, utimensat},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The file in a member's directory.
const OWNER: &str = ".owner";
/// The file that is locked, in the same directory.
const LOCK: &str = ".lock";
/// Bytes of the file that are read at most.
const MAX_OWNER_BYTES: u64 = 4096;
/// The file in the same directory about the way in which the owner serves the member; other users cannot read it.
const NOTE: &str = ".host";
/// Its mode.
const PRIVATE: u32 = 0o600;
/// Bytes of it that are read at most.
const MAX_NOTE_BYTES: u64 = 1 << 20;
/// How long the process that holds the lock may take to write `.owner`, or to release the lock if it only tested it.
const PATIENCE: Duration = Duration::from_millis(200);
/// The interval between two attempts.
const POLL: Duration = Duration::from_millis(5);
/// How long a process may take to end after `SIGKILL`.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// The owner of a member, by its `.owner`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process; 0 if the owner has not written it yet.
    pub pid: u32,
    /// The start time of the process, in the system's clock ticks since boot.
    pub started: u64,
    /// The URL at which it answers; empty if it does not, or not yet.
    pub url: String,
}

/// Another user of this machine, whose lock file is in a member's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "locked by the user with the id {0}; stop that user's host of it, or, where none runs any more, remove the file \
     {LOCK} from the member's directory"
)]
pub struct OtherUser(pub u32);

/// The way in which an owner serves a member, for other processes of the same user; see [`OwnerLock::set_note`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note<T> {
    /// The process that wrote it.
    pub pid: u32,
    /// The start time of the process; see [`Owner::started`].
    pub started: u64,
    /// The way in which it serves the member.
    pub serving: T,
}

impl<T: DeserializeOwned> Note<T> {
    /// The last note in the directory `member`, if there is one. Its process may have ended: see [`Owner::note`].
    ///
    /// # Errors
    ///
    /// Returns an error when the note cannot be read or parsed. Another user's note is `PermissionDenied`.
    pub fn last(member: &Dir) -> io::Result<Option<Self>> {
        let Some((text, _)) = read_whole(member, NOTE, MAX_NOTE_BYTES)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

/// The ownership of a member, until it is dropped.
#[derive(Debug)]
pub struct OwnerLock {
    /// The member's directory.
    dir: Arc<Dir>,
    /// Dropped last: the lock is released after `.owner` is removed.
    _lock: FileLock,
}

/// Shows that an owner is alive, by the time of its `.owner`, which needs no descriptor, no connection and no disk
/// space. It ends with the ownership.
#[derive(Debug)]
pub struct Pulse(Weak<Dir>);

impl Pulse {
    /// Updates the time; `false` if the ownership has ended.
    pub fn beat(&self) -> bool {
        let Some(dir) = self.0.upgrade() else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // After a failure, the next one may succeed.
        let _ = utimensat(&dir, OWNER, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty());
        true
    }
}

impl OwnerLock {
    /// Becomes the owner of the member in the directory `member`, or returns the present owner. It waits at most a
    /// fifth of a second for an owner that has not written its name yet. `url` is the address at which the owner
    /// answers; it may be empty, and be set later by [`Self::set_url`].
    pub fn try_acquire(member: &Dir, url: &str) -> io::Result<Result<Self, Owner>> {
        let dir = Arc::new(open_dir(member, ".")?);
        let lock = match lock_or_owner(&dir, || FileLock::try_acquire(&dir, LOCK))? {
            Ok(lock) => lock,
            Err(owner) => return Ok(Err(owner)),
        };
        let named = read_owner(&dir);
        if named.pid != std::process::id() && named.is_alive() && named.has_open(&dir) {
            // The file that the owner locked was removed.
            return Ok(Err(named));
        }
        remove_temporary(&dir, OWNER)?;
        // The note of a process that has ended is ignored, so it does no harm if it cannot be removed.
        let _ = dir.remove_file(NOTE);
        let held = Self { dir, _lock: lock };
        held.set_url(url)?;
        Ok(Ok(held))
    }

    /// Shows that this owner is alive.
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::downgrade(&self.dir))
    }

    /// Sets the URL at which this owner answers.
    pub fn set_url(&self, url: &str) -> io::Result<()> {
        let (pid, started) = this_process();
        self.write(OWNER, &Owner { pid, started, url: url.to_owned() }, ANYBODY)
    }

    /// Records the way in which the member is served, for other processes of this user. Other users cannot read it. One
    /// thread at a time may call it.
    pub fn set_note(&self, serving: &impl Serialize) -> io::Result<()> {
        let (pid, started) = this_process();
        self.write(NOTE, &Note { pid, started, serving }, PRIVATE)
    }

    fn write(&self, name: &str, value: &impl Serialize, mode: u32) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        replace_as(&self.dir, name, &text, Write { mode, survives: Survives::Process })
            .map_err(|e| io::Error::new(e.kind(), format!("could not write {name}: {e}")))?;
        Ok(())
    }
}

/// This process's id and start time.
fn this_process() -> (u32, u64) {
    let pid = std::process::id();
    (pid, start_time(pid).unwrap_or(0))
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // The files would name a process that is no longer the owner.
        let _ = self.dir.remove_file(NOTE);
        let _ = self.dir.remove_file(OWNER);
    }
}

/// The result of `try_lock`, or the owner of the lock. If the named owner is not alive, another process has the lock
/// and is about to write its name, or to release the lock.
fn lock_or_owner<T>(dir: &Dir, try_lock: impl Fn() -> io::Result<Option<T>>) -> io::Result<Result<T, Owner>> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = try_lock()? {
            return Ok(Ok(lock));
        }
        let owner = read_owner(dir);
        if owner.is_alive() || Instant::now() >= until {
            return Ok(Err(owner));
        }
        std::thread::sleep(POLL);
    }
}

/// The owner that the file names; the default if it cannot be read.
fn read_owner(dir: &Dir) -> Owner {
    let text = read_whole(dir, OWNER, MAX_OWNER_BYTES).ok().flatten();
    text.and_then(|(text, _)| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

impl Owner {
    /// The owner of the member in the directory `member`, if it has one. It changes nothing there, and needs no
    /// permission to write. Like [`OwnerLock::try_acquire`], it may take a fifth of a second.
    pub fn of(member: &Dir) -> io::Result<Option<Self>> {
        let dir = open_dir(member, ".")?;
        let is_free = || match FileLock::is_held(&dir, LOCK) {
            // The lock is another user's: only `.owner` can be read.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok((!read_owner(&dir).is_alive()).then_some(())),
            held => Ok((!held?).then_some(())),
        };
        Ok(lock_or_owner(&dir, is_free)?.err())
    }

    /// The way in which this owner serves the member in the directory `member`, if it has recorded that yet.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Note::last`].
    pub fn note<T: DeserializeOwned>(&self, member: &Dir) -> io::Result<Option<T>> {
        let note = Note::last(member)?.filter(|note| (note.pid, note.started) == (self.pid, self.started));
        Ok(note.map(|note| note.serving))
    }

    /// The other user whose lock file is in the member's directory and cannot be opened by this process: that user's
    /// host owns the member, or ended without removing the file.
    pub fn other_user(member: &Dir) -> Option<OtherUser> {
        let found = member.symlink_metadata(LOCK).ok()?;
        let is_refused =
            || matches!(FileLock::is_held(member, LOCK), Err(e) if e.kind() == io::ErrorKind::PermissionDenied);
        (found.uid() != geteuid().as_raw() && is_refused()).then_some(OtherUser(found.uid()))
    }

    /// The time at which the owner of the member in the directory `member` last showed that it is alive; see [`Pulse`].
    pub fn last_beat(member: &Dir) -> Option<SystemTime> {
        member.symlink_metadata(OWNER).and_then(|found| found.modified()).ok()
    }

    /// Whether the process has the member's directory open, as every owner has. Every user who can write in the
    /// directory can write `.owner`, so a process must not be ended only because it is named there. `false` if its open
    /// files cannot be read.
    pub fn has_open(&self, member: &Dir) -> bool {
        let Ok(own) = member.dir_metadata() else { return false };
        let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return false };
        open.flatten().any(|entry| {
            let found = std::fs::metadata(entry.path());
            found.is_ok_and(|found| {
                use std::os::unix::fs::MetadataExt as _;
                (found.dev(), found.ino()) == (own.dev(), own.ino())
            })
        })
    }

    /// Whether the process is alive. A later process with the same id, and one that waits to be reaped, do not count.
    pub fn is_alive(&self) -> bool {
        self.pid != 0 && start_time(self.pid) == Some(self.started)
    }

    /// Ends that process by `SIGTERM`, and after `grace` by `SIGKILL`. Returns when it has ended.
    ///
    /// # Errors
    ///
    /// Returns an error when the process cannot be ended.
    pub fn terminate(&self, grace: Duration) -> io::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{OWNER} does not say which process it is")));
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // Checked after opening: the descriptor is of the process that has the id now.
        if !self.is_alive() {
            return Ok(());
        }
        for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, KILL_PATIENCE)] {
            match pidfd_send_signal(&process, signal) {
                Ok(()) => {}
                Err(Errno::SRCH) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            if ends_within(&process, patience)? {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }
}

/// Waits for the end of a process; false if it does not end in time.
fn ends_within(process: &rustix::fd::OwnedFd, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    Ok(retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)))? > 0)
}
