//! The quota of a job's `artifacts/`, which all writers there share.
//!
//! The quota knows how much room there is at least, and every growth uses it up. When it does not suffice, the files are
//! measured again, so that whatever was deleted meanwhile is room again. Every change of the files holds the quota's lock, so
//! a measurement sees no incomplete change: exactly the limit fits, and nothing beyond it.
//!
//! Bytes are the apparent sizes of regular files, sparse ones too, each file once however many links it has. Entries are all
//! names below `artifacts/`. A file without a name there counts as long as a descriptor of it is open.

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

/// The depth of directories, so that no path under `artifacts/` exceeds what the system takes (4,095 bytes), and the whole
/// tree can be walked.
pub(crate) const MAX_DEPTH: usize = 16;

/// How long a measurement holds unless something changes through this quota; a person may change files too. It bounds how
/// often repeated attempts that fail have everything measured.
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
    /// Room that there is at least.
    bytes: u64,
    entries: u64,
    /// The time of the last measurement, and how many files were open then; `None` if something was taken or freed since.
    measured: Option<(Instant, usize)>,
    /// Open descriptors' files: one without a name takes room until it is closed.
    open: Vec<Open>,
    /// Whether the job has ended: nothing changes any more.
    closed: bool,
    /// Whether it was reported before that this limit was reached.
    bytes_reported: bool,
    entries_reported: bool,
}

/// A file that was opened under the quota.
#[derive(Debug)]
struct Open {
    file: Weak<fs::File>,
    /// Whether it was opened as one of the artifacts, and takes room whatever names it has elsewhere.
    artifact: bool,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It would exceed a limit.
    #[error(transparent)]
    Full(Full),
    /// The file system refused it.
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

    /// Changes something below `root`, the job's `artifacts/`, while no other change is under way. It blocks.
    ///
    /// # Errors
    /// Those of `work`; [`Errno::PERM`] when the job has ended.
    pub fn change<T>(&self, root: &Dir, work: impl FnOnce(&mut Room<'_>) -> Result<T, Refused>) -> Result<T, Refused> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Errno::PERM.into());
        }
        work(&mut Room { quota: self, root, state: &mut state })
    }

    /// Refuses further changes, and waits for the one that is under way. It blocks.
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
    /// [`Refused::Full`] where there is not so much; nothing is taken then.
    pub fn take(&mut self, bytes: u64, entries: u64) -> Result<(), Refused> {
        if (bytes > self.state.bytes || entries > self.state.entries) && !self.state.is_fresh() {
            self.measure()?;
        }
        let full = |name: &str, max: u64, is_reported: &mut bool| {
            let first = !std::mem::replace(is_reported, true);
            Err(Refused::Full(Full { limit: format!("limits.{name} = {max}"), first }))
        };
        if entries > self.state.entries {
            return full("artifacts_entries", self.quota.max_entries, &mut self.state.entries_reported);
        }
        if bytes > self.state.bytes {
            return full("artifacts_bytes", self.quota.max_bytes, &mut self.state.bytes_reported);
        }
        self.state.bytes -= bytes;
        self.state.entries -= entries;
        // Room that was taken for a change that fails is found again by the next measurement.
        self.state.measured = None;
        Ok(())
    }

    /// Notes that something was freed: when room runs out, it is measured again.
    pub fn freed(&mut self) {
        self.state.measured = None;
    }

    /// Takes room for a file that grows to `end` bytes, if that is more than it has.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn grow(&mut self, file: &fs::File, end: u64) -> Result<(), Refused> {
        let has = file.metadata()?.len();
        if end > has { self.take(end - has, 0) } else { Ok(()) }
    }

    /// Makes a file so long, as [`Self::grow`] permits.
    ///
    /// # Errors
    /// As [`Self::take`], and what the system says.
    pub fn resize(&mut self, file: &fs::File, len: u64) -> Result<(), Refused> {
        self.grow(file, len)?;
        let shrinks = len < file.metadata()?.len();
        file.set_len(len)?;
        if shrinks {
            self.freed();
        }
        Ok(())
    }

    /// Registers an open file, which takes room while it is open, with a name or without. One that is not opened as an
    /// `artifact` cannot grow by this descriptor, so it takes room only below `artifacts/` or without a name.
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
    /// [`Errno::NAMETOOLONG`], if it would be too deep below `artifacts/`.
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

    /// Counts what is there.
    fn measure(&mut self) -> Result<(), Refused> {
        let (mut bytes, mut entries, mut seen) = (0_u64, 0_u64, HashSet::new());
        for found in walk(self.root) {
            let found = found?;
            entries += 1;
            // A person put more there than is allowed: nothing may be added, whatever its size.
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
            // A name elsewhere, which a person gave it, does not make an artifact's room free.
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
/// If it cannot be walked.
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

/// The bytes that replacing a file frees: none if it has another name or is open.
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

    /// A file with a name in `artifacts` and one elsewhere, which then loses the former.
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
