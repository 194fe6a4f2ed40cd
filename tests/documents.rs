//! The documents say what is so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use data_encoding::HEXLOWER;
use guild_config::Config;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::host::Home;

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
    // These show manifests of cargo, test files, and the configuration of another program.
    let others = ["docs/tutorials", "docs/testing-plugins.md", "docs/publishing.md"].map(|other| root().join(other));
    for path in documents().into_iter().filter(|path| !others.iter().any(|other| path.starts_with(other))) {
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
    let listed: BTreeSet<u32> =
        text.lines().filter_map(|line| line.strip_prefix("| REQ-WD-")?.split_once(' ')?.0.parse().ok()).collect();
    assert_eq!(listed, (1..=47).collect());
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        prose(text).filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    let anchor = |heading: &str| {
        let anchor = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        anchor.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
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
fn every_place_that_a_document_names_exists() {
    let mut lost = Vec::new();
    for name in ["CONTRIBUTING.md", "docs/architecture.md", "docs/reviewers.md"] {
        let text = document(name);
        let code: Vec<_> = text.split('`').skip(1).step_by(2).collect();
        let ours = ["host/", "tests/", "wit/", "docs/", "plugins/", "sdk/rust/", "xtask/", "fuzz/", "bench/"];
        let places: Vec<_> = code
            .into_iter()
            .filter(|code| !code.contains("::") && ours.iter().any(|top| code.starts_with(top)))
            .collect();
        assert!(places.len() > 10, "{name} names only {places:?}");
        lost.extend(
            places.into_iter().filter(|place| !root().join(place).exists()).map(|place| format!("{name}: {place}")),
        );
        for (path, test) in named_tests(&text) {
            let source = fs::read_to_string(root().join(path)).unwrap_or_default();
            lost.extend((!source.contains(&format!("fn {test}("))).then(|| format!("{name}: {path}::{test}")));
        }
    }
    assert!(lost.is_empty(), "these places do not exist: {lost:#?}");
}

/// The crates of the host by their directories, each with those that it uses, as cargo knows them.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(root());
    let metadata: Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let directory = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let inner = Path::new(&manifest).strip_prefix(root().join("host")).ok()?.parent()?;
        Some(inner.to_str().unwrap().to_owned())
    };
    let names: BTreeMap<String, String> =
        packages.iter().filter_map(|package| Some((text(&package["name"]), directory(package)?))).collect();
    let used = |package: &Value| {
        let normal = package["dependencies"].as_array().unwrap().iter().filter(|used| used["kind"].is_null());
        normal.filter_map(|used| names.get(used["name"].as_str()?).cloned()).collect()
    };
    packages.iter().filter_map(|package| Some((directory(package)?, used(package)))).collect()
}

/// How many crates stand one on the other, from this one down.
fn height(crates: &BTreeMap<String, BTreeSet<String>>, name: &str) -> usize {
    crates[name].iter().map(|used| height(crates, used) + 1).max().unwrap_or_default()
}

/// Whether a crate uses another, or one of those that it uses does.
fn reaches(crates: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    crates[from].iter().any(|used| used == to || reaches(crates, used, to))
}

#[test]
fn the_architecture_page_has_the_crates_and_the_arrows_that_cargo_has() {
    let crates = crates();
    assert!(crates.len() > 10, "{crates:?}");
    let mut from_above: Vec<_> = crates.keys().collect();
    from_above.sort_by_key(|name| std::cmp::Reverse(height(&crates, name)));

    let mut picture = String::from("```mermaid\ngraph TD\n");
    let mut sections = Vec::new();
    for name in from_above {
        let used = &crates[name];
        let direct = used.iter().filter(|to| !used.iter().any(|other| reaches(&crates, other, to)));
        let direct: Vec<_> = direct.map(String::as_str).collect();
        if !direct.is_empty() {
            picture.push_str(&format!("    {name} --> {}\n", direct.join(" & ")));
        }
        let used: Vec<_> = used.iter().map(String::as_str).collect();
        let used = if used.is_empty() { "no other crate".to_owned() } else { used.join(", ") };
        sections.push(format!("### {name} Uses {used}. "));
    }
    picture.push_str("```\n");

    let page = document("docs/architecture.md");
    assert!(page.contains(&picture), "docs/architecture.md has to have this picture:\n{picture}");
    // A long list of crates stands on several lines.
    let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for section in &sections {
        assert!(joined.contains(section.as_str()), "docs/architecture.md has to have this section:\n{section}");
    }
    let headings = page.lines().filter(|line| line.starts_with("### ")).count();
    assert_eq!(headings, sections.len(), "docs/architecture.md has a section of something that is no crate");
}

#[test]
fn what_the_readme_shows_is_accepted() {
    let text = document("README.md");
    let commands =
        text.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line)).filter(|line| line.starts_with("guild "));
    let help = |command: &str| {
        let words =
            command.split(' ').skip(1).take(2).filter(|word| word.bytes().all(|byte| byte.is_ascii_alphabetic()));
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_guild")).args(words).arg("--help").output().unwrap();
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

#[test]
fn the_readme_shows_what_the_researcher_answers() {
    let readme = document("README.md");
    let (_, session) = readme.split_once("```console\n$ guild run ").unwrap();
    let question = session.split('"').nth(1).unwrap();
    let shown = session.lines().skip(1).take_while(|line| !line.starts_with("$ "));
    let shown: Vec<&str> = shown.filter(|line| !line.starts_with("job: ")).collect();
    assert!(shown.len() > 15, "{shown:?}");

    let home = Home::new();
    let member = home.researcher("researcher");
    let docs = root().join("docs");
    let answered = home.run(&["run", member.to_str().unwrap(), question, "--sources", docs.to_str().unwrap()]);
    let report = String::from_utf8(answered.stdout).unwrap();
    let begins: Vec<&str> = report.lines().take(shown.len() - 1).collect();
    // The last line is the empty one before the next command.
    assert_eq!(begins, shown[..shown.len() - 1], "README.md shows another report than `guild run` prints");
}

#[test]
fn the_files_of_cjson_are_those_that_their_readme_names() {
    let readme = document("sdk/c/cjson/README.md");
    for name in ["cJSON.c", "cJSON.h"] {
        let sha256 = HEXLOWER.encode(&Sha256::digest(document(&format!("sdk/c/cjson/{name}"))));
        assert!(readme.contains(&format!("| `{name}` | `{sha256}` |")), "{name}: {sha256}");
    }
}

/// The file that `guild new KIND NAME --lang LANGUAGE` writes, from the template.
fn from_template(kind: &str, name: &str, language: &str, path: &str) -> Option<String> {
    let layers = [format!("{language}/{kind}"), format!("{language}/common"), kind.to_owned(), "common".to_owned()];
    let text =
        layers.iter().find_map(|layer| fs::read_to_string(root().join("sdk/templates").join(layer).join(path)).ok());
    text.map(|text| text.replace("{{name}}", name))
}

#[test]
fn listings_of_tutorials_are_the_files_of_templates() {
    let mut count = 0;
    for path in documents().into_iter().filter(|path| path.parent().unwrap().ends_with("docs/tutorials")) {
        let text = fs::read_to_string(&path).unwrap();
        let mut made = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(words) = line.strip_prefix("$ guild new ") {
                let words: Vec<_> = words.split(' ').collect();
                let [kind, name, "--lang", language] = words[..] else { panic!("{}: {line}", path.display()) };
                made = Some((kind, name, language));
            }
            let file = line.strip_prefix('`').and_then(|rest| rest.strip_suffix("`:"));
            let Some(file) = file.filter(|file| !file.contains('`')) else { continue };
            let (kind, name, language) = made.unwrap();
            let block = lines.by_ref().skip_while(|line| !line.starts_with("```")).skip(1);
            let listed: String = block.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            assert_eq!(Some(listed), from_template(kind, name, language, file), "{}: {file}", path.display());
            count += 1;
        }
    }
    assert!(count >= 14, "only {count} listings");
}
