//! Scans the directories of members again when one may have changed.
//!
//! The system notifies of changes by path. A notification only causes a scan, whose result counts.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use guild_fs::durable::open_directory;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::sync::watch;

use super::Found;
use crate::discovery;

/// Signals noticed changes; counts the changes of `guild.lock` and `guild.trust`.
pub(crate) type Noticed = u64;

/// Scans the members' directories.
pub(crate) struct Scanner {
    /// The directory of members.
    members: PathBuf,
    /// The directory of `guild.lock` and `guild.trust`.
    trust: Option<PathBuf>,
    watch: Option<Watch>,
    /// Keeps the channel open if there is no watch.
    _noticed: watch::Sender<Noticed>,
}

/// How often one scan updates the watched directories, since directories that appear meanwhile need another update.
const ROUNDS: usize = 3;

impl Scanner {
    /// A scanner of a directory of members and that of `guild.lock`, with the channel of changes.
    pub(crate) fn new(members: PathBuf, trust: Option<PathBuf>) -> (Self, watch::Receiver<Noticed>) {
        let (sender, noticed) = watch::channel(0);
        let watch = Watch::new(sender.clone(), trust.clone()).inspect_err(cannot_watch).ok();
        (Self { members, trust, watch, _noticed: sender }, noticed)
    }

    /// Whether the system notifies of all changes. It does not if it has no watches, or too few.
    pub(crate) fn is_complete(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.complete)
    }

    /// Finds the present members. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory of members cannot be read.
    pub(crate) fn look(&mut self) -> io::Result<Vec<Found>> {
        let mut rounds = 0;
        loop {
            // Directories are watched before they are read, so that a change in between is noticed.
            let found = discovery::discover(&open_directory(&self.members)?)?;
            rounds += 1;
            let directories = self.directories(&found);
            let Some(watch) = &mut self.watch else { return Ok(found) };
            if !watch.follow(directories) || rounds == ROUNDS {
                return Ok(found);
            }
        }
    }

    /// All directories in which a change is relevant.
    fn directories(&self, found: &[Found]) -> Vec<PathBuf> {
        let mut directories = member_directories(&self.members);
        for member in found.iter().flat_map(|found| &found.member) {
            let component = member.manifest.component.as_ref();
            let inner = component.and_then(|component| Path::new(&component.file).parent());
            // A component need not be next to its manifest. A symlink on the way to it leads to no other place than its
            // member.
            let inner = inner.into_iter().flat_map(Path::ancestors).filter(|inner| !inner.as_os_str().is_empty());
            let places = inner.filter_map(|inner| guild_trust::directory_path(&member.dir.open_dir(inner).ok()?).ok());
            directories.extend(places.map(PathBuf::from));
        }
        directories.extend(self.trust.clone());
        directories
    }
}

/// The directory of members, all that are in it, and those that are in what may be a group.
fn member_directories(path: &Path) -> Vec<PathBuf> {
    let mut directories = vec![path.to_owned()];
    for member in below(path) {
        if !guild_trust::is_member_at(&member) {
            directories.extend(below(&member));
        }
        directories.push(member);
    }
    directories
}

/// The directories in a directory that may be members.
fn below(path: &Path) -> Vec<PathBuf> {
    let names = open_directory(path).and_then(|dir| discovery::subdirectories(&dir)).unwrap_or_default();
    names.into_iter().map(|name| path.join(name)).collect()
}

/// The system's watch of a set of directories, each by itself: what is below of jobs and memories is not of interest.
struct Watch {
    watcher: RecommendedWatcher,
    /// The watched paths, with the device and inode of their directories.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    /// Whether all required directories are watched.
    complete: bool,
}

impl Watch {
    fn new(noticed: watch::Sender<Noticed>, trust: Option<PathBuf>) -> notify::Result<Self> {
        let watcher = notify::recommended_watcher(move |event| notice(&noticed, trust.as_deref(), event))?;
        Ok(Self { watcher, watched: BTreeMap::new(), complete: true })
    }

    /// Watches only these directories; returns whether one was not watched before.
    fn follow(&mut self, directories: Vec<PathBuf>) -> bool {
        let wanted: BTreeMap<PathBuf, (u64, u64)> = directories
            .into_iter()
            .filter_map(|path| {
                let found = fs::metadata(&path).ok().filter(fs::Metadata::is_dir)?;
                Some((path, (found.dev(), found.ino())))
            })
            .collect();
        // Old watches are removed first, since a renamed directory is the same to the system.
        self.watched.retain(|path, id| {
            let remains = wanted.get(path) == Some(id);
            if !remains && let Err(e) = self.watcher.unwatch(path) {
                tracing::debug!(path = %path.display(), "a watch was gone before its end: {e}");
            }
            remains
        });
        let (mut more, mut failed) = (false, None);
        for (path, id) in wanted {
            if self.watched.contains_key(&path) {
                continue;
            }
            match self.watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(path, id);
                    more = true;
                }
                // The directory vanished meanwhile, which the watch of its parent notices.
                Err(_) if !path.exists() => {}
                Err(e) => failed = Some(e),
            }
        }
        if let Some(e) = failed.as_ref().filter(|_| self.complete) {
            cannot_watch(e);
        }
        self.complete = failed.is_none();
        more
    }
}

fn cannot_watch(error: &notify::Error) {
    tracing::warn!("not all members' directories can be watched, so they are searched for changes instead: {error}");
}

/// Runs on the watcher's thread, and only signals changes.
fn notice(noticed: &watch::Sender<Noticed>, trust: Option<&Path>, event: notify::Result<Event>) {
    let (mut of_trust, mut of_members) = (false, false);
    match &event {
        Ok(event) if !event.need_rescan() => {
            if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
                return;
            }
            for path in &event.paths {
                if trust.is_some() && path.parent() == trust {
                    let name = path.file_name().and_then(|name| name.to_str());
                    of_trust |= name.is_some_and(|name| [guild_trust::FILE, guild_trust::TRUST_FILE].contains(&name));
                } else {
                    // The owner's file is touched each second, and temporary files come and go.
                    of_members |= path.file_name().is_none_or(|name| !name.as_encoded_bytes().starts_with(b"."));
                }
            }
        }
        // Anything may have changed.
        _ => (of_trust, of_members) = (true, true),
    }
    if of_trust || of_members {
        noticed.send_modify(|noticed| *noticed += u64::from(of_trust));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use guild_contract::manifest::FILE_NAME;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_symlink_on_the_way_to_a_component_leads_no_watch_out_of_its_member() {
        let temp = tempfile::tempdir().unwrap();
        let (members, outside) = (temp.path().join("members"), temp.path().join("outside"));
        let member = |name: &str| {
            let manifest = json!({
                "name": name, "displayName": name, "description": "", "version": "1", "transport": "http",
                "mcp": {"command": "guild", "args": []}, "component": {"file": "now/a.wasm", "world": "worker"}
            });
            fs::create_dir_all(members.join(name).join("then")).unwrap();
            fs::write(members.join(name).join(FILE_NAME), manifest.to_string()).unwrap();
        };
        ["in", "out"].into_iter().for_each(member);
        fs::create_dir(&outside).unwrap();
        symlink("then", members.join("in/now")).unwrap();
        symlink(&outside, members.join("out/now")).unwrap();
        let (scanner, _noticed) = Scanner::new(members.clone(), None);
        let found = discovery::discover(&open_directory(&members).unwrap()).unwrap();
        assert!(found.iter().all(|found| found.member.is_ok()), "{found:?}");
        let directories = scanner.directories(&found);
        let expected = [members.join("in"), members.join("in/then"), members.join("out")];
        assert!(expected.iter().all(|path| directories.contains(path)), "{directories:?}");
        assert!(directories.iter().all(|path| path.starts_with(&members) && !path.ends_with("now")), "{directories:?}");
    }
}
