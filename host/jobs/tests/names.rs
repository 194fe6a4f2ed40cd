//! Any text where a name or a path is expected: it names something in the member's directory, or it is refused, and
//! nothing outside is touched.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use common::{Member, start};
use guild_contract::{JobId, MemberKey, rpc::ListParams};
use guild_jobs::StoreError;
use proptest::prelude::*;

/// What is not the member's.
const SECRET: &str = "somebody else's";

/// Paths as people and programs write them, those that try to get out, and any text at all.
fn paths() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-zA-Z0-9_-]{1,8}",
        2 => prop::sample::select(vec!["..", ".", "", "link", "meta.json", ".tmp-artifact", "compacted", "\0", "a\nb", "\u{202e}"])
            .prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ];
    let long = (1..400_usize).prop_map(|n| "x".repeat(n));
    let path = prop::collection::vec(prop_oneof![9 => part, 1 => long], 1..6).prop_map(|parts| parts.join("/"));
    let absolute = path.clone().prop_map(|path| format!("/{path}"));
    prop_oneof![6 => path, 1 => absolute, 1 => any::<String>()]
}

/// Every file below a directory with its text, and where links lead; nothing is followed.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.insert(path.clone(), "a directory".to_owned());
            found.extend(tree(&path));
        } else if kind.is_symlink() {
            found.insert(path.clone(), format!("-> {}", fs::read_link(path).unwrap().display()));
        } else {
            found.insert(path.clone(), fs::read_to_string(path).unwrap());
        }
    }
    found
}

/// A member with something beside it, and links from where its own files are to there.
fn member_with_neighbour() -> (Member, tempfile::TempDir) {
    let (member, beside) = (Member::new(), tempfile::tempdir().unwrap());
    fs::write(beside.path().join("secret.md"), SECRET).unwrap();
    for place in ["jobs", "memory"] {
        fs::create_dir_all(member.path(place)).unwrap();
        symlink(beside.path(), member.path(place).join("link")).unwrap();
        symlink(beside.path().join("secret.md"), member.path(place).join("file.md")).unwrap();
    }
    (member, beside)
}

/// Alternates in alternates: regular expressions have a limit for it, and so has a stack.
#[test]
fn a_filter_that_nests_too_deep_is_refused() {
    let member = Member::new();
    let store = member.store();
    start(&store, "d");
    for depth in [255, 256, 100_000] {
        let filter = format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        assert!(store.list(&ListParams { detail: None, filter: Some(filter) }).is_err(), "{depth}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_taken_for_an_id_or_a_key_is_one_or_two_plain_names(text in paths()) {
        let is_plain = |name: &str| {
            Path::new(name).components().eq([std::path::Component::Normal(name.as_ref())]) && !name.starts_with('.')
        };
        if let Ok(id) = text.parse::<JobId>() {
            prop_assert!(is_plain(id.as_str()) && id.as_str() == text);
        }
        if let Ok(key) = text.parse::<MemberKey>() {
            let names: Vec<&str> = key.as_str().split('/').collect();
            prop_assert!(names.len() <= 2 && names.into_iter().all(is_plain) && is_plain(&key.flat()));
        }
    }

    #[test]
    fn an_artifact_is_below_artifacts_or_nowhere(paths in prop::collection::vec(paths(), 1..8)) {
        let (member, beside) = member_with_neighbour();
        let store = member.store();
        let job = start(&store, "d");
        let artifacts = member.path(&member.file(job.id(), "artifacts"));
        symlink(beside.path(), artifacts.join("link")).unwrap();
        let others = || {
            let mut tree = tree(&member.path(""));
            tree.retain(|path, _| !path.starts_with(&artifacts));
            (tree, self::tree(beside.path()))
        };
        let before = others();
        for path in &paths {
            if job.write_artifact(path, b"contents").is_ok() {
                prop_assert_eq!(fs::read(artifacts.join(path)).unwrap(), b"contents");
            }
            prop_assert!(others() == before, "{:?} changed something else", path);
        }
        job.complete(Some("done")).unwrap();
        for listed in store.result(job.id().as_str()).unwrap().artifacts.unwrap_or_default() {
            prop_assert!(artifacts.join(listed.strip_prefix("artifacts/").unwrap()).is_file());
        }
    }

    #[test]
    fn a_memory_is_a_file_of_memory_or_nothing(keys in prop::collection::vec(paths(), 1..8)) {
        let (member, beside) = member_with_neighbour();
        let memory = member.memory();
        for key in keys.iter().map(String::as_str).chain(["file", "link"]) {
            prop_assert!(memory.load(key).ok().flatten().is_none_or(|text| text != SECRET), "{:?}", key);
            let stored = memory.store(key, "a memory", None).is_ok();
            if stored {
                prop_assert_eq!(member.read(&format!("memory/{key}.md")), "a memory");
                prop_assert!(memory.list().unwrap().iter().any(|entry| entry.key == *key));
            }
            prop_assert!(memory.delete(key).ok() != Some(true) || stored || key == "file", "{:?}", key);
        }
        prop_assert_eq!(fs::read_to_string(beside.path().join("secret.md")).unwrap(), SECRET);
        prop_assert_eq!(tree(beside.path()).len(), 1);
        let mut outside = tree(&member.path(""));
        outside.retain(|path, _| !path.starts_with(member.path("memory")));
        let jobs = ["jobs", "jobs/file.md", "jobs/link"].map(|path| member.path(path));
        prop_assert!(outside.into_keys().eq(jobs), "something else is in the member's directory");
    }

    #[test]
    fn an_id_that_is_no_job_s_is_unknown_and_touches_nothing(ids in prop::collection::vec(paths(), 1..12)) {
        let (member, beside) = member_with_neighbour();
        let store = member.store();
        let before = (tree(&member.path("")), tree(beside.path()));
        for id in ids.iter().map(String::as_str).chain(["link", "file.md", "../memory", ".", ".."]) {
            prop_assert!(matches!(store.status(id), Err(StoreError::Unknown(_))), "{:?}", id);
            prop_assert!(matches!(store.result(id), Err(StoreError::Unknown(_))), "{:?}", id);
            prop_assert!(matches!(store.cancel(id), Err(StoreError::Unknown(_))), "{:?}", id);
            prop_assert!(matches!(store.delete(id), Err(StoreError::Unknown(_))), "{:?}", id);
        }
        prop_assert!((tree(&member.path("")), tree(beside.path())) == before);
    }
}
