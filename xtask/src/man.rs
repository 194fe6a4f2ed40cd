//! `cargo xtask man`: the man pages of `guild`, made of the same source as its `--help`.

use std::fs;

use crate::steps::{cargo, root, run};

/// Writes them below `target/man/`.
pub(crate) fn write() -> Result<(), String> {
    let directory = root().join("target/man/man1");
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    run(cargo().args(["run", "--package", "guild", "--quiet", "--", "man"]).arg(&directory))?;
    println!("The man pages are in {}; `man -M target/man guild` shows the first.", directory.display());
    Ok(())
}
