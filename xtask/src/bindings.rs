//! `cargo xtask bindings`: writes the bindings of the SDKs from `wit/`. They are committed, so that authors need no
//! generator.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::steps::{cargo, root, run};

/// Folders below `sdk/` with files that are generated.
const FOLDERS: [&str; 3] = ["rust/src/bindings", "go/internal/bindings", "c/bindings"];

/// Writes the bindings into `sdk/`.
pub(crate) fn write() -> Result<(), String> {
    let sdk = root().join("sdk");
    generate(&sdk)?;
    let form = run(Command::new("gofmt").arg("-w").arg(sdk.join("go/internal/bindings")));
    form.map_err(|why| format!("the bindings are written, but those for Go need `gofmt`, which comes with Go: {why}"))
}

/// Checks that the committed bindings are those that the generators make of `wit/`.
pub(crate) fn check() -> Result<(), String> {
    let made = root().join("target/bindings/sdk");
    match fs::remove_dir_all(&made) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(format!("{}: {e}", made.display())),
        _ => generate(&made)?,
    }
    let sdk = root().join("sdk");
    let made = FOLDERS.iter().try_fold(Vec::new(), |all, folder| files(&made, &made.join(folder), all))?;
    let other = made.into_iter().find(|(name, text)| {
        let committed = fs::read_to_string(sdk.join(name)).unwrap_or_default();
        // The form of Go is that of gofmt, which is not needed here: it sorts imports, changes white space, and leaves
        // out semicolons at the ends of lines.
        match name.extension() == Some("go".as_ref()) {
            true => formless(&committed) != formless(text),
            false => committed != *text,
        }
    });
    other.map_or(Ok(()), |(name, _)| {
        Err(format!("sdk/{} is not what `cargo xtask bindings` makes of wit/: run it", name.display()))
    })
}

fn generate(sdk: &Path) -> Result<(), String> {
    let mut tool = cargo();
    tool.args(["run", "--quiet", "--locked", "--manifest-path", "sdk/bindings/Cargo.toml"]).current_dir(root());
    run(tool.arg("--target-dir").arg(root().join("target/bindings")).arg("--").arg(sdk))
}

/// The lines of a text without what gofmt changes, in an order that does not depend on theirs.
fn formless(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<String>());
    let mut lines: Vec<String> =
        lines.map(|line| line.trim_end_matches(';').to_owned()).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

/// Adds all files below a folder to `all`, by their paths below `sdk`.
fn files(sdk: &Path, folder: &Path, mut all: Vec<(PathBuf, String)>) -> Result<Vec<(PathBuf, String)>, String> {
    let failed = |e: io::Error| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            all = files(sdk, &path, all)?;
        } else {
            let text = fs::read_to_string(&path).map_err(failed)?;
            all.push((path.strip_prefix(sdk).unwrap_or(&path).to_owned(), text));
        }
    }
    Ok(all)
}
