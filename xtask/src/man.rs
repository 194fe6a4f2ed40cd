//! `cargo xtask man`: writes the man pages of `guild`, from the same source as its `--help`.

use std::fs;

use crate::steps::{cargo, root, run};

/// Writes the man pages below `target/man/`.
pub(crate) fn write() -> Result<(), String> {
    let directory = root().join("target/man/man1");
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    run(cargo().args(["run", "--package", "guild", "--quiet", "--", "man"]).arg(&directory))?;
    println!("The man pages are in {}; `man -M target/man guild` shows the first page.", directory.display());
    Ok(())
}
