//! What reports say of sources that could not be read, and of what takes a model.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Output,
};

use crate::support::host::Home;

const QUESTION: &str = "How high is the lighthouse of Varg?";

/// Has a member do a task, with these options.
fn run(home: &Home, member: &str, task: &str, sources: &str) -> (String, String) {
    let member = home.path(&format!("members/{member}"));
    let sources = home.path(sources);
    let arguments = ["run", member.to_str().unwrap(), task, "--sources", sources.to_str().unwrap()];
    let Output { status, stdout, stderr } = home.guild_under_permissions().args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{stderr}");
    (stdout, stderr)
}

/// The member `name`, as it is installed.
fn installed(home: &Home, name: &str) {
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guild-members").join(name);
    for file in ["guild-member.json".to_owned(), "posture.md".to_owned(), format!("{name}.wasm")] {
        home.write(&format!("members/{name}/{file}"), fs::read(from.join(&file)).unwrap());
    }
}

#[test]
fn what_was_come_by_and_not_read_is_in_the_report_with_its_reason() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("docs/lights.md", "# Lights\n\nThe lighthouse of Varg is 31 metres high.\n");
    home.write("docs/picture.txt", b"\0\x01binary");
    home.write("docs/table.csv", "a,b\n1,2\n");
    let large = File::create(home.path("docs/large.txt")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    symlink(home.path("docs/lights.md"), home.path("docs/link.md")).unwrap();
    let (report, _) = run(&home, "researcher", QUESTION, "docs");
    assert!(report.contains("31 metres high"), "{report}");
    let (_, unread) =
        report.split_once("## Not read\n\nSearched: 1 of 5 files. Not read:").unwrap_or_else(|| panic!("{report}"));
    for line in [
        "- symbolic links, which are not followed (1): `docs/link.md`",
        "- too large (1): `docs/large.txt`",
        "- binary (1): `docs/picture.txt`",
        "- tables, styles, lock files and other kinds without text to quote (1): `docs/table.csv`",
    ] {
        assert!(unread.contains(line), "{line}\n{unread}");
    }
}

#[test]
fn where_nothing_was_read_the_report_and_stderr_say_so_and_nothing_of_what_sources_mention() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("empty/.hidden", "The lighthouse of Varg is 31 metres high.");
    let (report, log) = run(&home, "researcher", QUESTION, "empty");
    assert!(report.contains("**No document was read**"), "{report}");
    assert!(!report.contains("no passage has") && !report.contains("Not found in the sources"), "{report}");
    assert!(log.contains("WARN") && log.contains("no document was read in the read roots (empty)"), "{log}");
    assert!(log.contains("; they have no file that sessions can see") && !log.contains("came by"), "{log}");
    assert!(log.contains("member=researcher") && log.contains("job="), "{log}");
}

#[test]
fn a_directory_that_cannot_be_read_is_named_and_nothing_is_said_of_what_is_in_it() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("docs/other.md", "# Other\n\nNothing of interest.\n");
    let closed = home.write("docs/closed/lights.md", "The lighthouse of Varg is 31 metres high.");
    let closed = closed.parent().unwrap();
    fs::set_permissions(closed, Permissions::from_mode(0o000)).unwrap();
    let (report, log) = run(&home, "researcher", QUESTION, "docs");
    assert!(report.contains("- cannot be read, check the permissions (1): `docs/closed`"), "{report}");
    assert!(report.contains("(no passage has “high”, “lighthouse”, “varg”)"), "{report}");
    assert!(log.contains("WARN") && log.contains("`docs/closed`"), "{log}");
}

#[test]
fn the_analyst_answers_with_its_figures_where_there_is_no_model() {
    let home = Home::new();
    installed(&home, "analyst");
    home.write("data/sales.csv", "who,price\nann,9\nbob,10.5\n");
    home.write("data/wide.csv", format!("a\n{}\n", "x".repeat(3000)));
    let (report, _) = run(&home, "analyst", "What is the mean price?", "data");
    assert!(report.contains("## Summary\n\nThe figures of the tables are below.\n"), "{report}");
    assert!(
        report.contains("## Figures\n") && report.contains("| price | number | 0 | 2 | 9 | 10.5 | 19.5 | 9.75 |"),
        "{report}"
    );
    assert!(report.contains("no figures of this table: line 2 is too long"), "{report}");
    assert!(!report.contains("Not found in the sources") && !report.contains("No document was read"), "{report}");
    let (_, unread) = report.split_once("## Not read\n").unwrap_or_else(|| panic!("{report}"));
    assert!(unread.contains("(2): `data/sales.csv`, `data/wide.csv`"), "{report}");
}

#[test]
fn a_report_without_a_model_says_that_the_posture_had_no_part_in_it() {
    let home = Home::new();
    home.researcher("reviewer");
    home.write("members/reviewer/posture.md", "You review. Begin each report with the word VERDICT.\n");
    home.write("docs/lights.md", "# Lights\n\nThe lighthouse of Varg is 31 metres high.\n");
    let (report, _) = run(&home, "reviewer", QUESTION, "docs");
    assert!(
        !report.contains("VERDICT")
            && report.contains("posture and instructions are for models, and had no part in it")
    );
}
