//! Discovers members in real directories.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use guild_config::Config;
use guild_contract::{Policy, capability::grants::Rule};
use guild_fs::durable::open_directory;
use guild_roster::discovery::{Found, discover, single};
use serde_json::{Value, json};

use crate::harness::manifest;

fn put(directory: &Path, manifest: &Value) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("guild-member.json"), manifest.to_string()).unwrap();
}

fn found(directory: &Path) -> Vec<Found> {
    discover(&open_directory(directory).unwrap()).unwrap()
}

fn paths(found: &[Found]) -> Vec<&str> {
    found.iter().map(|found| found.path.as_str()).collect()
}

#[test]
fn members_are_found_one_level_deep_and_two_where_the_first_has_none() {
    let members = tempfile::tempdir().unwrap();
    put(&members.path().join("alone"), &manifest("alone"));
    put(&members.path().join("alone/inner"), &manifest("hidden behind the outer one"));
    put(&members.path().join("team/first"), &manifest("first"));
    put(&members.path().join("team/second"), &manifest("second"));
    put(&members.path().join("too/deep/down"), &manifest("down"));
    put(&members.path().join(".git"), &manifest("git"));
    put(&members.path().join("team/.cache"), &manifest("cache"));
    fs::create_dir(members.path().join("empty")).unwrap();
    fs::write(members.path().join("file"), "no directory").unwrap();
    put(members.path(), &manifest("the directory itself"));

    let found = found(members.path());
    assert_eq!(paths(&found), ["alone", "team/first", "team/second"]);
    for found in found {
        let member = found.member.unwrap();
        assert_eq!(member.key.as_str(), found.path);
        assert!(member.dir.exists("guild-member.json"));
        assert_eq!(member.manifest.name, found.path.rsplit('/').next().unwrap());
    }
}

#[test]
fn an_invalid_manifest_is_an_error_with_its_reason_and_the_others_go_on() {
    let members = tempfile::tempdir().unwrap();
    put(&members.path().join("sound"), &manifest("sound"));
    put(&members.path().join("nameless"), &json!({"version": "1"}));
    put(&members.path().join("team/halfway"), &json!({}));
    fs::write(members.path().join("team/halfway/guild-member.json"), "{\"name\": ").unwrap();
    put(&members.path().join("a b"), &manifest("a b"));
    fs::create_dir(members.path().join("huge")).unwrap();
    fs::write(members.path().join("huge/guild-member.json"), " ".repeat(1 << 20)).unwrap();

    let found = found(members.path());
    assert_eq!(paths(&found), ["a b", "huge", "nameless", "sound", "team/halfway"]);
    let reasons: Vec<_> = found.iter().map(|found| found.member.as_ref().err().cloned()).collect();
    assert!(reasons[0].as_ref().unwrap().contains("\"a b\""), "{reasons:?}");
    assert_eq!(reasons[1].as_ref().unwrap(), "huge/guild-member.json: is larger than 262144 bytes");
    assert!(
        reasons[2].as_ref().unwrap().starts_with("nameless/guild-member.json:1: missing field `name`"),
        "{reasons:?}"
    );
    assert_eq!(reasons[3], None);
    assert!(reasons[4].as_ref().unwrap().starts_with("team/halfway/guild-member.json:1: EOF"), "{reasons:?}");
}

#[test]
fn symlinked_directories_are_not_members() {
    let (members, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(&members.path().join("real"), &manifest("real"));
    put(&outside.path().join("member"), &manifest("outside"));
    symlink(outside.path().join("member"), members.path().join("outside")).unwrap();
    symlink("real", members.path().join("alias")).unwrap();
    symlink(".", members.path().join("loop")).unwrap();
    symlink("nowhere", members.path().join("dangling")).unwrap();
    assert_eq!(paths(&found(members.path())), ["real"]);
}

#[test]
fn a_manifest_that_is_no_plain_file_neither_blocks_nor_leads_outside() {
    let (members, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(outside.path(), &manifest("outside"));
    for name in ["directory", "fifo", "link", "device"] {
        fs::create_dir(members.path().join(name)).unwrap();
    }
    let file = |name: &str| members.path().join(name).join("guild-member.json");
    fs::create_dir(file("directory")).unwrap();
    symlink(outside.path().join("guild-member.json"), file("link")).unwrap();
    symlink("/dev/zero", file("device")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(file("fifo")).status().unwrap();
    assert!(made.success());

    let directory = members.path().to_owned();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(found(&directory)));
    let found = receiver.recv_timeout(Duration::from_secs(10)).expect("discovery hangs");
    assert_eq!(paths(&found), ["device", "directory", "fifo", "link"]);
    for found in found {
        let reason = found.member.unwrap_err();
        assert!(reason.starts_with(&format!("{}/guild-member.json: ", found.path)), "{reason}");
        assert!(!reason.contains(outside.path().to_str().unwrap()), "{reason}");
    }
}

#[test]
fn a_single_members_key_is_where_it_is_and_not_what_its_manifest_says() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("members/group/folder");
    put(&directory, &manifest("researcher"));
    let key = |directory: &Path, members: Option<&str>| {
        let members = members.map(|members| home.path().join(members));
        single(directory, members.as_deref(), &Config::default()).map(|found| found.key.to_string())
    };
    assert_eq!(key(&directory, None).unwrap(), "folder");
    assert_eq!(key(&directory, Some("members")).unwrap(), "group/folder");
    assert_eq!(key(&directory, Some("other")).unwrap(), "folder");
    let unnamed = home.path().join("what a name");
    put(&unnamed, &manifest("researcher"));
    for members in [None, Some(".")] {
        let why = key(&unnamed, members).unwrap_err();
        assert!(why.contains("\"what a name\" is not"), "{why}");
    }
}

#[test]
fn a_single_member_is_refused_where_a_rule_is_for_one_of_the_keys_that_it_could_have() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("team/ann");
    put(&directory, &manifest("ann"));
    let of = |table: &str, members: Option<&Path>| {
        let rules = vec![Rule { members: table.parse().unwrap(), ..Rule::default() }];
        let policy = Policy { rules, ..Policy::default() };
        single(&directory, members, &Config { policy, ..Config::default() }).map(|found| found.key.to_string())
    };
    for table in ["ann", "team/ann", "team/*", "a*"] {
        let why = of(table, None).unwrap_err();
        assert!(why.contains(&format!("[member.{table:?}]")) && why.contains("`members` in guild.toml"), "{why}");
        assert_eq!(of(table, Some(home.path())).unwrap(), "team/ann");
        assert_eq!(of(table, Some(directory.parent().unwrap())).unwrap(), "ann");
    }
    for table in ["*", "*ann", "*n", "bob", "other/*"] {
        assert_eq!(of(table, None).unwrap(), "ann");
    }
    // Members contain no further members.
    put(&home.path().join("team"), &manifest("team"));
    assert_eq!(of("team/*", None).unwrap(), "ann");
}

#[test]
fn a_single_member_that_cannot_be_served_is_an_error_that_names_its_file() {
    let home = tempfile::tempdir().unwrap();
    let found = |path: &Path| single(path, None, &Config::default());
    assert!(found(&home.path().join("missing")).unwrap_err().contains("missing cannot be opened"));
    assert!(found(home.path()).unwrap_err().contains("it has no guild-member.json"));
    put(home.path(), &json!({"name": 1}));
    assert!(
        found(home.path()).unwrap_err().contains("guild-member.json:1: `name` is the number `1`; it must be a text")
    );
}
