//! Manages the home of a hall: one directory, which one process owns.

pub(crate) mod project_list;
pub(crate) mod settings;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, MetadataExt as _};
use guild_contract::OperationError;
use guild_fs::{
    durable::{Survives, if_there, open_dir, open_directory, read_whole, replace},
    file_lock::FileLock,
};
use guild_jobs::Owner;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::{getegid, geteuid},
};

use serde::{Deserialize, Serialize};

/// The list of projects, which the original writes too.
pub const SETTINGS: &str = "config.yaml";
/// The socket on which the API answers.
pub const SOCKET: &str = "guild-hall.sock";
/// The file with the id of the process that serves the socket, as in the original. It remains after a host was killed,
/// and the id may then belong to another process.
pub const PID: &str = "guild-hall.sock.pid";
/// The default roster.
pub const PACKAGES: &str = "packages";
/// The most bytes of [`PID`] that are read.
const MAX_PID_BYTES: u64 = 64;
/// The user who can change all files.
const ROOT: u32 = 0;
/// The write permissions of a file's group and of all users.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// The file that the owner locks.
const LOCK: &str = ".lock";
/// The longest wait until a killed host and its child processes are gone.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(20);
/// The directory of new files before they are moved to their places.
const NEW: &str = "state/new";
/// The directory of the commissions' files.
pub(crate) const COMMISSIONS: &str = "state/commissions";
/// The directory of the meetings' files.
pub(crate) const MEETINGS: &str = "state/meetings";
/// The directory of transcripts of open meetings, for people to read.
const TRANSCRIPTS: &str = "meetings";
/// The directory of the activities' worktrees, by project.
const WORKTREES: &str = "worktrees";
/// The directory of the integration worktrees, by project.
const PROJECTS: &str = "projects";
/// The directory of the notes about pull requests.
const PULLS: &str = "state/pr-pending";

/// The file with the present and former paths of the home.
const PLACE: &str = "state/place.json";
/// The most bytes of that file that are read, and the most former paths that it keeps.
const MAX_PLACE_BYTES: u64 = 256 * 1024;
const MAX_FORMER: usize = 16;

/// The present and former paths of a home: git and seals refer to its directories by absolute paths, and have to work
/// after a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    path: PathBuf,
    #[serde(default)]
    former: Vec<PathBuf>,
}

/// A home that this process owns, until it is dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    former: Vec<PathBuf>,
    dir: Arc<Dir>,
    _lock: FileLock,
}

impl Home {
    /// Opens a home, and creates it if it is missing. Its socket listens already if the service manager passed it.
    ///
    /// # Errors
    ///
    /// Returns an error when another process owns the home, including a process of the original.
    pub fn open(path: &Path, has_passed_socket: bool) -> Result<Self, OperationError> {
        let name = path.display();
        let doing = || format!("the hall's home {name} cannot be opened");
        Self::make(path)?;
        let path = fs::canonicalize(path).map_err(OperationError::io(doing()))?;
        // The directory is opened with read access, and not only by path, so that its renames can be synced.
        let dir = open_directory(&path).and_then(|dir| open_dir(&dir, ".")).map_err(OperationError::io(doing()))?;
        let dir = Arc::new(dir);
        check_private(&path, &dir)?;
        let until = Instant::now() + PATIENCE;
        let lock = loop {
            match FileLock::try_acquire(&dir, LOCK).map_err(OperationError::io(doing()))? {
                None if Instant::now() < until => thread::sleep(POLL),
                lock => break lock,
            }
        };
        let Some(lock) = lock else {
            return Err(OperationError::Conflict(format!(
                "another host{} serves the hall in {name}; use that host, or stop it first",
                named_host(&dir)
            )));
        };
        // A hall of the original holds no lock, and its process id alone could belong to another process by now.
        if !has_passed_socket && is_served(&path.join(SOCKET)).map_err(OperationError::io(doing()))? {
            return Err(OperationError::Conflict(format!(
                "another hall{} listens on {SOCKET} in {name}; use that hall, or stop it first",
                named_host(&dir)
            )));
        }
        let former = note_place(&path, &dir).map_err(OperationError::io(PLACE))?;
        Ok(Self { path, former, dir, _lock: lock })
    }

    /// Describes the state of a home without changing it. It blocks.
    ///
    /// # Errors
    ///
    /// Returns the reason that no host could serve the home.
    pub(crate) fn look_at(path: &Path) -> Result<&'static str, OperationError> {
        let doing = || format!("the hall's home {} cannot be opened", path.display());
        let dir = match open_directory(path) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok("the first `guild serve --hall` creates it"),
            Err(e) => return Err(OperationError::io(doing())(e)),
        };
        check_private(path, &dir)?;
        let is_held = FileLock::is_held(&dir, LOCK).map_err(OperationError::io(doing()))?;
        let is_served = is_held || is_served(&path.join(SOCKET)).map_err(OperationError::io(doing()))?;
        Ok(if is_served { "a host serves it" } else { "no host serves it" })
    }

    /// Creates the missing parts of a home. Other users cannot read a new home.
    ///
    /// # Errors
    ///
    /// Returns an error when the home cannot be created.
    pub fn make(path: &Path) -> Result<(), OperationError> {
        let made = private_dir(path).and_then(|()| {
            let dir = open_directory(path)?;
            [NEW, COMMISSIONS, MEETINGS, TRANSCRIPTS, PULLS, PROJECTS, WORKTREES, PACKAGES]
                .into_iter()
                .try_for_each(|part| dir.create_dir_all(part))
        });
        made.map_err(OperationError::io(format!("the hall's home {} cannot be created", path.display())))
    }

    /// The home's path, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The home's former paths, the last one last.
    pub fn former(&self) -> &[PathBuf] {
        &self.former
    }

    /// The present path of a worktree that may have been created before the home was moved.
    pub(crate) fn moved_here(&self, dir: &Path) -> PathBuf {
        let mut names = dir.iter().rev();
        match (names.next(), names.next(), names.next()) {
            (Some(activity), Some(project), Some(kind)) if kind == WORKTREES => {
                self.path.join(kind).join(project).join(activity)
            }
            (Some(project), Some(kind), _) if kind == PROJECTS => self.path.join(kind).join(project),
            _ => dir.to_owned(),
        }
    }

    /// The home's directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The directory of the commissions' files.
    pub(crate) fn commissions(&self) -> Result<Dir, OperationError> {
        open_dir(&self.dir, COMMISSIONS).map_err(OperationError::io(COMMISSIONS))
    }

    /// The directory of the meetings' files.
    pub(crate) fn meetings(&self) -> Result<Dir, OperationError> {
        open_dir(&self.dir, MEETINGS).map_err(OperationError::io(MEETINGS))
    }

    /// The directory of transcripts of open meetings, for people to read.
    pub(crate) fn transcripts(&self) -> Result<Dir, OperationError> {
        open_dir(&self.dir, TRANSCRIPTS).map_err(OperationError::io(TRANSCRIPTS))
    }

    /// The directory of the notes about pull requests.
    pub(crate) fn pulls(&self) -> Result<Dir, OperationError> {
        open_dir(&self.dir, PULLS).map_err(OperationError::io(PULLS))
    }

    /// A directory on the same file system as all worktrees, for new files before they are moved to their places.
    pub(crate) fn new_files(&self) -> Result<Dir, OperationError> {
        open_dir(&self.dir, NEW).map_err(OperationError::io(NEW))
    }

    /// Removes the remains of a crash: worktrees that were being removed, and new files that were never moved. It
    /// blocks.
    pub(crate) fn sweep(&self) {
        let log = |path: &Path, e: std::io::Error| {
            tracing::warn!("the remains of a crash in {} cannot be removed: {e}", path.display())
        };
        let projects = fs::read_dir(self.path.join(WORKTREES)).into_iter().flatten().flatten();
        let worktrees =
            projects.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        for dir in worktrees.chain([self.path.join(PROJECTS)]) {
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
        self.path.join(PROJECTS).join(project)
    }

    /// The worktree of an activity of a project.
    pub(crate) fn worktree(&self, project: &str, activity: &str) -> PathBuf {
        self.path.join(WORKTREES).join(project).join(activity)
    }
}

/// Creates a directory that other users cannot read, if it is missing.
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

/// Stores the path of a home, and returns its former paths. If the home still exists at a former path, it was copied
/// and not moved.
fn note_place(path: &Path, dir: &Dir) -> io::Result<Vec<PathBuf>> {
    let read = read_whole(dir, PLACE, MAX_PLACE_BYTES)?;
    // A file that cannot be read has no paths; it is replaced.
    let known: Place = read.and_then(|(text, _)| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let Place { path: last, mut former } = known.clone();
    if last != path && !last.as_os_str().is_empty() {
        match fs::canonicalize(&last) {
            Ok(there) if there != path => {}
            _ => {
                tracing::info!("the hall's home was moved from {} to {}", last.display(), path.display());
                former.push(last);
            }
        }
    }
    former.retain(|place| place != path);
    former.drain(..former.len().saturating_sub(MAX_FORMER));
    let now = Place { path: path.to_owned(), former };
    if now != known {
        replace(&open_dir(dir, "state")?, "place.json", &serde_json::to_vec_pretty(&now)?, Survives::PowerCut)?;
    }
    Ok(now.former)
}

/// Refuses a home that other users can change: they could have chosen the projects.
fn check_private(path: &Path, dir: &Dir) -> Result<(), OperationError> {
    let doing = format!("{} cannot be examined", path.display());
    let parts = [
        (path.to_owned(), Some(dir.dir_metadata())),
        (path.join(SETTINGS), if_there(dir.metadata(SETTINGS)).transpose()),
    ];
    for (path, found) in parts {
        let Some(found) = found else { continue };
        let found = found.map_err(OperationError::io(doing.clone()))?;
        let (path, user) = (path.display(), geteuid().as_raw());
        if found.uid() != user && found.uid() != ROOT {
            return Err(OperationError::Conflict(format!(
                "{path} belongs to another user, who could have changed the hall's projects; review its content, then \
                 run `chown {user} {path}`"
            )));
        }
        // A group of the user alone, which many systems create for each user, does not count as others.
        let group_writes = found.mode() & GROUP_WRITES != 0 && found.gid() != getegid().as_raw();
        if group_writes || found.mode() & ALL_WRITE != 0 {
            return Err(OperationError::Conflict(format!(
                "other users can write {path}, and could have changed the hall's projects; review its content, then \
                 run `chmod go-w {path}`"
            )));
        }
    }
    Ok(())
}

/// The host that serves a home: the process that [`PID`] names, if it has the home's directory open like every host.
/// `None` if the host is not known: the id alone may belong to a process that ended, or to another program.
pub fn host_of(home: &Path) -> Option<u32> {
    open_directory(home).ok().and_then(|dir| host_of_dir(&dir))
}

fn host_of_dir(dir: &Dir) -> Option<u32> {
    let (text, _) = read_whole(dir, PID, MAX_PID_BYTES).ok()??;
    let pid = String::from_utf8(text).ok()?.trim().parse().ok()?;
    Owner { pid, ..Owner::default() }.has_open(dir).then_some(pid)
}

/// Describes the host that serves a home, for an error.
fn named_host(dir: &Dir) -> String {
    host_of_dir(dir).map_or_else(String::new, |pid| format!(", process {pid},"))
}

/// Whether a process listens on a Unix socket.
fn is_served(path: &Path) -> io::Result<bool> {
    // No socket can have a path that is too long.
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(false) };
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(&socket, &address) {
        // The queue of connections that wait to be accepted is full.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(_) => Ok(false),
    }
}
