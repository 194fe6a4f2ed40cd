//! Any text where a session names a file: it sees what was granted, or nothing.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{fs, os::unix::fs::symlink, path::Path};

use guild_agent::ReadRoots;
use guild_session::files::{Files, GrepRequest, GrepWanted};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

const SECRET: &str = "nobody granted this";

/// A root with a file, hidden ones, ignored ones, and links to what is beside it.
fn root(base: &Path) -> ReadRoots {
    let root = base.join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir(base.join("beside")).unwrap();
    fs::write(root.join("a/b/file.md"), "granted\n").unwrap();
    fs::write(root.join("a/.gitignore"), "ignored\n").unwrap();
    for secret in ["root/.hidden", "root/a/ignored", "beside/secret"] {
        fs::write(base.join(secret), SECRET).unwrap();
    }
    for (to, link) in [("../beside", "link"), ("../beside/secret", "file"), ("../.hidden", "a/up"), ("..", "a/b/loop")]
    {
        symlink(to, root.join(link)).unwrap();
    }
    ReadRoots::open([root]).unwrap()
}

fn paths() -> impl Strategy<Value = String> {
    let known = [
        "root", "a", "b", "file.md", "..", ".", "", "link", "file", "up", "loop", ".hidden", "ignored", "secret",
        "beside",
    ];
    let part = prop_oneof![6 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,8}"];
    let path = prop::collection::vec(part, 0..7).prop_map(|parts| parts.join("/"));
    prop_oneof![4 => path.clone().prop_map(|path| format!("root/{path}")), 2 => path, 1 => any::<String>()]
}

/// Alternates in alternates: regular expressions have a limit for it, and so has a stack.
#[test]
fn a_glob_that_nests_too_deep_is_an_error_and_in_a_gitignore_nothing_or_beyond_its_bounds() {
    let base = tempfile::tempdir().unwrap();
    let (roots, cancel) = (root(base.path()), CancellationToken::new());
    for depth in [255, 300, 100_000] {
        let glob = format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        assert!(roots.glob(&glob, None, 100, &cancel).is_err());
        let search =
            GrepRequest { pattern: ".".into(), glob: Some(glob.clone()), limit: 100, ..GrepRequest::default() };
        assert!(roots.grep(&search, &cancel).is_err());
        fs::write(base.path().join("root/.gitignore"), glob).unwrap();
        // What a pattern that is too long would leave out is not known: nothing is shown that it may be for.
        let shown: &[&str] = if depth == 255 { &["root/a/b/file.md"] } else { &[] };
        assert_eq!(roots.glob("**", None, 100, &cancel).unwrap(), shown);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_shows_what_is_hidden_ignored_linked_or_beside_a_root(paths in prop::collection::vec(paths(), 1..16)) {
        let base = tempfile::tempdir().unwrap();
        let (roots, cancel) = (root(base.path()), CancellationToken::new());
        for path in paths {
            let wanted = GrepWanted::Lines { before: 1, after: 1 };
            let search =
                GrepRequest { pattern: ".".into(), path: Some(path.clone()), wanted, limit: 100, ..GrepRequest::default() };
            let answers = [
                roots.bytes(&path, 1024).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
                roots.read(&path, 1, 10),
                roots.glob("**", Some(&path), 100, &cancel).map(|found| found.join("\n")),
                roots.glob(&path, None, 100, &cancel).map(|found| found.join("\n")),
                roots.grep(&search, &cancel).map(|found| format!("{found:?}")),
            ];
            for answer in answers {
                let text = answer.unwrap_or_else(|why| why.to_string());
                prop_assert!(!text.contains(SECRET), "{:?} shows {}", path, text);
                prop_assert!(!text.contains(&*base.path().to_string_lossy()), "{:?} shows {}", path, text);
            }
        }
    }
}
