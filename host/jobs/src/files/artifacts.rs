//! Reads and writes a job's `artifacts/`, for components and for the tool `write_artifact`.

use std::io::{self, Read as _};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits};
use guild_fs::{
    durable::{Survives, if_there, open, open_dir, open_or_make_dir, replace_from, sync_dir},
    tree::walk,
};
use guild_session::tools::ToolError;

use super::quota::{MAX_DEPTH, Quota, Refused, given_back};

/// The directory's name in the job's.
pub(crate) const ARTIFACTS: &str = "artifacts";
/// The temporary file of an incomplete artifact, in the job's directory and out of the component's reach.
const TEMPORARY: &str = ".tmp-artifact";
/// The most bytes of a name in an artifact's path, as on usual file systems.
const MAX_NAME_BYTES: usize = 255;

/// The regular files under the job's `artifacts/`, as paths relative to the job's directory, sorted (REQ-WD-15).
///
/// A name that is not UTF-8 cannot be written in JSON and is left out. A directory that cannot be read, and all that
/// follows the first `max` files and directories, is left out with a warning.
pub(crate) fn list(job: &Dir, id: &JobId, max: u64) -> Vec<String> {
    let left_out = |e: io::Error| tracing::warn!(job = %id, "some of {ARTIFACTS}/ cannot be listed: {e}");
    let mut paths = Vec::new();
    let root = if_there(open_dir(job, ARTIFACTS)).unwrap_or_else(|e| {
        left_out(e);
        None
    });
    let Some(root) = root else { return paths };
    for (n, found) in (0..).zip(walk(&root)) {
        if n == max {
            let limit = Limits::cited("artifacts_entries");
            tracing::warn!(job = %id, "{ARTIFACTS}/ has more than {limit}, {max}; the rest is not listed");
            break;
        }
        match found {
            Ok(found) if found.kind.is_file() => {
                paths.extend(found.path.to_str().map(|path| format!("{ARTIFACTS}/{path}")));
            }
            Ok(_) => {}
            Err(e) => left_out(e),
        }
    }
    paths.sort_unstable();
    paths
}

/// Writes one file, and the directories that its path needs, within the quota that a component's own writes use too.
///
/// # Errors
///
/// Returns [`Refused::Full`], which names the limit, when a limit is reached.
pub(crate) fn write(job: &Dir, path: &Names<'_>, contents: &[u8], quota: &Quota) -> Result<(), Refused> {
    let root = open_or_make_dir(job, ARTIFACTS)?;
    quota.change(&root, |room| {
        let names = &path.0;
        let [parents @ .., name] = names.as_slice() else { return Ok(()) };
        let (mut dir, mut there) = (root.try_clone()?, 0);
        while let Some(parent) = parents.get(there) {
            let Some(inner) = if_there(open_dir(&dir, parent))? else { break };
            (dir, there) = (inner, there + 1);
        }
        let replaced = if there == parents.len() { if_there(given_back(room, &dir, name))? } else { None };
        let grown = (contents.len() as u64).saturating_sub(replaced.unwrap_or(0));
        room.take(grown, (names.len() - there - usize::from(replaced.is_some())) as u64)?;

        for parent in parents.iter().skip(there) {
            dir = open_or_make_dir(&dir, parent)?;
        }
        replace_from(job, TEMPORARY, &dir, name.as_ref(), contents, Survives::PowerCut.into())?;
        if replaced.is_some() {
            room.freed();
        }
        Ok(sync_dir(&dir)?)
    })
}

/// The first `max + 1` bytes of one file; `None` if there is no regular file of that path. No symlink is followed.
///
/// # Errors
///
/// Returns an error when the file cannot be read.
pub(crate) fn read(job: &Dir, path: &Names<'_>, max: u64) -> io::Result<Option<Vec<u8>>> {
    let [parents @ .., name] = path.0.as_slice() else { return Ok(None) };
    let Ok(mut dir) = open_dir(job, ARTIFACTS) else { return Ok(None) };
    for parent in parents {
        let Ok(inner) = open_dir(&dir, parent) else { return Ok(None) };
        dir = inner;
    }
    let Ok(Some((file, _))) = open(&dir, name) else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The names of a valid path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<'a>(Vec<&'a str>);

impl<'a> Names<'a> {
    /// The names of a path below `artifacts/`.
    ///
    /// # Errors
    ///
    /// Returns an error, which describes a valid path, when the path is invalid.
    pub(crate) fn of(path: &'a str) -> Result<Self, ToolError> {
        Self::within(path, MAX_DEPTH)
    }

    /// The names of a path with at most `depth` names.
    ///
    /// # Errors
    ///
    /// Returns an error, which describes a valid path, when the path is invalid.
    pub fn within(path: &'a str, depth: usize) -> Result<Self, ToolError> {
        let names: Vec<_> = path.split('/').take(depth + 1).collect();
        let sound = names.len() <= depth
            && names.iter().all(|name| {
                (1..=MAX_NAME_BYTES).contains(&name.len())
                    && !matches!(*name, "." | "..")
                    && !name.contains(|c: char| c.is_control())
            });
        if sound {
            return Ok(Self(names));
        }
        Err(ToolError::InvalidInput(format!(
            "path must be relative, of 1 to {depth} names of 1 to {MAX_NAME_BYTES} bytes with '/' between, without \
             `.`, `..` or control characters: {path:?} is not"
        )))
    }

    /// The names, the outermost first; there is at least one.
    pub fn as_slice(&self) -> &[&'a str] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    fn write(job: &Dir, path: &str, contents: &[u8], quota: &Quota) -> Result<(), Refused> {
        super::write(job, &Names::of(path).unwrap(), contents, quota)
    }

    fn listed(job: &TempDir, max: u64) -> Vec<String> {
        list(job, &"job".parse().unwrap(), max)
    }

    fn job() -> TempDir {
        TempDir::new(ambient_authority()).unwrap()
    }

    fn quota(artifacts_bytes: u64, artifacts_entries: u64) -> Quota {
        Quota::new(&Limits { artifacts_bytes, artifacts_entries, ..Limits::default() })
    }

    #[test]
    fn an_artifact_is_written_with_its_directories_and_listed() {
        let (job, quota) = (job(), quota(u64::MAX, u64::MAX));
        write(&job, "tables/b.csv", b"1", &quota).unwrap();
        write(&job, "a.txt", b"2", &quota).unwrap();
        write(&job, "a.txt", b"3", &quota).unwrap();
        assert_eq!(listed(&job, 100), ["artifacts/a.txt", "artifacts/tables/b.csv"]);
        assert_eq!(job.read("artifacts/a.txt").unwrap(), b"3");
        assert_eq!(job.entries().unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn invalid_paths_are_refused() {
        let (long, deep) = ("x".repeat(256), vec!["d"; 17].join("/"));
        for path in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b", "a\nb", "a/\x1b[2J", &long, &deep] {
            assert!(matches!(Names::of(path), Err(ToolError::InvalidInput(_))), "{path:?}");
        }
    }

    #[test]
    fn planted_links_are_neither_followed_nor_listed() {
        let (job, quota) = (job(), quota(u64::MAX, u64::MAX));
        job.write("meta.json", "meta").unwrap();
        job.create_dir("artifacts").unwrap();
        job.symlink("../meta.json", "artifacts/file").unwrap();
        job.symlink("..", "artifacts/dir").unwrap();
        job.hard_link("meta.json", &job, "artifacts/hard").unwrap();
        assert!(write(&job, "dir/meta.json", b"forged", &quota).is_err());
        write(&job, "file", b"own", &quota).unwrap();
        write(&job, "hard", b"own", &quota).unwrap();
        assert_eq!(job.read("meta.json").unwrap(), b"meta");
        assert_eq!(listed(&job, 100), ["artifacts/file", "artifacts/hard"]);

        job.remove_dir_all("artifacts").unwrap();
        job.symlink(".", "artifacts").unwrap();
        assert!(write(&job, "meta.json", b"forged", &quota).is_err());
        assert!(listed(&job, 100).is_empty());
    }

    #[test]
    fn what_a_component_wrote_itself_counts_too() {
        let (job, quota) = (job(), quota(10, 3));
        job.create_dir("artifacts").unwrap();
        job.write("artifacts/own", "1234567").unwrap();
        let full = |path, contents| match write(&job, path, contents, &quota) {
            Err(Refused::Full(full)) => full.limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(full("a", b"1234"), "limits.artifacts_bytes = 10");
        write(&job, "own", b"1234567890", &quota).unwrap();
        write(&job, "own", b"", &quota).unwrap();
        assert_eq!(full("a/b/c", b""), "the fixed limit artifacts_entries = 3");
        write(&job, "a/b", b"", &quota).unwrap();
        write(&job, "a/b", b"again", &quota).unwrap();
    }

    #[test]
    fn a_list_is_bounded_and_leaves_out_directories_too_deep_to_be_opened() {
        let (job, quota) = (job(), quota(u64::MAX, u64::MAX));
        for n in 0..10 {
            write(&job, &format!("{n}"), b"", &quota).unwrap();
        }
        assert_eq!(listed(&job, 10).len(), 10);
        assert_eq!(listed(&job, 4).len(), 4);
        let mut deep = job.open_dir(ARTIFACTS).unwrap();
        let name = "d".repeat(200);
        for _ in 0..30 {
            deep.create_dir(&name).unwrap();
            deep = deep.open_dir(&name).unwrap();
        }
        deep.write("unreachable", "x").unwrap();
        assert_eq!(listed(&job, 100).len(), 10);
    }
}
