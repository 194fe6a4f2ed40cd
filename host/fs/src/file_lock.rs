//! Locks that other users of the machine cannot take.
//!
//! A user who can open a file or a directory for reading can lock it. So each of these locks is on a separate file with mode
//! 0600. A release removes the file; a process that locked a file that was removed meanwhile tries again.

use std::{io, sync::Arc};

use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptionsExt as _};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchmod, flock},
    io::Errno,
};

use crate::durable::{if_there, options};

/// Only its owner opens it.
const PRIVATE: u32 = 0o600;
/// Attempts to lock a file that others remove meanwhile, until the lock counts as taken.
const TRIES: usize = 100;

/// An exclusive lock, until it is dropped or the process ends.
#[derive(Debug)]
pub struct FileLock {
    dir: Arc<Dir>,
    name: &'static str,
    file: File,
}

impl FileLock {
    /// Takes the lock on the file `name` in `dir`; `None` if another process holds it. It does not wait.
    ///
    /// # Errors
    /// If the file cannot be made or locked, or something else has its name.
    pub fn try_acquire(dir: &Arc<Dir>, name: &'static str) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let mut how = options(OFlags::NONBLOCK);
            how.read(true).write(true).create(true).mode(PRIVATE);
            let file = match dir.open_with(name, &how) {
                Ok(file) => file,
                // The file is another user's, who holds the lock, or whose process ended without removing it.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && dir.symlink_metadata(name).is_ok() => {
                    return Ok(None);
                }
                Err(e) => return Err(at(name, e)),
            };
            let found = file.metadata()?;
            if !found.is_file() || found.nlink() > 1 {
                return Err(at(name, io::Error::other("it is no lock file; remove it")));
            }
            if found.mode() & 0o077 != 0 {
                fchmod(&file, Mode::from_raw_mode(PRIVATE)).map_err(|e| at(name, e.into()))?;
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(at(name, e.into())),
            }
            let lock = Self { dir: dir.clone(), name, file };
            if lock.is_named()? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    /// Whether a process holds the lock. It creates no file, and holds the lock itself for a moment only.
    ///
    /// # Errors
    /// If the file cannot be opened, as that of another user (`PermissionDenied`).
    pub fn is_held(dir: &Dir, name: &str) -> io::Result<bool> {
        let Some(file) = if_there(dir.open_with(name, options(OFlags::NONBLOCK).read(true)))? else { return Ok(false) };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                flock(&file, FlockOperation::Unlock)?;
                Ok(false)
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the file that is locked still has its name.
    fn is_named(&self) -> io::Result<bool> {
        let which = |found: &Metadata| (found.dev(), found.ino());
        let named = if_there(self.dir.symlink_metadata(self.name))?;
        Ok(named.is_some_and(|named| self.file.metadata().is_ok_and(|own| which(&own) == which(&named))))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // While the lock is held, no other process takes the name.
        if self.is_named().unwrap_or(false) {
            let _ = self.dir.remove_file(self.name);
        }
        // Closing is not enough: a child process that is starting now has a copy of the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn at(name: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{name}: {e}"))
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    const NAME: &str = ".lock";

    fn dir() -> (TempDir, Arc<Dir>) {
        let temp = TempDir::new(ambient_authority()).unwrap();
        let dir = Arc::new(temp.try_clone().unwrap());
        (temp, dir)
    }

    #[test]
    fn one_holds_it_at_a_time_and_nothing_is_left_of_it() {
        let (_temp, dir) = dir();
        assert!(!FileLock::is_held(&dir, NAME).unwrap());
        let held = FileLock::try_acquire(&dir, NAME).unwrap().unwrap();
        assert_eq!(dir.metadata(NAME).unwrap().mode() & 0o777, 0o600);
        assert!(FileLock::try_acquire(&dir, NAME).unwrap().is_none());
        assert!(FileLock::is_held(&dir, NAME).unwrap());
        drop(held);
        assert_eq!(dir.entries().unwrap().count(), 0);
    }

    #[test]
    fn threads_that_take_and_remove_it_at_once_never_hold_it_together() {
        let (_temp, dir) = dir();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 200 {
                        let Some(_held) = FileLock::try_acquire(&dir, NAME).unwrap() else { continue };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        taken += 1;
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn what_came_with_a_directory_is_made_private_or_refused() {
        let (_temp, dir) = dir();
        dir.write(NAME, "").unwrap();
        let _held = FileLock::try_acquire(&dir, NAME).unwrap().unwrap();
        assert_eq!(dir.metadata(NAME).unwrap().mode() & 0o777, 0o600);
        dir.write("victim", "").unwrap();
        dir.symlink("victim", "link").unwrap();
        dir.hard_link("victim", &dir, "hard").unwrap();
        dir.create_dir("dir").unwrap();
        let mode = dir.metadata("victim").unwrap().mode();
        for name in ["link", "hard", "dir"] {
            assert!(FileLock::try_acquire(&dir, name).unwrap_err().to_string().starts_with(name));
        }
        assert_eq!(dir.metadata("victim").unwrap().mode(), mode);
    }
}
