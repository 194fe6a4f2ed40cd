//! One owner per member: the host that holds the lock of the member's directory.
//!
//! The lock is the operating system's and ends with the process, however that ends. It is on the file `.lock` in the
//! directory, which other users cannot open; where somebody removes that, the process that the file `.owner` names is
//! still the owner, as long as it lives and has the directory open. A process is told from a later one with the same id
//! by the time it started.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use cap_std::{
    fs::{Dir, MetadataExt as _},
    time::SystemTime,
};
use guild_session::process::start_time;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Timestamps, UTIME_NOW, utimensat},
    process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    durable::{ANYBODY, Survives, open_dir, read_whole, remove_temporary, replace_as},
    file_lock::FileLock,
};

/// The file in a member's directory.
const OWNER: &str = ".owner";
/// The file that is locked beside it.
const LOCK: &str = ".lock";
/// Bytes of the file that are read at most.
const MAX_OWNER_BYTES: u64 = 4096;
/// The file beside them that other users cannot read: how the owner serves the member.
const NOTE: &str = ".host";
/// Its mode.
const PRIVATE: u32 = 0o600;
/// Bytes of it that are read at most.
const MAX_NOTE_BYTES: u64 = 1 << 20;
/// How long whoever holds the lock may take to say who that is, or to let go where it only looked.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks.
const POLL: Duration = Duration::from_millis(5);
/// How long a process may take to vanish that cannot refuse.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Who owns a member, as its `.owner` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process; 0 where the owner has not said yet who it is.
    pub pid: u32,
    /// When that process started, in the system's clock ticks since it was booted.
    pub started: u64,
    /// Where it answers; empty where it does not, or not yet.
    pub url: String,
}

/// Another user of this machine, whose lock file a member's directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherUser(pub u32);

impl fmt::Display for OtherUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(id) = self;
        write!(
            f,
            "locked by the user with the id {id}; stop that user's host of it, or, where none runs any more, remove the file \
             {LOCK} from the member's directory"
        )
    }
}

/// How an owner serves a member, as it tells other processes of its own user; see [`OwnerLock::tell`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note<T> {
    /// The process that tells it.
    pub pid: u32,
    /// When that process started; see [`Owner::started`].
    pub started: u64,
    /// What it tells.
    pub serving: T,
}

impl<T: DeserializeOwned> Note<T> {
    /// What was told last of the member whose directory `member` is; `None` where nothing was. It can be of a process that
    /// is gone: see [`Owner::note`].
    ///
    /// # Errors
    /// Where it cannot be read, as that of another user (`PermissionDenied`), or says nothing that can be understood.
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
    /// Dropped last: it is free when nobody is named any more.
    _lock: FileLock,
}

/// Says that an owner lives: by the time of its `.owner`, which needs no descriptor, no connection and no room on the
/// disk. It ends with the ownership.
#[derive(Debug)]
pub struct Pulse(Weak<Dir>);

impl Pulse {
    /// Says so now; `false` where there is no owner any more.
    pub fn beat(&self) -> bool {
        let Some(dir) = self.0.upgrade() else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // One that fails is not seen; the next may be.
        let _ = utimensat(&dir, OWNER, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty());
        true
    }
}

impl OwnerLock {
    /// Becomes the owner of the member whose directory `member` is, or says who is. It waits no longer than a fifth of a
    /// second, for an owner that has not said yet who it is. `url` is where the owner answers; it may be empty, and be
    /// told later by [`Self::set_url`].
    pub fn try_acquire(member: &Dir, url: &str) -> io::Result<Result<Self, Owner>> {
        let dir = Arc::new(open_dir(member, ".")?);
        let lock = match lock_or_owner(&dir, || FileLock::try_acquire(&dir, LOCK))? {
            Ok(lock) => lock,
            Err(owner) => return Ok(Err(owner)),
        };
        let named = read_owner(&dir);
        if named.pid != std::process::id() && named.is_alive() && named.has_open(&dir) {
            // The file that it locked was removed.
            return Ok(Err(named));
        }
        remove_temporary(&dir, OWNER)?;
        // What a process that is gone has told is not believed; where it cannot be removed, it is nobody's hindrance.
        let _ = dir.remove_file(NOTE);
        let held = Self { dir, _lock: lock };
        held.set_url(url)?;
        Ok(Ok(held))
    }

    /// What says that this owner lives.
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::downgrade(&self.dir))
    }

    /// Says where this owner answers.
    pub fn set_url(&self, url: &str) -> io::Result<()> {
        let (pid, started) = this_process();
        self.write(OWNER, &Owner { pid, started, url: url.to_owned() }, ANYBODY)
    }

    /// Tells other processes of this user how the member is served from now on. Other users cannot read it. One thread at
    /// a time may call it.
    pub fn tell(&self, serving: &impl Serialize) -> io::Result<()> {
        let (pid, started) = this_process();
        self.write(NOTE, &Note { pid, started, serving }, PRIVATE)
    }

    fn write(&self, name: &str, value: &impl Serialize, mode: u32) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        replace_as(&self.dir, name, &text, (mode, Survives::Process))
            .map_err(|e| io::Error::new(e.kind(), format!("could not write {name}: {e}")))?;
        Ok(())
    }
}

/// This process's id, and when it started.
fn this_process() -> (u32, u64) {
    let pid = std::process::id();
    (pid, start_time(pid).unwrap_or(0))
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Nobody is to be told of a process that is no longer the owner.
        let _ = self.dir.remove_file(NOTE);
        let _ = self.dir.remove_file(OWNER);
    }
}

/// What `try_lock` gives, or who has the lock. Where the one who is named lives no more, somebody else has the lock who is
/// about to say so, or about to let go.
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

/// Whom the file names; nobody where it says nothing that can be read.
fn read_owner(dir: &Dir) -> Owner {
    let text = read_whole(dir, OWNER, MAX_OWNER_BYTES).ok().flatten();
    text.and_then(|(text, _)| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

impl Owner {
    /// Who owns the member whose directory `member` is; `None` where nobody does. It changes nothing there, and works
    /// where nothing can be changed. Like [`OwnerLock::try_acquire`], it may take a fifth of a second.
    pub fn of(member: &Dir) -> io::Result<Option<Self>> {
        let dir = open_dir(member, ".")?;
        let is_free = || match FileLock::is_held(&dir, LOCK) {
            // Another user's: all that can be known is whom it names.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok((!read_owner(&dir).is_alive()).then_some(())),
            held => Ok((!held?).then_some(())),
        };
        Ok(lock_or_owner(&dir, is_free)?.err())
    }

    /// What this owner tells of how it serves the member whose directory `member` is; `None` where it has told nothing yet.
    ///
    /// # Errors
    /// See [`Note::last`].
    pub fn note<T: DeserializeOwned>(&self, member: &Dir) -> io::Result<Option<T>> {
        let note = Note::last(member)?.filter(|note| (note.pid, note.started) == (self.pid, self.started));
        Ok(note.map(|note| note.serving))
    }

    /// The other user whose lock file is in the member's directory, which this process cannot open: that user's host has the
    /// member, or did not live to remove the file.
    pub fn other_user(member: &Dir) -> Option<OtherUser> {
        let found = member.symlink_metadata(LOCK).ok()?;
        let is_refused =
            || matches!(FileLock::is_held(member, LOCK), Err(e) if e.kind() == io::ErrorKind::PermissionDenied);
        (found.uid() != geteuid().as_raw() && is_refused()).then_some(OtherUser(found.uid()))
    }

    /// When the owner of the member whose directory `member` is last said that it lives; see [`Pulse`].
    pub fn last_beat(member: &Dir) -> Option<SystemTime> {
        member.symlink_metadata(OWNER).and_then(|found| found.modified()).ok()
    }

    /// Whether the process has the member's directory open, as every owner has. The file `.owner` can be written by
    /// anybody who can write the directory; what it names must not be ended for that alone. `false` where it cannot be seen.
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

    /// Whether that very process lives: not one that has its id by now, and not one that has ended and waits to be
    /// reaped.
    pub fn is_alive(&self) -> bool {
        self.pid != 0 && start_time(self.pid) == Some(self.started)
    }

    /// Ends that very process: asks it to, and after `grace` does not ask. Returns when it has ended; at once if it
    /// had. An error if it cannot be ended.
    pub fn terminate(&self, grace: Duration) -> io::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{OWNER} does not say which process it is")));
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // The descriptor is of the process that has the id now. Only now it can be said whether that is the owner.
        if !self.is_alive() {
            return Ok(());
        }
        for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, KILL_PATIENCE)] {
            match pidfd_send_signal(&process, signal) {
                Ok(()) => {}
                Err(rustix::io::Errno::SRCH) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            if ends_within(&process, patience)? {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }
}

/// Waits for the end of a process; false if it does not come.
fn ends_within(process: &rustix::fd::OwnedFd, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
    }
}
