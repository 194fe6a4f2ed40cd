//! `cargo xtask bindings`: writes the bindings of the SDKs from `wit/`. They are committed, so that authors need no
//! generator.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::steps::{cargo, root, run};

/// Folders below `sdk/` with files that are generated.
const FOLDERS: [&str; 1] = ["rust/src/bindings"];

/// Writes the bindings into `sdk/`.
pub(crate) fn write() -> Result<(), String> {
    let sdk = root().join("sdk");
    generate(&sdk)?;
    // The generator for Go leaves the form to this.
    run(Command::new("gofmt").arg("-w").arg(sdk.join("go/internal/bindings")))
        .map_err(|why| format!("gofmt of Go is needed on the path: {why}"))
}

/// Checks that the committed bindings are those that the generators make of `wit/`. Those for Go need gofmt, and are not
/// compared.
pub(crate) fn check() -> Result<(), String> {
    let made = root().join("target/bindings/sdk");
    generate(&made)?;
    let committed = files(&root().join("sdk"))?;
    let other = files(&made)?.into_iter().find(|(name, text)| committed.get(name) != Some(text));
    other.map_or(Ok(()), |(name, _)| {
        Err(format!("sdk/{} is not what `cargo xtask bindings` makes of wit/: run it", name.display()))
    })
}

fn generate(sdk: &Path) -> Result<(), String> {
    let mut tool = cargo();
    tool.args(["run", "--quiet", "--locked", "--manifest-path", "sdk/bindings/Cargo.toml"]).current_dir(root());
    run(tool.arg("--target-dir").arg(root().join("target/bindings")).arg("--").arg(sdk))
}

/// The files in these folders, by their paths below `sdk`.
fn files(sdk: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
    let mut all = BTreeMap::new();
    for folder in FOLDERS {
        let folder = sdk.join(folder);
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let text = fs::read(&path).map_err(failed)?;
            all.insert(path.strip_prefix(sdk).unwrap_or(&path).to_owned(), text);
        }
    }
    Ok(all)
}
