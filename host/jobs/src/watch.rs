//! One watch of the process for the `jobs/` directories of all stores: directories that people put there or took
//! away are noticed without looking.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
};

use cap_std::fs::Dir;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{ModifyKind, RenameMode},
};

use crate::{durable::open_dir, index::Catalog, sync::lock};

/// Taken before [`CATALOGS`]. Held while the watcher's thread is asked something, so never taken on that thread.
static WATCHER: Mutex<Option<RecommendedWatcher>> = Mutex::new(None);
/// Who is told of what is noticed, by the path that is watched.
static CATALOGS: Mutex<Option<HashMap<PathBuf, Weak<Catalog>>>> = Mutex::new(None);

/// A store's part in the watch; dropping it ends that part.
pub(crate) struct Watch {
    path: PathBuf,
    /// Keeps the descriptor that `path` names.
    _dir: Dir,
}

/// Has `catalog` told of what appears in `jobs` and what vanishes from it, from now on. A directory is watched for
/// one catalog at a time.
///
/// The directory is watched by its descriptor: it is the one that was opened, whatever its name is by now.
pub(crate) fn watch(jobs: &Dir, catalog: &Arc<Catalog>) -> io::Result<Watch> {
    let dir = open_dir(jobs, ".")?;
    let path = descriptor_path(&dir)?;
    let mut watcher = lock(&WATCHER);
    let watcher = match &mut *watcher {
        Some(watcher) => watcher,
        none => none.insert(notify::recommended_watcher(noticed).map_err(io::Error::other)?),
    };
    lock(&CATALOGS).get_or_insert_default().insert(path.clone(), Arc::downgrade(catalog));
    watcher.watch(&path, RecursiveMode::NonRecursive).map_err(|e| {
        forget(&path);
        io::Error::other(e)
    })?;
    Ok(Watch { path, _dir: dir })
}

#[cfg(target_os = "linux")]
fn descriptor_path(dir: &Dir) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    Ok(PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())))
}

#[cfg(not(target_os = "linux"))]
fn descriptor_path(_: &Dir) -> io::Result<PathBuf> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

fn forget(path: &Path) {
    if let Some(catalogs) = &mut *lock(&CATALOGS) {
        catalogs.remove(path);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        forget(&self.path);
        if let Some(watcher) = &mut *lock(&WATCHER)
            && let Err(e) = watcher.unwatch(&self.path)
        {
            tracing::debug!("a watch was gone before its end: {e}");
        }
    }
}

/// Who watches that path, or everyone. A catalog owns no [`Watch`], so its end on this thread is harmless.
fn catalogs_at(path: Option<&Path>) -> Vec<Arc<Catalog>> {
    let catalogs = lock(&CATALOGS);
    let Some(catalogs) = catalogs.as_ref() else { return Vec::new() };
    match path {
        Some(path) => catalogs.get(path).into_iter().filter_map(Weak::upgrade).collect(),
        None => catalogs.values().filter_map(Weak::upgrade).collect(),
    }
}

/// Runs on the watcher's thread, and only takes notes.
fn noticed(event: notify::Result<Event>) {
    match event {
        Ok(event) if event.need_rescan() => catalogs_at(None).iter().for_each(|catalog| catalog.notice_all()),
        Ok(event) => {
            let appeared = match event.kind {
                EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => true,
                EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => false,
                _ => return,
            };
            for path in &event.paths {
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
                catalogs_at(path.parent()).iter().for_each(|catalog| catalog.notice(name, appeared));
            }
        }
        Err(e) => {
            tracing::warn!("watching jobs/: {e}");
            catalogs_at(None).iter().for_each(|catalog| catalog.notice_all());
        }
    }
}
