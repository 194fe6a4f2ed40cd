//! The home of a hall: one directory, which one process owns.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, MetadataExt as _};
use guild_jobs::{
    durable::{if_there, open_dir, open_directory, read_whole},
    file_lock::FileLock,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::{getegid, geteuid},
};

use crate::error::HallError;

/// The list of projects, which the original writes too.
pub const SETTINGS: &str = "config.yaml";
/// Where the API answers.
pub const SOCKET: &str = "guild-hall.sock";
/// The process that answers there, as the original has it: a number.
pub const PID: &str = "guild-hall.sock.pid";
/// The roster where none is named.
pub const PACKAGES: &str = "packages";
/// The most that is read of [`PID`].
const MAX_PID_BYTES: u64 = 64;
/// The user who can change everything in any case.
const ROOT: u32 = 0;
/// The write permissions of a file's group, and of everybody.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// The file that the owner locks.
const LOCK: &str = ".lock";
/// How long a host that was killed may take to be gone with all that it had started.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Files that are not yet where they belong.
const NEW: &str = "state/new";
/// What is kept of commissions.
pub(crate) const COMMISSIONS: &str = "state/commissions";
/// What is kept of meetings.
pub(crate) const MEETINGS: &str = "state/meetings";
/// What was said in the meetings that are open, for people to read.
const TRANSCRIPTS: &str = "meetings";
/// What is kept of pull requests.
const PULLS: &str = "state/pr-pending";

/// A home that this process owns, until it is dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    dir: Arc<Dir>,
    _lock: FileLock,
}

impl Home {
    /// Opens a home, and makes it if there is none.
    ///
    /// # Errors
    /// Where another process owns it, also one of the original.
    pub fn open(path: &Path) -> Result<Self, HallError> {
        let name = path.display();
        let doing = || format!("the hall's home {name} cannot be opened");
        Self::make(path)?;
        let path = fs::canonicalize(path).map_err(HallError::io(doing()))?;
        // Not by its path alone, so that what is renamed in it can be synced.
        let dir = open_directory(&path).and_then(|dir| open_dir(&dir, ".")).map_err(HallError::io(doing()))?;
        let dir = Arc::new(dir);
        check_private(&path, &dir)?;
        let until = Instant::now() + PATIENCE;
        let lock = loop {
            match FileLock::try_acquire(&dir, LOCK).map_err(HallError::io(doing()))? {
                None if Instant::now() < until => thread::sleep(POLL),
                lock => break lock,
            }
        };
        let Some(lock) = lock else {
            return Err(HallError::Conflict(format!(
                "another host{} serves the hall in {name}; use that one, or end it first",
                said_owner(&dir)
            )));
        };
        // A hall of the original holds no lock. Its number alone could be that of another process by now.
        if is_served(&path.join(SOCKET)).map_err(HallError::io(doing()))? {
            return Err(HallError::Conflict(format!(
                "another hall{} listens on {SOCKET} in {name}; use that one, or end it first",
                said_owner(&dir)
            )));
        }
        Ok(Self { path, dir, _lock: lock })
    }

    /// Makes what a home has and this one has not. Nobody else can read a new one.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn make(path: &Path) -> Result<(), HallError> {
        let made = private_dir(path).and_then(|()| {
            let dir = open_directory(path)?;
            [NEW, COMMISSIONS, MEETINGS, TRANSCRIPTS, PULLS, "projects", "worktrees", PACKAGES]
                .into_iter()
                .try_for_each(|part| dir.create_dir_all(part))
        });
        made.map_err(HallError::io(format!("the hall's home {} cannot be made", path.display())))
    }

    /// Its path, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// What is kept of commissions.
    pub(crate) fn commissions(&self) -> Result<Dir, HallError> {
        open_dir(&self.dir, COMMISSIONS).map_err(HallError::io(COMMISSIONS))
    }

    /// What is kept of meetings.
    pub(crate) fn meetings(&self) -> Result<Dir, HallError> {
        open_dir(&self.dir, MEETINGS).map_err(HallError::io(MEETINGS))
    }

    /// The transcripts of open meetings, for people to read.
    pub(crate) fn transcripts(&self) -> Result<Dir, HallError> {
        open_dir(&self.dir, TRANSCRIPTS).map_err(HallError::io(TRANSCRIPTS))
    }

    /// What is kept of pull requests.
    pub(crate) fn pulls(&self) -> Result<Dir, HallError> {
        open_dir(&self.dir, PULLS).map_err(HallError::io(PULLS))
    }

    /// A directory on the same file system as all worktrees, for files that are not yet where they belong.
    pub(crate) fn new_files(&self) -> Result<Dir, HallError> {
        open_dir(&self.dir, NEW).map_err(HallError::io(NEW))
    }

    /// Removes what a crash left behind: worktrees that were being removed, and files that never came where they belong. It
    /// blocks.
    pub(crate) fn sweep(&self) {
        let log = |path: &Path, e: std::io::Error| tracing::warn!("{} cannot be swept: {e}", path.display());
        let projects = fs::read_dir(self.path.join("worktrees")).into_iter().flatten().flatten();
        let worktrees =
            projects.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        for dir in worktrees.chain([self.path.join("projects")]) {
            if let Err(e) = guild_git::sweep_removed(&dir) {
                log(&dir, e);
            }
        }
        let new = self.path.join(NEW);
        for entry in fs::read_dir(&new).into_iter().flatten().flatten() {
            if let Err(e) = fs::remove_file(entry.path()) {
                log(&entry.path(), e);
            }
        }
    }

    /// The integration worktree of a project.
    pub(crate) fn integration(&self, project: &str) -> PathBuf {
        self.path.join("projects").join(project)
    }

    /// The worktree of an activity of a project.
    pub(crate) fn worktree(&self, project: &str, activity: &str) -> PathBuf {
        self.path.join("worktrees").join(project).join(activity)
    }
}

/// Makes a directory that nobody else can read, if there is none.
fn private_dir(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| std::io::Error::other("it has no name"))?;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    match open_directory(parent)?.create_dir_with(name, &builder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Refuses a home that others can change: they could have decided which projects there are.
fn check_private(path: &Path, dir: &Dir) -> Result<(), HallError> {
    let doing = format!("{} cannot be looked at", path.display());
    let parts = [
        (path.to_owned(), Some(dir.dir_metadata())),
        (path.join(SETTINGS), if_there(dir.metadata(SETTINGS)).transpose()),
    ];
    for (path, found) in parts {
        let Some(found) = found else { continue };
        let found = found.map_err(HallError::io(doing.clone()))?;
        let (path, user) = (path.display(), geteuid().as_raw());
        if found.uid() != user && found.uid() != ROOT {
            return Err(HallError::Conflict(format!(
                "{path} belongs to another user, who could have decided what the hall does; `chown {user} {path}` after a \
                 look at what is in it"
            )));
        }
        // The group of the user alone, which many systems give each user, is not others.
        let group_writes = found.mode() & GROUP_WRITES != 0 && found.gid() != getegid().as_raw();
        if group_writes || found.mode() & ALL_WRITE != 0 {
            return Err(HallError::Conflict(format!(
                "other users can write {path}, and so could have decided what the hall does; `chmod go-w {path}` after a \
                 look at what is in it"
            )));
        }
    }
    Ok(())
}

/// The process that the home's own files name, for an error.
fn said_owner(dir: &Dir) -> String {
    let pid = read_whole(dir, PID, MAX_PID_BYTES).ok().flatten().and_then(|(text, _)| String::from_utf8(text).ok());
    let pid = pid.and_then(|text| text.trim().parse::<u32>().ok());
    pid.map_or_else(String::new, |pid| format!(", process {pid}"))
}

/// Whether somebody listens on a Unix socket.
fn is_served(path: &Path) -> io::Result<bool> {
    // A path that is too long is of no socket.
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(false) };
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(&socket, &address) {
        // As many connections as it takes wait to be accepted.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(_) => Ok(false),
    }
}
