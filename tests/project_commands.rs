//! `guild project`: which repositories workers may be commissioned on, in `config.yaml` and in `guild.toml`.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::PathBuf,
    process::Output,
};

use guild_fakes::git;
use serde_json::{Value, json};

use crate::support::{
    host::Home,
    output::{json_of, stderr, stdout},
};

fn empty_repository(home: &Home, name: &str) -> PathBuf {
    let path = home.path(&format!("code/{name}"));
    fs::create_dir_all(&path).unwrap();
    git(&path, &["init", "--quiet", "--initial-branch=main"]);
    fs::canonicalize(path).unwrap()
}

fn repository(home: &Home, name: &str) -> PathBuf {
    let path = empty_repository(home, name);
    git(&path, &["commit", "--quiet", "--allow-empty", "--message=Begin"]);
    path
}

fn refused(output: &Output, expected: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    assert!(stderr(output).contains(expected), "{expected}: {}", stderr(output));
}

const POLICY: &str = "config/guild/guild.toml";

#[test]
fn a_project_is_listed_and_permitted_by_one_command_and_both_are_taken_back_by_another() {
    let home = Home::new();
    let book = repository(&home, "book");
    home.write(POLICY, "# mine\nport = 1\n");
    home.write(".guild-hall/config.yaml", "# theirs\nprojects: []\nmaxConcurrentCommissions: 4\n");
    let added = home.run(&["project", "add", "code/book"]);
    assert_eq!((added.status.code(), stdout(&added).as_str()), (Some(0), "book\n"), "{}", stderr(&added));
    assert!(stderr(&added).contains("guild serve --hall") && !stderr(&added).contains("note:"), "{}", stderr(&added));
    let yaml = format!(
        "# theirs\nprojects:\n  - name: book\n    path: {}\n    defaultBranch: main\nmaxConcurrentCommissions: 4\n",
        book.display()
    );
    assert_eq!(fs::read_to_string(home.path(".guild-hall/config.yaml")).unwrap(), yaml);
    let toml = format!("# mine\nport = 1\n\n[[project]]\npath = {book:?}\n");
    assert_eq!(fs::read_to_string(home.path(POLICY)).unwrap(), toml);
    assert_eq!(git(&book, &["branch", "--list"]), "* main");

    // Again, with nothing to do but to say so.
    let again = home.run(&["project", "add", "code/book"]);
    assert!(stderr(&again).contains("is already the project book"), "{}", stderr(&again));
    assert_eq!(fs::read_to_string(home.path(POLICY)).unwrap(), toml);
    refused(&home.run(&["project", "add", "code/book", "--name", "other"]), "already registered as project 'book'");

    let listed = home.run(&["project", "list", "--json"]);
    assert_eq!(json_of(&listed), json!([{"name": "book", "path": book, "status": "registered"}]));
    let listed = home.run(&["project", "list"]);
    assert_eq!(stdout(&listed), format!("book\twork\t{}\n", book.display()));

    let removed = home.run(&["project", "remove", "book"]);
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert_eq!(fs::read_to_string(home.path(POLICY)).unwrap(), "# mine\nport = 1\n");
    assert_eq!(json_of(&home.run(&["project", "list", "--json"])), json!([]));
    refused(&home.run(&["project", "remove", "book"]), "project 'book' not found");
}

#[test]
fn a_project_that_only_config_yaml_names_is_listed_with_what_to_run_and_permitted_by_that() {
    let home = Home::new();
    let book = repository(&home, "book");
    home.write("hall/config.yaml", format!("projects:\n  - name: handbook\n    path: {}\n", book.display()));
    let listed = json_of(&home.run(&["project", "list", "--home", "hall", "--json"]));
    let problem = listed[0]["problem"].as_str().unwrap();
    assert!(problem.contains(&format!("`guild project add {}`", book.display())), "{problem}");
    let listed = stdout(&home.run(&["project", "list", "--home", "hall"]));
    assert!(listed.starts_with("handbook\tno\t"), "{listed}");
    // A host serves it.
    let _socket = UnixListener::bind(home.path("hall/guild-hall.sock")).unwrap();
    let _open = fs::File::open(home.path("hall")).unwrap();
    home.write("hall/guild-hall.sock.pid", std::process::id().to_string());
    let added = home.run(&["project", "add", "code/book", "--home", "hall"]);
    assert_eq!(stdout(&added), "handbook\n", "{}", stderr(&added));
    let expected = format!("`kill -HUP {}`", std::process::id());
    assert!(stderr(&added).contains(&expected), "{}", stderr(&added));
    let listed = stdout(&home.run(&["project", "list", "--home", "hall"]));
    assert!(listed.starts_with("handbook\twork\t"), "{listed}");
    let rule = fs::read_to_string(home.path(POLICY)).unwrap() + "push = true\npull_requests = true\n";
    home.write(POLICY, rule);
    let listed = stdout(&home.run(&["project", "list", "--home", "hall"]));
    assert!(listed.starts_with("handbook\twork, push, pull requests\t"), "{listed}");
}

#[test]
fn each_repository_that_cannot_be_a_project_has_its_answer_and_changes_nothing() {
    let home = Home::new();
    home.write("code/none/a.md", "text\n");
    git(&home.path("."), &["init", "--quiet", "--bare", "code/bare"]);
    empty_repository(&home, "empty");
    git(&repository(&home, "claude"), &["branch", "claude"]);
    let book = repository(&home, "book");
    home.write("code/book/inner/a.md", "text\n");
    git(&book, &["worktree", "add", "--quiet", "../linked"]);
    let lfs = repository(&home, "lfs");
    home.write("code/lfs/.gitattributes", "*.bin filter=lfs\n");
    let submodules = repository(&home, "submodules");
    home.write("code/submodules/.gitmodules", "[submodule \"x\"]\n");
    for path in [&lfs, &submodules] {
        git(path, &["add", "--all"]);
        git(path, &["commit", "--quiet", "--message=Add"]);
    }
    for (path, expected) in [
        ("code/missing", "No such file or directory"),
        ("code/none", "is not a git repository; run `git init`"),
        ("code/bare", "is a bare repository; register a clone"),
        ("code/empty", "no commit"),
        ("code/claude", "claude"),
        ("code/book/inner", "is inside of the git repository"),
        ("code/linked", "is a linked worktree; register the main working tree"),
        ("code/lfs", "LFS"),
        ("code/submodules", "submodules"),
    ] {
        refused(&home.run(&["project", "add", path]), expected);
    }
    refused(&home.run(&["project", "add", "code/book", "--branch", "none"]), "none");
    refused(&home.run(&["project", "add", "code/book", "--name", "a/b"]), "a project's name is");
    assert!(!home.path(POLICY).exists() && !home.path(".guild-hall/config.yaml").exists());
    home.write("code/book/new.md", "text\n");
    let dirty = home.run(&["project", "add", "code/book"]);
    assert!(dirty.status.success() && stderr(&dirty).contains("changes that are not committed"), "{}", stderr(&dirty));
}

#[test]
fn projects_are_added_one_by_one_whoever_asks_at_once() {
    let home = Home::new();
    let names: Vec<String> = (0..6).map(|nth| format!("book{nth}")).collect();
    names.iter().for_each(|name| drop(repository(&home, name)));
    let add = |name: &String| {
        home.guild().current_dir(home.path(".")).args(["project", "add", &format!("code/{name}")]).spawn().unwrap()
    };
    let running: Vec<_> = names.iter().map(add).collect();
    for mut process in running {
        assert!(process.wait().unwrap().success());
    }
    let listed = json_of(&home.run(&["project", "list", "--json"]));
    let mut found: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, names);
    assert!(listed.as_array().unwrap().iter().all(|one| one["problem"] == Value::Null), "{listed}");
}

#[test]
fn the_home_is_the_options_then_the_variables_then_the_files_then_the_users() {
    let mut home = Home::new();
    for (place, name) in [("one", "of-option"), ("two", "of-variable"), ("three", "of-file"), (".guild-hall", "usual")]
    {
        home.write(&format!("{place}/config.yaml"), format!("projects:\n  - name: {name}\n    path: /nowhere\n"));
    }
    let listed = |home: &Home, more: &[&str]| {
        let output = home.run(&[&["project", "list"], more].concat());
        stdout(&output).split('\t').next().unwrap_or_default().to_owned()
    };
    assert_eq!(listed(&home, &[]), "usual");
    home.write(POLICY, "[hall]\nhome = \"../../three\"\n");
    assert_eq!(listed(&home, &[]), "of-file");
    let two = home.path("two");
    home.set("GUILD_HALL_HOME", two.to_str().unwrap());
    assert_eq!(listed(&home, &[]), "of-variable");
    assert_eq!(listed(&home, &["--home", "one"]), "of-option");
}

#[test]
fn programs_of_the_working_directory_are_not_run_in_place_of_git() {
    let mut home = Home::new();
    repository(&home, "book");
    for planted in ["git", "bin/git"] {
        let program = home.write(planted, format!("#!/bin/sh\necho {planted} >> {}\n", home.path("ran").display()));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    home.set("PATH", &format!(".:bin::{path}"));
    let added = home.guild().current_dir(home.path(".")).args(["project", "add", "code/book"]).output().unwrap();
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(!home.path("ran").exists(), "{:?}", fs::read_to_string(home.path("ran")));
}
