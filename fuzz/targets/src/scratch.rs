//! A directory for one run, with a witness: a file outside of it that must not be touched.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

use cap_std::{ambient_authority, fs::Dir};
use tempfile::TempDir;

/// The contents of the witness. No text that a run shows may contain it.
pub(crate) const SECRET: &str = "a-secret-that-nobody-granted";

/// Whether an input has [`SECRET`] itself, as a fuzzer finds out: showing it then is no finding.
pub(crate) fn knows_the_secret(data: &[u8]) -> bool {
    data.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

/// A directory `inside`, and next to it `outside` with a file of [`SECRET`].
pub(crate) struct Scratch {
    base: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let base = TempDir::new_in(place()).unwrap();
        fs::create_dir(base.path().join("inside")).unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        fs::write(base.path().join("outside/secret"), SECRET).unwrap();
        Self { base }
    }

    pub(crate) fn inside(&self) -> PathBuf {
        self.base.path().join("inside")
    }

    pub(crate) fn dir(&self) -> Dir {
        Dir::open_ambient_dir(self.inside(), ambient_authority()).unwrap()
    }

    /// That nothing outside of `inside` was touched.
    pub(crate) fn check(&self) {
        let there = tree(self.base.path());
        let outside: Vec<_> = there.iter().filter(|(path, _)| !path.starts_with("inside")).collect();
        let expected = [("outside", None), ("outside/secret", Some(SECRET.as_bytes()))];
        let found: Vec<_> = outside.iter().map(|(path, text)| (path.as_str(), text.as_deref())).collect();
        assert_eq!(found, expected, "something outside of the directory was touched");
    }

    /// That a text for callers names neither the secret nor a path of this machine.
    pub(crate) fn check_text(&self, text: &str) {
        assert!(!text.contains(SECRET), "the secret is shown: {text}");
        assert!(!text.contains(&*self.base.path().to_string_lossy()), "a path of the host is shown: {text}");
    }
}

/// Where this process has its directories. What a finding ended, or what lives as long as its process, removes nothing: the
/// next process does.
fn place() -> &'static Path {
    const PREFIX: &str = "guild-fuzz-";
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        // Where there is a file system in memory: a sync costs nothing there.
        let memory = PathBuf::from("/dev/shm");
        let all = if memory.is_dir() { memory } else { env::temp_dir() };
        for entry in fs::read_dir(&all).unwrap().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let own = all.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir_all(&own).unwrap();
        own
    })
}

/// All below a directory, by its path in it: a file with its bytes, a directory or something else without.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut unread = vec![root.to_owned()];
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.insert(name, kind.is_file().then(|| fs::read(&path).unwrap()));
            if kind.is_dir() {
                unread.push(path);
            }
        }
    }
    found
}
