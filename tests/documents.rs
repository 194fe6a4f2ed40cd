//! The documents say what is so.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use guild_server::config::Config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// All Markdown of the project, but for what tests read, and the files of members, which are their authors'.
fn documents() -> Vec<PathBuf> {
    const OTHERS: [&str; 6] = ["target", "corpora", "pages", "guild-members", "node_modules", "guests"];
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                let is_ours = !name.starts_with('.') && !OTHERS.contains(&name.as_str());
                directories.extend(is_ours.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of a document outside of its fenced blocks, numbered.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

#[test]
fn lines_of_prose_have_at_most_100_columns() {
    let mut long = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        // A line without a space after its beginning, as one long link, cannot be broken.
        let broken = |line: &str| line.trim_start_matches(['-', '>', ' ']).contains(' ');
        let found =
            prose(&text).filter(|(_, line)| line.chars().count() > 100 && !line.starts_with('|') && broken(line));
        long.extend(found.map(|(at, _)| format!("{}:{at}", document.display())));
    }
    assert!(long.is_empty(), "longer than 100 columns: {long:#?}");
}

#[test]
fn every_guild_toml_that_is_shown_is_accepted() {
    let mut count = 0;
    // The authors' guide shows manifests of cargo.
    for path in documents().into_iter().filter(|path| !path.ends_with("docs/authors.md")) {
        let text = fs::read_to_string(&path).unwrap();
        for toml in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            Config::parse(Path::new("/etc/guild/guild.toml"), toml)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} are shown");
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

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        prose(text).filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut lost = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") {
                continue;
            }
            let path = if target.is_empty() { document.clone() } else { document.parent().unwrap().join(target) };
            let is_there =
                path.exists() && (anchor.is_empty() || anchors(&fs::read_to_string(&path).unwrap()).contains(anchor));
            lost.extend((!is_there).then(|| format!("{}: {link}", document.display())));
        }
    }
    assert!(lost.is_empty(), "links that lead nowhere: {lost:#?}");
}

#[test]
fn what_the_readme_shows_is_accepted() {
    let text = document("README.md");
    let commands =
        text.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line)).filter(|line| line.starts_with("guild "));
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
