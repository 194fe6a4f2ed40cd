//! `guild pr` against a real host: a real project, whose `origin` is reached by ssh, and a `gh` that says what it was asked.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use guild_fakes::git;
use serde_json::json;

use crate::support::{
    host::{Home, Host},
    output::{json_of, stderr, stdout},
};

const URL: &str = "https://github.example/ann/book/pull/1";
const POLICY: &str = "config/guild/guild.toml";

/// A program of the host's `PATH`, which has git and no others.
fn program(home: &Home, name: &str, text: &str) {
    let path = home.write(&format!("bin/{name}"), format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A home whose hall has the project `book`.
fn home() -> Home {
    let mut home = Home::new();
    let (root, book) = (fs::canonicalize(home.path(".")).unwrap(), book(&home));
    home.write("code/book/README.md", "book\n");
    git(&book, &["init", "--quiet", "--initial-branch=main"]);
    git(&book, &["add", "--all"]);
    git(&book, &["commit", "--quiet", "--message=Begin"]);
    git(&root, &["clone", "--quiet", "--bare", "code/book", "origin.git"]);
    git(&book, &["remote", "add", "origin", "ssh://git@github.example/ann/book.git"]);
    home.write("hall/config.yaml", format!("projects:\n  - name: book\n    path: {}\n", book.display()));
    home.write(POLICY, format!("[[project]]\npath = {book:?}\npush = true\npull_requests = true\n"));
    let found = std::env::var("PATH").unwrap();
    let found = found.split(':').map(|dir| Path::new(dir).join("git")).find(|file| file.exists()).unwrap();
    fs::create_dir_all(root.join("bin")).unwrap();
    symlink(found, root.join("bin/git")).unwrap();
    let ssh = format!(
        "echo \"$*\" >> {0}/ssh\nfor word; do last=$word; done\n\
         case $last in *upload-pack*) exec git upload-pack {0}/origin.git ;; *) exec git receive-pack {0}/origin.git ;; esac",
        root.display()
    );
    program(&home, "ssh", &ssh);
    home.set("PATH", root.join("bin").to_str().unwrap());
    home
}

fn book(home: &Home) -> PathBuf {
    fs::create_dir_all(home.path("code/book")).unwrap();
    fs::canonicalize(home.path("code/book")).unwrap()
}

fn serve(home: &Home) -> Host {
    home.serve_roster(&["--hall", home.path("hall").to_str().unwrap()])
}

fn pr(home: &Home, args: &[&str]) -> Output {
    home.run(&[&["pr"], args, &["--home", "hall"]].concat())
}

/// Something that `claude/main` has and `main` lacks: what is written into the integration worktree is committed.
fn write(home: &Home, name: &str) {
    // Opens the project, so that the worktree is there.
    assert!(pr(home, &["sync", "book"]).status.success());
    home.write(&format!("hall/projects/book/.lore/{name}.md"), "text\n");
}

#[test]
fn a_pull_request_is_made_and_its_merge_followed() {
    let home = home();
    let _host = serve(&home);
    let origin = home.path("origin.git");
    let main = git(&origin, &["rev-parse", "main"]);
    write(&home, "tides");

    let missing = pr(&home, &["create", "book", "--title", "Tides"]);
    assert_eq!(missing.status.code(), Some(1), "{}", stdout(&missing));
    assert!(stderr(&missing).contains("gh is not on PATH; install the GitHub CLI"), "{}", stderr(&missing));
    let asked = fs::canonicalize(home.path(".")).unwrap().join("asked");
    let record = format!("for word; do printf '%s\\n' \"$word\"; done >> {}", asked.display());
    program(&home, "gh", &format!("{record}\necho 'not logged in' >&2; exit 4"));
    let failed = pr(&home, &["create", "book", "--title", "Tides"]);
    assert!(stderr(&failed).contains("gh pr create failed: not logged in"), "{}", stderr(&failed));

    program(&home, "gh", &format!("{record}\necho {URL}"));
    let _ = fs::remove_file(&asked);
    let mut command = home.guild();
    command.args(["pr", "create", "book", "--title", "--web", "--body", "-", "--home", "hall"]);
    command.current_dir(home.path(".")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"--draft\nand more\n").unwrap();
    let made = child.wait_with_output().unwrap();
    assert_eq!((made.status.code(), stdout(&made)), (Some(0), format!("{URL}\n")), "{}", stderr(&made));
    assert!(stderr(&made).contains("guild pr sync book"), "{}", stderr(&made));
    let expected = "pr\ncreate\n--repo=github.example/ann/book\n--base=main\n--head=claude/main\n--title=--web\n\
                    --body=--draft\nand more\n\n";
    assert_eq!(fs::read_to_string(&asked).unwrap(), expected);
    let branches = git(&origin, &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(branches, "refs/heads/claude/main\nrefs/heads/main");
    assert_eq!(git(&origin, &["rev-parse", "main"]), main);
    // Nobody is asked for anything.
    let ssh = fs::read_to_string(home.path("ssh")).unwrap();
    assert!(ssh.lines().all(|line| line.starts_with("-oBatchMode=yes ")), "{ssh}");

    // The user merges it elsewhere.
    git(&home.path("."), &["clone", "--quiet", "origin.git", "elsewhere"]);
    git(&home.path("elsewhere"), &["merge", "--quiet", "--squash", "origin/claude/main"]);
    git(&home.path("elsewhere"), &["commit", "--quiet", "--message=Tides"]);
    git(&home.path("elsewhere"), &["push", "--quiet", "origin", "main"]);
    let synced = pr(&home, &["sync"]);
    assert_eq!(stdout(&synced), "book  reset: origin/main has all changes of claude/main\n", "{}", stderr(&synced));
    assert_eq!(git(&book(&home), &["rev-parse", "claude/main"]), git(&origin, &["rev-parse", "main"]));
    assert_eq!(git(&book(&home), &["rev-parse", "main"]), main);
    let synced = json_of(&pr(&home, &["sync", "book", "--json"]));
    assert_eq!(synced, json!({"results": [{"project": "book", "action": "noop", "reason": "already current"}]}));
    let nothing = pr(&home, &["create", "book", "--title", "Tides"]);
    assert!(stderr(&nothing).contains("nothing to propose"), "{}", stderr(&nothing));

    // The branch at origin is as it was; it is replaced, and no other.
    write(&home, "harbours");
    let made = pr(&home, &["create", "book", "--title", "Harbours", "--json"]);
    let made = json_of(&made);
    assert_eq!((&made["url"], &made["existed"]), (&json!(URL), &json!(false)));
    assert_eq!(git(&origin, &["rev-parse", "claude/main"]), made["claudeMainTip"]);
}

#[test]
fn what_cannot_be_done_says_why_and_fails() {
    let home = home();
    let policy = fs::read_to_string(home.path(POLICY)).unwrap();
    home.write(POLICY, policy.replace("pull_requests = true", ""));
    program(&home, "gh", "exit 1");
    let _host = serve(&home);
    write(&home, "tides");
    let refused = |output: Output, expected: &str| {
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(said.contains(expected), "{expected}: {said}");
    };
    refused(pr(&home, &["create", "book", "--title", "Tides"]), "guild.toml needs `pull_requests = true`");
    refused(pr(&home, &["create", "none", "--title", "Tides"]), "Project not found: none");
    refused(pr(&home, &["create", "book", "--title", "two\nlines"]), "title is one line");
    refused(pr(&home, &["sync", "none"]), "Project not found: none");
    assert_eq!(git(&home.path("origin.git"), &["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    fs::rename(home.path("origin.git"), home.path("away.git")).unwrap();
    refused(pr(&home, &["sync", "book"]), "book  error: git ls-remote");
}
