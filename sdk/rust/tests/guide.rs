//! The templates and the example of the tutorial as an author has them: crates of their own, with the dependencies that
//! stand beside them and no others.
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

/// The manifest of a template's crate, with these dependencies in place of its own.
fn with_dependencies(manifest: &str, dependencies: &str) -> String {
    let (package, rest) = manifest.split_once("[dependencies]\n").unwrap();
    let (_, profile) = rest.split_once("\n[profile.release]").unwrap();
    format!("{package}[dependencies]\n{dependencies}\n\n[profile.release]{profile}")
}

#[test]
fn the_templates_and_the_tutorial_compile_with_their_own_dependencies() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let template =
        |kind: &str, file: &str| fs::read_to_string(sdk.join("../templates/rust").join(kind).join(file)).unwrap();
    let kinds = ["worker", "autonomous", "toolbox", "hybrid"];
    let mut crates: Vec<_> =
        kinds.iter().map(|kind| (*kind, template(kind, "Cargo.toml"), template(kind, "src/lib.rs"))).collect();
    let tutorial = fs::read_to_string(sdk.join("../../docs/tutorials/rust.md")).unwrap();
    let sessions = section(&tutorial, "## A worker that carries out its jobs itself");
    let (rater, dependencies) = (code(sessions, "rust")[1], code(sessions, "toml")[0]);
    crates.push(("rater", with_dependencies(&template("autonomous", "Cargo.toml"), dependencies), rater.to_owned()));

    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guide");
    let here = format!("path = {:?}", sdk.display().to_string());
    for (name, manifest, source) in crates {
        let directory = place.join(name);
        fs::create_dir_all(directory.join("src")).unwrap();
        assert!(manifest.contains("path = \"sdk\""), "{manifest}");
        let manifest = manifest.replace("path = \"sdk\"", &here).replace("{{name}}", name);
        fs::write(directory.join("Cargo.toml"), manifest).unwrap();
        fs::write(directory.join("src/lib.rs"), source).unwrap();
        // The versions that are here already: nothing is fetched.
        fs::copy(sdk.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet", "--offline"]).current_dir(&directory);
        let checked = cargo.env("CARGO_TARGET_DIR", place.join("target")).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}
