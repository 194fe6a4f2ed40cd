//! What a session can read, and what it cannot.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::symlink, path::Path};

use guild_agent::ReadRoots;
use guild_jobs::{files::Files, tools::ToolError};
use tempfile::TempDir;

fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (path, text) in files {
        write(dir.path(), path, text.as_bytes());
    }
    dir
}

fn write(dir: &Path, path: &str, bytes: &[u8]) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn open(dir: &TempDir, names: &[&str]) -> ReadRoots {
    ReadRoots::open(names.iter().map(|name| dir.path().join(name))).unwrap()
}

fn walked(roots: &ReadRoots) -> Vec<String> {
    roots.walk().unwrap().into_iter().map(|entry| entry.path).collect()
}

#[test]
fn roots_are_named_after_their_directories_and_told_apart() {
    let dir = tree(&[("a/docs/x.md", "x"), ("b/docs/y.md", "y")]);
    let roots = open(&dir, &["a/docs", "b/docs", "b/../a"]);
    assert_eq!(roots.roots(), ["docs", "docs-2", "a"]);
    assert_eq!(walked(&roots), ["a/docs/x.md", "docs-2/y.md", "docs/x.md"]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let dir = tree(&[("file.txt", "x")]);
    for name in ["missing", "file.txt"] {
        let error = ReadRoots::open([dir.path().join(name)]).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn nothing_outside_of_a_root_can_be_reached() {
    let dir = tree(&[("root/in.txt", "inside"), ("secret.txt", "secret"), ("other/deep.txt", "secret")]);
    symlink(dir.path().join("secret.txt"), dir.path().join("root/link.txt")).unwrap();
    symlink("../secret.txt", dir.path().join("root/relative.txt")).unwrap();
    symlink("../other", dir.path().join("root/folder")).unwrap();
    let roots = open(&dir, &["root"]);
    let absolute = dir.path().join("secret.txt").display().to_string();
    let paths = [
        "root/../secret.txt",
        "root/./../secret.txt",
        "../secret.txt",
        "..",
        "root",
        "root/",
        "",
        "/etc/passwd",
        "root//etc/passwd",
        "root/link.txt",
        "root/relative.txt",
        "root/folder/deep.txt",
        "secret.txt",
        absolute.as_str(),
    ];
    for path in paths {
        let error = roots.bytes(path, 100).unwrap_err();
        assert_eq!(roots.read(path, 1, 10).unwrap_err(), error, "{path}");
        let host = dir.path().display().to_string();
        assert!(path.contains(&host) || !error.to_string().contains(&host), "{path}: {error}");
    }
    assert_eq!(walked(&roots), ["root/in.txt"]);
    assert_eq!(roots.grep("secret", None, 10).unwrap(), []);
    assert_eq!(roots.bytes("root/in.txt", 100).unwrap(), b"inside");
}

#[test]
fn hidden_and_ignored_files_do_not_exist() {
    let dir = tree(&[
        ("r/.gitignore", "target/\n*.log\n/only-top.txt\n"),
        ("r/.env", "key"),
        ("r/.git/config", "key"),
        ("r/a.txt", "key"),
        ("r/a.log", "key"),
        ("r/only-top.txt", "key"),
        ("r/sub/only-top.txt", "key"),
        ("r/target/built.txt", "key"),
        ("r/sub/.gitignore", "!kept.log\nprivate\n"),
        ("r/sub/kept.log", "key"),
        ("r/sub/other.log", "key"),
        ("r/sub/private/x.txt", "key"),
    ]);
    let roots = open(&dir, &["r"]);
    let seen = ["r/a.txt", "r/sub/kept.log", "r/sub/only-top.txt"];
    assert_eq!(walked(&roots), seen);
    let found: Vec<String> = roots.grep("key", None, 100).unwrap().into_iter().map(|passage| passage.path).collect();
    assert_eq!(found, seen);
    for hidden in ["r/.env", "r/.git/config", "r/a.log", "r/only-top.txt", "r/target/built.txt", "r/sub/private/x.txt"]
    {
        assert!(matches!(roots.bytes(hidden, 100), Err(ToolError::InvalidInput(_))), "{hidden}");
    }
    assert!(seen.iter().all(|path| roots.bytes(path, 100).is_ok()));
}

#[test]
fn lines_are_read_with_their_numbers() {
    let dir = tree(&[("r/a.txt", "one\ntwo\r\nthree")]);
    let roots = open(&dir, &["r"]);
    assert_eq!(roots.read("r/a.txt", 1, 2).unwrap(), "     1\tone\n     2\ttwo\n");
    assert_eq!(roots.read("r/a.txt", 3, 10).unwrap(), "     3\tthree\n");
    assert_eq!(roots.read("r/a.txt", 4, 1).unwrap_err().to_string(), "\"r/a.txt\" has 3 lines");
    assert!(roots.read("r/none.txt", 1, 1).unwrap_err().to_string().contains("there is no file"));
}

#[test]
fn large_and_binary_files_are_bounded() {
    let dir = tree(&[("r/long.txt", &"x".repeat(1 << 20)), ("r/many.txt", &"word word word\n".repeat(100_000))]);
    write(dir.path(), "r/image.bin", b"needle\0needle\n");
    fs::File::create(dir.path().join("r/huge.txt")).unwrap().set_len(1 << 40).unwrap();
    let roots = open(&dir, &["r"]);
    assert!(roots.read("r/long.txt", 1, 10).unwrap().len() < 4096);
    let cut = roots.read("r/many.txt", 1, u32::MAX).unwrap();
    assert!(cut.len() < 300_000 && cut.contains("go on with offset"));
    assert!(roots.read("r/image.bin", 1, 10).unwrap_err().to_string().contains("binary"));
    assert!(matches!(roots.read("r/huge.txt", 1, 10), Err(ToolError::OverLimit(_))));
    assert!(matches!(roots.bytes("r/many.txt", 1000), Err(ToolError::OverLimit(_))));
    assert_eq!(roots.grep("needle", None, 10).unwrap().len(), 0);
    assert_eq!(roots.grep("word", None, 7).unwrap().len(), 7);
}

#[test]
fn globs_match_names_or_whole_paths() {
    let dir = tree(&[("r/src/a.rs", "fn a"), ("r/src/deep/b.rs", "fn b"), ("r/notes.md", "fn c")]);
    let roots = open(&dir, &["r"]);
    let found = |pattern: &str| {
        let mut found = roots.glob(pattern, 100).unwrap();
        found.sort();
        found
    };
    assert_eq!(found("*.rs"), ["r/src/a.rs", "r/src/deep/b.rs"]);
    assert_eq!(found("src/*.rs"), ["r/src/a.rs"]);
    assert_eq!(found("r/**/*.rs"), ["r/src/a.rs", "r/src/deep/b.rs"]);
    assert_eq!(found("**/*.{md,txt}"), ["r/notes.md"]);
    assert_eq!(roots.grep("fn", Some("*.md"), 10).unwrap().len(), 1);
    assert!(roots.glob("[", 1).unwrap_err().to_string().contains("glob"));
    assert!(roots.grep("(", None, 1).unwrap_err().to_string().contains("pattern"));
}
