//! The documents say what is so.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use guild_config::Config;
use guild_contract::Limits;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A default as `docs/operators.md` writes it.
fn written(name: &str, value: &Value) -> String {
    const MIB: u64 = 1024 * 1024;
    match value.as_u64() {
        Some(bytes) if name.ends_with("_bytes") && bytes % MIB == 0 => format!("{} MiB", bytes / MIB),
        Some(bytes) if name.ends_with("_bytes") => format!("{} KiB", bytes / 1024),
        Some(count) => {
            let digits = count.to_string();
            let groups: Vec<_> =
                digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
            groups.join(",")
        }
        None => format!("{:.2}", value.as_f64().unwrap()),
    }
}

#[test]
fn the_operators_table_has_every_limit_and_its_default() {
    let text = document("docs/operators.md");
    let limits = json!(Limits::default());
    for name in Limits::NAMES {
        let row = format!("| `{name}` | {} |", written(name, &limits[name]));
        assert!(text.contains(&row), "docs/operators.md has no row that begins with {row}");
    }
    let rows = text.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Limits::NAMES.len(), "docs/operators.md has a row for something that is no limit");
}

#[test]
fn every_guild_toml_that_is_shown_is_accepted() {
    for (name, at_least) in [("docs/operators.md", 5), ("docs/reviewers.md", 1), ("README.md", 1)] {
        let text = document(name);
        let shown: Vec<_> = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(shown.len() >= at_least, "{name} shows no guild.toml");
        for toml in shown {
            Config::parse(Path::new("/etc/guild/guild.toml"), toml).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

/// `path::name` of each test that `docs/requirements.md` names.
fn named_tests(text: &str) -> Vec<(&str, &str)> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::")).filter(|(path, _)| path.ends_with(".rs")).collect()
}

#[test]
fn every_test_that_the_requirements_name_exists() {
    let text = document("docs/requirements.md");
    let named = named_tests(&text);
    assert!(named.len() > 40, "only {} tests are named", named.len());
    for (path, name) in named {
        let source = document(path);
        let found = source.contains(&format!("fn {name}("));
        assert!(found, "docs/requirements.md names {path}::{name}, which does not exist");
    }
}

#[test]
fn every_requirement_is_accounted_for() {
    let text = document("docs/requirements.md");
    let told: BTreeSet<u32> =
        text.lines().filter_map(|line| line.strip_prefix("| REQ-WD-")?.split_once(' ')?.0.parse().ok()).collect();
    assert_eq!(told, (1..=47).collect());
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = documents.chain(["README.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root().join(name)));
    for document in documents.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let target = link.split('#').next().unwrap();
            if !target.is_empty() && !target.contains("://") {
                let path = document.parent().unwrap().join(target);
                assert!(path.exists(), "{} links to {link}", document.display());
            }
        }
    }
}

#[test]
fn what_the_readme_shows_is_accepted() {
    let text = document("README.md");
    let commands = text.lines().filter(|line| line.starts_with("guild "));
    let help = |command: &str| {
        let name = command.split(' ').nth(1).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_guild")).args([name, "--help"]).output().unwrap();
        assert!(output.status.success(), "{command}");
        String::from_utf8(output.stdout).unwrap()
    };
    for command in commands {
        let options = command.split(" #").next().unwrap().split(' ').filter(|word| word.starts_with("--"));
        let known = help(command);
        for option in options {
            assert!(known.contains(option), "{command}: no {option}");
        }
    }
}
