//! What a session can read, and what it cannot.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime},
};

use guild_agent::ReadRoots;
use guild_session::{
    files::{FileMatches, Files, GrepRequest, GrepResult, GrepWanted, Listing},
    tools::ToolError,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

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

fn never() -> CancellationToken {
    CancellationToken::new()
}

fn walked(roots: &ReadRoots) -> Vec<String> {
    roots.walk(&never()).unwrap().files.into_iter().map(|entry| entry.path).collect()
}

fn search(pattern: &str) -> GrepRequest {
    let wanted = GrepWanted::Lines { before: 0, after: 0 };
    GrepRequest { pattern: pattern.to_owned(), wanted, limit: 100, ..GrepRequest::default() }
}

fn grep(roots: &ReadRoots, request: &GrepRequest) -> GrepResult {
    roots.grep(request, &never()).unwrap()
}

fn paths(found: GrepResult) -> Vec<String> {
    found.files.into_iter().map(|file| file.path).collect()
}

/// Lines as `number:text`, those around matches as `number-text`.
fn lines(file: &FileMatches) -> Vec<String> {
    let mark = |matches| if matches { ':' } else { '-' };
    file.lines.iter().map(|line| format!("{}{}{}", line.number, mark(line.matches), line.text)).collect()
}

#[test]
fn roots_are_named_after_their_directories_and_told_apart() {
    let dir = tree(&[("a/docs/x.md", "x"), ("b/docs/y.md", "y")]);
    let roots = open(&dir, &["a/docs", "b/../a"]);
    assert_eq!(roots.roots(), ["docs", "a"]);
    assert_eq!(walked(&roots), ["a/docs/x.md", "docs/x.md"]);
    // A second one would be another name for what an operator denies by its name.
    let error = ReadRoots::open(["a/docs", "b/docs"].map(|path| dir.path().join(path))).err().unwrap().to_string();
    assert!(error.contains("called \"docs\"") && error.contains("a/docs") && error.contains("b/docs"), "{error}");
    assert!(error.contains("a `name` of its own"), "{error}");
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
    assert!(grep(&roots, &search("secret")).files.is_empty());
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
    assert_eq!(paths(grep(&roots, &search("key"))), seen);
    symlink(".git", dir.path().join("r/git")).unwrap();
    symlink(".env", dir.path().join("r/env.txt")).unwrap();
    for hidden in [
        "r/.env",
        "r/.git/config",
        "r/a.log",
        "r/only-top.txt",
        "r/target/built.txt",
        "r/sub/private/x.txt",
        "r/git/config",
        "r/env.txt",
    ] {
        assert!(matches!(roots.bytes(hidden, 100), Err(ToolError::InvalidInput(_))), "{hidden}");
        let request = GrepRequest { path: Some(hidden.to_owned()), ..search("key") };
        assert!(matches!(roots.grep(&request, &never()), Err(ToolError::InvalidInput(_))), "{hidden}");
    }
    let below = |path: &str| paths(grep(&roots, &GrepRequest { path: Some(path.to_owned()), ..search("key") }));
    assert_eq!(below("r/sub"), ["r/sub/kept.log", "r/sub/only-top.txt"]);
    assert_eq!(below("r/sub/kept.log"), ["r/sub/kept.log"]);
    assert!(seen.iter().all(|path| roots.bytes(path, 100).is_ok()));
    // Of what a walk has listed, no ignore file is read again; what names and links hide stays hidden.
    assert!(seen.iter().chain(&["r/a.log"]).all(|path| roots.listed_bytes(path, 100).is_ok()));
    for hidden in ["r/.env", "r/.git/config", "r/git/config", "r/env.txt"] {
        assert!(matches!(roots.listed_bytes(hidden, 100), Err(ToolError::InvalidInput(_))), "{hidden}");
    }
}

#[test]
fn a_line_that_nests_too_deep_spoils_no_other_rule() {
    let deep = format!("{}a{}", "{".repeat(250), "}".repeat(250));
    let rules = format!("*.log\n{deep}\nprivate\n");
    let dir = tree(&[("r/.gitignore", &rules), ("r/a.txt", "k"), ("r/a.log", "k"), ("r/private/x.txt", "k")]);
    assert_eq!(walked(&open(&dir, &["r"])), ["r/a.txt"]);
}

#[test]
fn an_ignore_file_beyond_its_bounds_hides_all_that_is_below_it() {
    let many = |count: usize| (0..count).map(|n| format!("x{n}\n")).collect::<String>();
    let comments = format!("{}{}\n", many(1999), "# a comment of some length that is no pattern\n".repeat(500));
    for (rules, within) in [
        (format!("{}{}", many(1999), "y\n"), true),
        (comments, true),
        (many(2001), false),
        (format!("#{}\n", "c".repeat(64 << 10)), false),
        (format!("{}\n", "p".repeat(513)), false),
    ] {
        let dir = tree(&[("r/top.txt", "k"), ("r/a/.gitignore", &rules), ("r/a/b/c.txt", "k")]);
        let roots = open(&dir, &["r"]);
        let seen: &[&str] = if within { &["r/a/b/c.txt", "r/top.txt"] } else { &["r/top.txt"] };
        assert_eq!(walked(&roots), seen);
        match roots.bytes("r/a/b/c.txt", 100) {
            Ok(bytes) => assert!(within && bytes == b"k"),
            Err(error) => assert!(!within && error.to_string().contains("\"r/a/.gitignore\" has"), "{error}"),
        }
    }
    // Together they are bounded too.
    let dir = tree(&[("r/a/b/c/d/e/f.txt", "k"), ("r/top.txt", "k")]);
    for at in ["r/a", "r/a/b", "r/a/b/c", "r/a/b/c/d", "r/a/b/c/d/e"] {
        write(dir.path(), &format!("{at}/.gitignore"), many(2000).as_bytes());
    }
    assert_eq!(walked(&open(&dir, &["r"])), ["r/top.txt"]);
}

#[test]
fn a_line_is_cut_between_characters_wherever_a_piece_of_it_ends() {
    let long = "ü".repeat(70_000);
    let dir = tree(&[("r/a.txt", &format!("{long}\n{}\r\nlast", "ü".repeat(2000)))]);
    let text = open(&dir, &["r"]).read("r/a.txt", 1, 10).unwrap();
    let shown = "ü".repeat(2000);
    assert_eq!(text, format!("     1\t{shown} (cut)\n     2\t{shown}\n     3\tlast\n"));
}

#[test]
fn lines_are_read_with_their_numbers() {
    let dir = tree(&[("r/a.txt", "one\ntwo\r\nthree")]);
    let roots = open(&dir, &["r"]);
    assert_eq!(roots.read("r/a.txt", 1, 2).unwrap(), "     1\tone\n     2\ttwo\n");
    assert_eq!(roots.read("r/a.txt", 3, 10).unwrap(), "     3\tthree\n");
    assert_eq!(roots.read("r/a.txt", 4, 1).unwrap_err().to_string(), "\"r/a.txt\" has 3 lines");
    assert!(roots.read("r/none.txt", 1, 1).unwrap_err().to_string().contains("there is no file"));
    assert!(roots.read("r", 1, 1).unwrap_err().to_string().contains("is a directory"));
    assert_eq!(roots.read("/r/a.txt", 1, 1).unwrap(), roots.read("r/a.txt", 1, 1).unwrap());
}

#[test]
fn large_and_binary_files_are_bounded() {
    let dir = tree(&[("r/long.txt", &"x".repeat(1 << 20)), ("r/many.txt", &"word word word\n".repeat(200_000))]);
    write(dir.path(), "r/image.bin", b"needle\0needle\n");
    fs::File::create(dir.path().join("r/huge.txt")).unwrap().set_len(1 << 40).unwrap();
    let roots = open(&dir, &["r"]);
    assert!(roots.read("r/long.txt", 1, 10).unwrap().len() < 4096);
    let cut = roots.read("r/many.txt", 1, u32::MAX).unwrap();
    assert!(cut.len() < 300_000 && cut.contains("go on with offset"));
    assert!(roots.read("r/image.bin", 1, 10).unwrap_err().to_string().contains("binary"));
    assert!(matches!(roots.read("r/huge.txt", 1, 10), Err(ToolError::OverLimit(_))));
    assert!(matches!(roots.bytes("r/many.txt", 1000), Err(ToolError::OverLimit(_))));
    let found = grep(&roots, &search("needle|word"));
    assert_eq!((paths(found.clone()), found.files[0].lines.len()), (vec!["r/many.txt".to_owned()], 100));
    assert_eq!((found.skipped, found.full), (1, false), "the one that is too large is counted");
    let found = grep(&roots, &GrepRequest { limit: u32::MAX, ..search("w") });
    assert!(found.full && found.files[0].lines.len() < 200_000);
    let found = grep(&roots, &search("x+"));
    assert!(found.files[0].lines[0].text.len() < 1000);
}

#[test]
fn a_file_is_read_and_searched_in_its_encoding() {
    let dir = tree(&[("r/bom.txt", "\u{feff}Größe in UTF-8\n"), ("r/damaged.txt", "x")]);
    let wide = |order: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> { text.encode_utf16().flat_map(order).collect() };
    write(dir.path(), "r/little.txt", &wide(u16::to_le_bytes, "\u{feff}first\r\nGröße in UTF-16\n"));
    write(dir.path(), "r/big.txt", &wide(u16::to_be_bytes, "\u{feff}Größe in UTF-16\n"));
    write(dir.path(), "r/latin.txt", b"Die Gr\xf6\xdfe in Latin-1, f\xfcr \xe4ltere Texte\n");
    write(dir.path(), "r/declared.html", b"<meta charset=koi8-r>\n\xf2\xc5\xc5\xd3\xd4\xd2\n");
    write(dir.path(), "r/damaged.txt", "Größe für größere Gefäße \u{7f}".as_bytes());
    fs::File::options().append(true).open(dir.path().join("r/damaged.txt")).unwrap().write_all(b"\xff\n").unwrap();
    let roots = open(&dir, &["r"]);
    for (path, text) in [
        ("bom.txt", "     1\tGröße in UTF-8\n"),
        ("little.txt", "     1\tfirst\n     2\tGröße in UTF-16\n"),
        ("big.txt", "     1\tGröße in UTF-16\n"),
        ("latin.txt", "     1\tDie Größe in Latin-1, für ältere Texte\n"),
        ("declared.html", "     1\t<meta charset=koi8-r>\n     2\tРеестр\n"),
        ("damaged.txt", "     1\tGröße für größere Gefäße \u{7f}\u{fffd}\n"),
    ] {
        assert_eq!(roots.read(&format!("r/{path}"), 1, 10).unwrap(), text, "{path}");
    }
    let found = grep(&roots, &search("Größe|Реестр"));
    let texts: Vec<String> = found.files.iter().flat_map(lines).collect();
    assert_eq!(
        texts,
        [
            "1:Größe in UTF-16",
            "1:Größe in UTF-8",
            "1:Größe für größere Gefäße \u{7f}\u{fffd}",
            "2:Реестр",
            "1:Die Größe in Latin-1, für ältere Texte",
            "2:Größe in UTF-16",
        ]
    );
    // What is edited or copied are the bytes.
    assert!(roots.bytes("r/latin.txt", 100).unwrap().contains(&0xf6));
}

#[test]
fn a_pattern_finds_a_word_in_all_its_forms_and_the_line_is_shown_as_it_is() {
    let text = "none\nEin Gefa\u{308}ß\nein Gefäß\nthe ros\u{ad}ter\r\nan o\u{fb03}ce\n（一覧）\n";
    let dir = tree(&[("r/a.txt", text)]);
    let roots = open(&dir, &["r"]);
    let found = |request: &GrepRequest| grep(&roots, request).files.iter().flat_map(lines).collect::<Vec<_>>();
    for pattern in ["Gefäß", "Gefa\u{308}ß", "^[Ee]in Gef[äö]ß$"] {
        assert_eq!(found(&search(pattern)), ["2:Ein Gefa\u{308}ß", "3:ein Gefäß"], "{pattern}");
    }
    assert_eq!(found(&search("roster|office")), ["4:the ros\u{ad}ter", "5:an o\u{fb03}ce"]);
    let around = GrepWanted::Lines { before: 1, after: 0 };
    let request = GrepRequest { wanted: around, ..search("roster") };
    assert_eq!(found(&request), ["3-ein Gefäß", "4:the ros\u{ad}ter"]);
    let request = GrepRequest { multiline: true, ..search("Gefäß.the roster") };
    assert_eq!(found(&request), ["3:ein Gefäß", "4:the ros\u{ad}ter"]);
    let counts = grep(&roots, &GrepRequest { wanted: GrepWanted::Counts, ..search("gefäß|roster") }).files[0].count;
    assert_eq!((counts, found(&search("（一"))), (1, vec!["6:（一覧）".to_owned()]));
}

#[test]
fn a_pattern_for_the_form_itself_finds_it() {
    let dir = tree(&[("r/a.txt", "the ros\u{ad}ter\nan o\u{fb03}ce\nGefa\u{308}ß\nplain\n")]);
    let roots = open(&dir, &["r"]);
    let found = |pattern: &str| grep(&roots, &search(pattern)).files.iter().flat_map(lines).collect::<Vec<_>>();
    assert_eq!(found("\u{ad}"), ["1:the ros\u{ad}ter"]);
    assert_eq!(found("[\u{ad}]"), ["1:the ros\u{ad}ter"]);
    assert_eq!(found(r"\x{fb03}"), ["2:an o\u{fb03}ce"]);
    assert_eq!(found(r"a\x{308}"), ["3:Gefa\u{308}ß"]);
    assert_eq!(found(r"[^\x00-\x7f]").len(), 3);
}

#[test]
fn a_glob_finds_a_name_in_all_its_forms_and_says_it_as_it_is() {
    let dir = tree(&[("r/Gefa\u{308}ß.md", "x"), ("r/dir/Gefäß.md", "x"), ("r/Gefass.md", "x")]);
    let roots = open(&dir, &["r"]);
    let found = |pattern: &str| {
        let mut found = roots.glob(pattern, None, 10, &never()).unwrap();
        found.sort();
        found
    };
    for pattern in ["Gef*ß.md", "Gefäß.*", "Gefa\u{308}ß.md"] {
        assert_eq!(found(pattern), ["r/Gefa\u{308}ß.md", "r/dir/Gefäß.md"], "{pattern}");
    }
    assert_eq!(found("r/Gefä*"), ["r/Gefa\u{308}ß.md"]);
    assert_eq!(found("!Gefäß.md"), ["r/Gefass.md"]);
    assert_eq!(
        paths(grep(&roots, &GrepRequest { glob: Some("r/Gefäß.md".to_owned()), ..search("x") })),
        ["r/Gefa\u{308}ß.md"]
    );
    // A name as an identity is the bytes that it has.
    assert!(roots.read("r/Gefäß.md", 1, 1).unwrap_err().to_string().contains("there is no file"));
}

#[test]
fn a_directory_without_sources_is_read_like_any_other() {
    let dir = tree(&[("r/work/a.md", "needle"), ("r/workshop/b.md", "needle"), ("r/c.md", "needle")]);
    let roots = open(&dir, &["r"]).without_sources(vec!["r/work".to_owned()]);
    let named = |listing: Listing| listing.files.into_iter().map(|file| file.path).collect::<Vec<_>>();
    assert_eq!(named(roots.sources(&never()).unwrap()), ["r/c.md", "r/workshop/b.md"]);
    assert_eq!(walked(&roots), ["r/c.md", "r/work/a.md", "r/workshop/b.md"]);
    assert_eq!(paths(grep(&roots, &search("needle"))), ["r/c.md", "r/work/a.md", "r/workshop/b.md"]);
    assert_eq!(named(open(&dir, &[]).and(&roots).unwrap().sources(&never()).unwrap()).len(), 2);
}

#[test]
fn globs_match_names_or_whole_paths() {
    let dir = tree(&[("r/src/a.rs", "fn a"), ("r/src/deep/b.rs", "fn b"), ("r/notes.md", "fn c")]);
    let roots = open(&dir, &["r"]);
    let found = |pattern: &str, directory: Option<&str>| {
        let mut found = roots.glob(pattern, directory, 100, &never()).unwrap();
        found.sort();
        found
    };
    assert_eq!(found("*.rs", None), ["r/src/a.rs", "r/src/deep/b.rs"]);
    assert_eq!(found("src/*.rs", None), ["r/src/a.rs"]);
    assert_eq!(found("r/**/*.rs", None), ["r/src/a.rs", "r/src/deep/b.rs"]);
    assert_eq!(found("/r/src/**", None), ["r/src/a.rs", "r/src/deep/b.rs"]);
    assert_eq!(found("**/*.{md,txt}", None), ["r/notes.md"]);
    assert_eq!(found("!*.rs", None), ["r/notes.md"]);
    assert_eq!(found("deep/*.rs", Some("r/src")), ["r/src/deep/b.rs"]);
    assert_eq!(found("./*.rs", Some("/r/src/")), ["r/src/a.rs"]);
    assert_eq!(found("*.md", Some("r/src")), [""; 0]);
    assert_eq!(paths(grep(&roots, &GrepRequest { glob: Some("*.md".to_owned()), ..search("fn") })), ["r/notes.md"]);
    let error =
        |pattern: &str, directory: Option<&str>| roots.glob(pattern, directory, 1, &never()).unwrap_err().to_string();
    assert!(error("[", None).contains("glob"));
    assert!(error("*", Some("r/none")).contains("r/none"));
    assert!(roots.grep(&search("("), &never()).unwrap_err().to_string().contains("pattern"));
}

#[test]
fn a_search_shows_what_stands_around_a_match() {
    let dir = tree(&[("r/a.txt", "one\ntwo\nthree\r\nfour\nfive\nsix\n"), ("r/b.txt", "three\n")]);
    let roots = open(&dir, &["r"]);
    let wanted = GrepWanted::Lines { before: 1, after: 2 };
    let found = grep(&roots, &GrepRequest { wanted, ..search("^three") });
    assert_eq!(lines(&found.files[0]), ["2-two", "3:three", "4-four", "5-five"]);
    assert_eq!(lines(&found.files[1]), ["1:three"]);
    assert_eq!(lines(&grep(&roots, &GrepRequest { wanted, limit: 2, ..search("^three") }).files[0]).len(), 2);
}

#[test]
fn a_match_reaches_over_lines_only_where_it_is_asked_to() {
    let dir = tree(&[("r/a.rs", "struct A {\n    field: u8,\n}\n")]);
    let roots = open(&dir, &["r"]);
    let request = GrepRequest { multiline: true, ..search(r"struct \w+ \{.*field") };
    assert_eq!(lines(&grep(&roots, &request).files[0]), ["1:struct A {", "2:    field: u8,"]);
    assert_eq!(grep(&roots, &GrepRequest { multiline: false, ..request }).files, []);
    let error = roots.grep(&search("a\nb"), &never()).unwrap_err();
    assert!(error.to_string().contains("multiline"), "{error}");
}

#[test]
fn case_and_type_narrow_or_widen_a_search() {
    let dir = tree(&[("r/a.rs", "Alpha"), ("r/b.py", "alpha"), ("r/c.md", "ALPHA")]);
    let roots = open(&dir, &["r"]);
    let request = GrepRequest { ignore_case: true, ..search("alpha") };
    assert_eq!(paths(grep(&roots, &request)), ["r/a.rs", "r/b.py", "r/c.md"]);
    let of = |file_type: &str| GrepRequest { file_type: Some(file_type.to_owned()), ..request.clone() };
    assert_eq!(paths(grep(&roots, &of("rust"))), ["r/a.rs"]);
    assert!(roots.grep(&of("klingon"), &never()).unwrap_err().to_string().contains("klingon"));
}

#[test]
fn files_come_newest_first_and_counts_by_path() {
    let dir = tree(&[("r/a.txt", "x\nx\n"), ("r/b.txt", "x"), ("r/c.txt", "x")]);
    for (name, seconds) in [("a", 10), ("b", 30), ("c", 20)] {
        let file = fs::File::options().write(true).open(dir.path().join(format!("r/{name}.txt"))).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    let roots = open(&dir, &["r"]);
    let request = GrepRequest { wanted: GrepWanted::Files, ..search("x") };
    assert_eq!(paths(grep(&roots, &request)), ["r/b.txt", "r/c.txt", "r/a.txt"]);
    assert_eq!(paths(grep(&roots, &GrepRequest { limit: 1, ..request })), ["r/b.txt"]);
    assert_eq!(roots.glob("*.txt", None, 2, &never()).unwrap(), ["r/b.txt", "r/c.txt"]);
    let counts = grep(&roots, &GrepRequest { wanted: GrepWanted::Counts, ..search("x") });
    assert_eq!(counts.files.iter().map(|file| file.count).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn a_pipe_is_not_waited_for() {
    let dir = tree(&[("r/a.txt", "x")]);
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("r/pipe"), rustix::fs::Mode::RWXU).unwrap();
    let roots = open(&dir, &["r"]);
    assert!(roots.read("r/pipe", 1, 1).unwrap_err().to_string().contains("not a file"));
    assert_eq!(paths(grep(&roots, &search("x"))), ["r/a.txt"]);
}

#[test]
fn a_search_that_is_cancelled_looks_no_further() {
    let dir = tree(&[("r/a.txt", "x")]);
    let roots = open(&dir, &["r"]);
    let cancelled = never();
    cancelled.cancel();
    assert!(roots.grep(&search("x"), &cancelled).is_err());
    assert!(roots.glob("*", None, 1, &cancelled).is_err());
    assert!(roots.walk(&cancelled).is_err());
}

#[test]
fn a_worktree_is_shown_whole_but_for_hidden_files() {
    let large = "x\n".repeat(100_000);
    let dir = tree(&[
        ("r/.gitignore", "*\n"),
        ("r/.env", "key"),
        ("r/a.txt", "key"),
        ("r/sub/.gitignore", &large),
        ("r/sub/b.log", "key"),
    ]);
    let roots = ReadRoots::open_worktree([("r".to_owned(), dir.path().join("r"))]).unwrap();
    assert_eq!(walked(&roots), ["r/a.txt", "r/sub/b.log"]);
    assert_eq!(paths(grep(&roots, &search("key"))), ["r/a.txt", "r/sub/b.log"]);
    assert_eq!(roots.bytes("r/sub/b.log", 100).unwrap(), b"key");
    assert!(roots.bytes("r/.env", 100).is_err());
}
