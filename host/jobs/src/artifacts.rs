//! The files of a job's `artifacts/`: what a component wrote there itself, and what `write_artifact` writes.

use std::{io, path::Path};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits};

use crate::{
    durable::{Survives, if_there, open_dir, open_or_make_dir, replace_from, sync_dir},
    tools::ToolError,
    tree::walk,
};

/// The directory's name in the job's.
pub(crate) const ARTIFACTS: &str = "artifacts";
/// Where an artifact's bytes are before it is whole: in the job's directory, out of the component's reach.
const TEMPORARY: &str = ".tmp-artifact";
/// Names in an artifact's path.
const MAX_DEPTH: usize = 32;
/// Bytes of a name in an artifact's path; what file systems take.
const MAX_NAME_BYTES: usize = 255;

/// The regular files under the job's `artifacts/`, as paths relative to the job's directory, sorted (REQ-WD-15).
///
/// A name that is no UTF-8 cannot be said in JSON and is left out. So is, logged, what cannot be looked into, and all
/// that follows the first `max` files and directories.
pub(crate) fn list(job: &Dir, id: &JobId, max: u64) -> Vec<String> {
    let left_out = |e: io::Error| tracing::warn!(job = %id, "some of {ARTIFACTS}/ cannot be listed: {e}");
    let mut paths = Vec::new();
    let root = match if_there(open_dir(job, ARTIFACTS)) {
        Ok(Some(root)) => root,
        Ok(None) => return paths,
        Err(e) => {
            left_out(e);
            return paths;
        }
    };
    for (n, found) in (0..).zip(walk(&root)) {
        if n == max {
            tracing::warn!(job = %id, "{ARTIFACTS}/ has more than limits.artifacts_entries, {max}; the rest is not listed");
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

/// Writes one file, and the directories that its path needs. All that is already there counts towards the limits,
/// whoever wrote it.
pub(crate) fn write(job: &Dir, path: &str, contents: &[u8], limits: &Limits) -> Result<(), ToolError> {
    let names = check(path)?;
    let unavailable = |e: io::Error| ToolError::Unavailable(format!("could not write the artifact {path:?}: {e}"));
    let root = open_or_make_dir(job, ARTIFACTS).map_err(unavailable)?;

    let (mut bytes, mut entries, mut there, mut replaced) = (contents.len() as u64, 0_u64, 0_u64, 0_u64);
    for found in walk(&root) {
        let found = found.map_err(unavailable)?;
        entries += 1;
        bytes = bytes.saturating_add(found.size);
        if Path::new(path).starts_with(&found.path) {
            there += 1;
            if found.kind.is_file() {
                replaced += found.size;
            }
        }
        if entries > limits.artifacts_entries {
            break;
        }
    }
    let entries = entries + (names.len() as u64).saturating_sub(there);
    if entries > limits.artifacts_entries {
        return Err(ToolError::OverLimit(format!(
            "with {path:?} the artifacts would be more than {} files and directories, which is what \
             limits.artifacts_entries allows",
            limits.artifacts_entries
        )));
    }
    let bytes = bytes - replaced;
    if bytes > limits.artifacts_bytes {
        return Err(ToolError::OverLimit(format!(
            "with {path:?} the artifacts would have {bytes} bytes; limits.artifacts_bytes allows {}",
            limits.artifacts_bytes
        )));
    }

    let [parents @ .., name] = names.as_slice() else { return Err(unsound(path)) };
    let mut dir = root;
    for parent in parents {
        let inner = open_or_make_dir(&dir, parent).map_err(unavailable)?;
        sync_dir(&dir).map_err(unavailable)?;
        dir = inner;
    }
    replace_from(job, TEMPORARY, (&dir, name.as_ref()), contents, Survives::PowerCut)
        .and_then(|_| sync_dir(&dir))
        .map_err(unavailable)
}

fn unsound(path: &str) -> ToolError {
    ToolError::InvalidInput(format!(
        "path must be relative, of 1 to {MAX_DEPTH} names of 1 to {MAX_NAME_BYTES} bytes with '/' between, without \
         `.`, `..` or control characters: {path:?} is not"
    ))
}

/// The names of a sound path.
fn check(path: &str) -> Result<Vec<&str>, ToolError> {
    let names: Vec<_> = path.split('/').take(MAX_DEPTH + 1).collect();
    let sound = names.len() <= MAX_DEPTH
        && names.iter().all(|name| {
            (1..=MAX_NAME_BYTES).contains(&name.len())
                && !matches!(*name, "." | "..")
                && !name.contains(|c: char| c.is_control())
        });
    if sound { Ok(names) } else { Err(unsound(path)) }
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    fn listed(job: &TempDir, max: u64) -> Vec<String> {
        list(job, &"job".parse().unwrap(), max)
    }

    fn job() -> TempDir {
        TempDir::new(ambient_authority()).unwrap()
    }

    #[test]
    fn an_artifact_is_written_with_its_directories_and_listed() {
        let (job, limits) = (job(), Limits::default());
        write(&job, "tables/b.csv", b"1", &limits).unwrap();
        write(&job, "a.txt", b"2", &limits).unwrap();
        write(&job, "a.txt", b"3", &limits).unwrap();
        assert_eq!(listed(&job, 100), ["artifacts/a.txt", "artifacts/tables/b.csv"]);
        assert_eq!(job.read("artifacts/a.txt").unwrap(), b"3");
        assert_eq!(job.entries().unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn unsound_paths_are_refused() {
        let (job, limits) = (job(), Limits::default());
        let (long, deep) = ("x".repeat(256), vec!["d"; 33].join("/"));
        for path in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b", "a\nb", "a/\x1b[2J", &long, &deep] {
            assert!(matches!(write(&job, path, b"", &limits), Err(ToolError::InvalidInput(_))), "{path:?}");
        }
        assert_eq!(job.entries().unwrap().count(), 0);
    }

    #[test]
    fn planted_links_are_neither_followed_nor_listed() {
        let (job, limits) = (job(), Limits::default());
        job.write("meta.json", "meta").unwrap();
        job.create_dir("artifacts").unwrap();
        job.symlink("../meta.json", "artifacts/file").unwrap();
        job.symlink("..", "artifacts/dir").unwrap();
        job.hard_link("meta.json", &job, "artifacts/hard").unwrap();
        assert!(write(&job, "dir/meta.json", b"forged", &limits).is_err());
        write(&job, "file", b"own", &limits).unwrap();
        write(&job, "hard", b"own", &limits).unwrap();
        assert_eq!(job.read("meta.json").unwrap(), b"meta");
        assert_eq!(listed(&job, 100), ["artifacts/file", "artifacts/hard"]);

        job.remove_dir_all("artifacts").unwrap();
        job.symlink(".", "artifacts").unwrap();
        assert!(write(&job, "meta.json", b"forged", &limits).is_err());
        assert!(listed(&job, 100).is_empty());
    }

    #[test]
    fn what_a_component_wrote_itself_counts_too() {
        let (job, limits) = (job(), Limits { artifacts_bytes: 10, artifacts_entries: 3, ..Limits::default() });
        job.create_dir("artifacts").unwrap();
        job.write("artifacts/own", "1234567").unwrap();
        assert!(write(&job, "a", b"1234", &limits).unwrap_err().to_string().contains("limits.artifacts_bytes"));
        write(&job, "own", b"1234567890", &limits).unwrap();
        write(&job, "own", b"", &limits).unwrap();
        assert!(write(&job, "a/b/c", b"", &limits).unwrap_err().to_string().contains("limits.artifacts_entries"));
        write(&job, "a/b", b"", &limits).unwrap();
        write(&job, "a/b", b"again", &limits).unwrap();
    }

    #[test]
    fn a_list_is_bounded_and_what_is_too_deep_to_be_opened_spoils_nothing() {
        let (job, limits) = (job(), Limits::default());
        for n in 0..10 {
            write(&job, &format!("{n}"), b"", &limits).unwrap();
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
