//! Bounds a job's `artifacts/` by a quota, which all writers there share.
//!
//! The quota knows a lower bound of the room, and every growth reduces it. When it does not suffice, the files are
//! measured again, which finds room that was freed meanwhile. Every change of the files holds the quota's lock, so a
//! measurement sees no incomplete change: exactly the limit fits, and nothing beyond it.
//!
//! Bytes are the apparent sizes of regular files, sparse ones too. Each file counts once, even with several links.
//! Entries are all names below `artifacts/`. A file without a name there counts as long as a descriptor of it is open.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_contract::Limits;
use guild_fs::{durable::open_dir, tree::walk};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::sync::lock;

/// The depth of directories, so that no path under `artifacts/` exceeds what the system takes (4,095 bytes), and the
/// whole tree can be walked.
pub(crate) const MAX_DEPTH: usize = 16;

/// How long a measurement is valid without a change through this quota, since a person may change files too. This
/// bounds the measurements that repeated failing attempts cause.
const FRESH: Duration = Duration::from_millis(50);

/// The quota of one job.
#[derive(Debug)]
pub struct Quota {
    max_bytes: u64,
    max_entries: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A lower bound of the room.
    bytes: u64,
    entries: u64,
    /// The time of the last measurement, and the number of open files then; `None` if room was taken or freed since.
    measured: Option<(Instant, usize)>,
    /// Open files. A file without a name takes room until it is closed.
    open: Vec<Open>,
    /// Whether the job has ended, so that no file may change any more.
    closed: bool,
    /// Whether reaching this limit was reported before.
    bytes_reported: bool,
    entries_reported: bool,
}

/// A file that was opened under the quota.
#[derive(Debug)]
struct Open {
    file: Weak<fs::File>,
    /// Whether it was opened as an artifact, which takes room even if it has names elsewhere.
    artifact: bool,
}

/// The reason that a change was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The change would exceed a limit.
    #[error(transparent)]
    Full(Full),
    /// The file system refused the change.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// A limit that was reached.
#[derive(Debug, thiserror::Error)]
#[error("the job's artifacts would take more than {limit}")]
pub struct Full {
    /// The limit and its value, as `guild.toml` spells it.
    pub limit: String,
    /// Whether it was reached for the first time in this job.
    pub first: bool,
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl Quota {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (max_bytes, max_entries) = (limits.artifacts_bytes, limits.artifacts_entries);
        Self { max_bytes, max_entries, state: Mutex::default() }
    }

    /// Runs `work`, which changes files below `root`, the job's `artifacts/`, while no other change is under way. It
    /// blocks.
    ///
    /// # Errors
    ///
    /// Returns the errors of `work`, and [`Errno::PERM`] after the end of the job.
    pub fn change<T>(&self, root: &Dir, work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused>) -> Result<T, Refused> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Errno::PERM.into());
        }
        work(&mut Room { quota: self, root, state: &mut state })
    }

    /// Refuses further changes, and waits for the change under way. It blocks.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
    }

    /// Waits until no change is under way. It blocks.
    pub fn wait_idle(&self) {
        drop(lock(&self.state));
    }
}

impl State {
    fn is_fresh(&mut self) -> bool {
        self.open.retain(|open| open.file.strong_count() > 0);
        self.measured.is_some_and(|(at, open)| at.elapsed() < FRESH && open == self.open.len())
    }
}

/// The quota while a change is made.
pub struct Room<'a> {
    quota: &'a Quota,
    root: &'a Dir,
    state: &'a mut State,
}

impl Room<'_> {
    /// Takes room for more bytes and entries.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Full`] when there is too little room; no room is taken then.
    pub fn take(&mut self, bytes: u64, entries: u64) -> Result<(), Refused> {
        if (bytes > self.state.bytes || entries > self.state.entries) && !self.state.is_fresh() {
            self.measure()?;
        }
        let full = |name: &str, max: u64, is_reported: &mut bool| {
            let first = !std::mem::replace(is_reported, true);
            Err(Refused::Full(Full { limit: format!("{} = {max}", Limits::cited(name)), first }))
        };
        if entries > self.state.entries {
            return full("artifacts_entries", self.quota.max_entries, &mut self.state.entries_reported);
        }
        if bytes > self.state.bytes {
            return full("artifacts_bytes", self.quota.max_bytes, &mut self.state.bytes_reported);
        }
        self.state.bytes -= bytes;
        self.state.entries -= entries;
        // The next measurement finds room again that was taken for a failed change.
        self.state.measured = None;
        Ok(())
    }

    /// Notes that room was freed, so that it is measured again when it runs out.
    pub fn freed(&mut self) {
        self.state.measured = None;
    }

    /// Takes room for a file that grows to `end` bytes, if that is more than it has.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::take`].
    pub fn grow(&mut self, file: &fs::File, end: u64) -> Result<(), Refused> {
        let has = file.metadata()?.len();
        if end > has { self.take(end - has, 0) } else { Ok(()) }
    }

    /// Sets the length of a file, within the room that [`Self::grow`] takes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::take`] and of the system.
    pub fn resize(&mut self, file: &fs::File, len: u64) -> Result<(), Refused> {
        self.grow(file, len)?;
        let shrinks = len < file.metadata()?.len();
        file.set_len(len)?;
        if shrinks {
            self.freed();
        }
        Ok(())
    }

    /// Registers an open file, which takes room while it is open, with a name or without. A file that is not opened as
    /// an `artifact` cannot grow by this descriptor, so it takes room only below `artifacts/` or without a name.
    pub fn register(&mut self, file: &Arc<fs::File>, artifact: bool) {
        self.state.open.retain(|open| open.file.strong_count() > 0);
        self.state.open.push(Open { file: Arc::downgrade(file), artifact });
        if let Some((_, open)) = &mut self.state.measured {
            *open += 1;
        }
    }

    /// Whether a registered file is this one.
    pub(crate) fn is_open(&self, inode: (u64, u64)) -> bool {
        let mut open = self.state.open.iter().filter_map(|open| open.file.upgrade());
        open.any(|file| file.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == inode))
    }

    /// Refuses a directory in `parent` that itself is `height` directories high.
    ///
    /// # Errors
    ///
    /// Returns [`Errno::NAMETOOLONG`] when the directory would be too deep below `artifacts/`.
    pub fn check_depth(&self, parent: &Dir, height: usize) -> Result<(), Refused> {
        let same = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        let root = rustix::fs::fstat(self.root)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(parent, ".", flags, Mode::empty())?;
        for depth in 1..=MAX_DEPTH {
            if same(&rustix::fs::fstat(&at)?, &root) {
                return if depth - 1 + height <= MAX_DEPTH { Ok(()) } else { Err(Errno::NAMETOOLONG.into()) };
            }
            at = rustix::fs::openat(&at, "..", flags, Mode::empty())?;
        }
        Err(Errno::NAMETOOLONG.into())
    }

    /// Counts the existing files.
    fn measure(&mut self) -> Result<(), Refused> {
        let (mut bytes, mut entries, mut seen) = (0_u64, 0_u64, HashSet::new());
        for found in walk(self.root) {
            let found = found?;
            entries += 1;
            // A person added more entries than are allowed, so no file may be added, even an empty one.
            if entries > self.quota.max_entries {
                bytes = u64::MAX;
                break;
            }
            if found.kind.is_file() && seen.insert(found.inode) {
                bytes = bytes.saturating_add(found.size);
            }
        }
        self.state.open.retain(|open| open.file.strong_count() > 0);
        for open in &self.state.open {
            let Some(file) = open.file.upgrade() else { continue };
            let meta = file.metadata()?;
            // A name elsewhere, which a person gave an artifact, does not free its room.
            if (open.artifact || meta.nlink() == 0) && seen.insert((meta.dev(), meta.ino())) {
                bytes = bytes.saturating_add(meta.len());
            }
        }
        self.state.bytes = self.quota.max_bytes.saturating_sub(bytes);
        self.state.entries = self.quota.max_entries.saturating_sub(entries);
        self.state.measured = Some((Instant::now(), self.state.open.len()));
        Ok(())
    }
}

/// The height of a directory tree: 1 if it has no directories in it.
///
/// # Errors
///
/// Returns an error when the tree cannot be walked.
pub fn height(parent: &Dir, path: &Path) -> io::Result<usize> {
    let top = open_dir(parent, path)?;
    let mut height = 1;
    for found in walk(&top) {
        let found = found?;
        if found.kind.is_dir() {
            height = height.max(1 + found.path.components().count());
        }
    }
    Ok(height)
}

/// The bytes that the replacement of a file frees: none if the file has another name or is open.
pub(crate) fn given_back(room: &Room<'_>, dir: &Dir, name: &str) -> io::Result<u64> {
    let meta = dir.symlink_metadata(name)?;
    let alone = meta.is_file() && meta.nlink() == 1 && !room.is_open((meta.dev(), meta.ino()));
    Ok(if alone { meta.len() } else { 0 })
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    fn quota(artifacts_bytes: u64) -> Quota {
        Quota::new(&Limits { artifacts_bytes, ..Limits::default() })
    }

    /// A file with names in `artifacts` and elsewhere, which then loses the name in `artifacts`.
    fn moved_out(job: &TempDir, artifacts: &Dir) -> Arc<fs::File> {
        artifacts.write("a", "12345678").unwrap();
        let file = artifacts.open("a").unwrap().into_std();
        artifacts.hard_link("a", job, "elsewhere").unwrap();
        artifacts.remove_file("a").unwrap();
        Arc::new(file)
    }

    #[test]
    fn an_open_artifact_takes_room_whatever_name_a_person_gave_it_elsewhere() {
        for (artifact, fits) in [(true, false), (false, true)] {
            let job = TempDir::new(ambient_authority()).unwrap();
            job.create_dir("artifacts").unwrap();
            let (root, quota) = (job.open_dir("artifacts").unwrap(), quota(10));
            let file = moved_out(&job, &root);
            let taken = quota.change(&root, |room| {
                room.register(&file, artifact);
                room.take(3, 0)
            });
            assert_eq!(taken.is_ok(), fits, "{taken:?}");
            drop(file);
            quota.change(&root, |room| room.take(7, 0)).unwrap();
        }
    }

    #[test]
    fn room_that_was_taken_for_a_change_that_failed_is_room_at_once() {
        let root = TempDir::new(ambient_authority()).unwrap();
        let quota = quota(10);
        let failed = quota.change(&root, |room| {
            room.take(10, 0)?;
            Err::<(), _>(Errno::IO.into())
        });
        assert!(matches!(failed, Err(Refused::Failed(_))), "{failed:?}");
        quota.change(&root, |room| room.take(10, 0)).unwrap();
    }
}
