//! The examples of `docs/authors.md` as an author has them: crates of their own, with the dependencies that are printed beside
//! them and no others.
#![allow(clippy::panic, clippy::string_slice, clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What stands in the guide under a heading, up to the next one.
fn section<'a>(guide: &'a str, heading: &str) -> &'a str {
    let (_, rest) = guide.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let mut is_code = false;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        if line.starts_with('#') && !is_code {
            break;
        }
        end += line.len();
    }
    &rest[..end]
}

/// The code of one language in a section.
fn code<'a>(section: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    let parts = section.split(begin.as_str()).skip(1);
    parts.map(|part| part.split_once("\n```").unwrap().0).collect()
}

/// The tables of the manifest that the guide prints for a worker, with these dependencies in place of its own.
fn manifest(whole: &str, name: &str, dependencies: Option<&str>) -> String {
    let (package, rest) = whole.split_once("[dependencies]\n").unwrap();
    let (own, _) = rest.split_once("\n[profile.release]").unwrap();
    let package = package.replace("\"reviewer\"", &format!("\"{name}\""));
    format!("{package}[dependencies]\n{}\n", dependencies.unwrap_or(own))
}

#[test]
fn the_examples_compile_with_the_dependencies_that_are_printed_beside_them() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(sdk.join("../../docs/authors.md")).unwrap();
    let worker = section(&guide, "## A worker in Rust");
    let sessions = section(&guide, "#### Sessions of its own");
    let toolbox = section(&guide, "## A toolbox");
    let whole = code(worker, "toml")[0];
    let crates = [
        ("reviewer", code(worker, "rust"), None),
        ("rater", code(sessions, "rust"), Some(code(sessions, "toml")[0])),
        ("words", code(toolbox, "rust"), Some(code(toolbox, "toml")[0])),
    ];

    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guide");
    let printed = "path = \"../guild/sdk/rust\"";
    let here = format!("path = {:?}", sdk.display().to_string());
    for (name, rust, dependencies) in &crates {
        let [rust] = rust.as_slice() else { panic!("{name}: {rust:?}") };
        let manifest = manifest(whole, name, *dependencies);
        assert!(manifest.contains(printed), "{manifest}");
        fs::create_dir_all(place.join(name).join("src")).unwrap();
        fs::write(place.join(name).join("Cargo.toml"), manifest.replace(printed, &here)).unwrap();
        fs::write(place.join(name).join("src/lib.rs"), rust).unwrap();
    }
    let members = crates.map(|(name, ..)| name);
    fs::write(place.join("Cargo.toml"), format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n")).unwrap();
    // The versions that are here already: nothing is fetched.
    fs::copy(sdk.join("Cargo.lock"), place.join("Cargo.lock")).unwrap();
    for name in members {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet", "--offline", "--package", name]).current_dir(&place);
        let checked = cargo.env("CARGO_TARGET_DIR", place.join("target")).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}
