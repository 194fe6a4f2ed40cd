//! Programs that are not part of a toolchain. Missing programs are installed below `target/`, so that the user's own
//! are not touched; programs that only Debian has are installed as its packages.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::steps::{cargo, root, run, says};

/// A subcommand of cargo, in a version that is known to work.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Licences, sources, duplicates, advisories.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Builds for libFuzzer.
pub(crate) const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

impl Tool {
    /// The program on the path, or the one that was installed before, if it has this version; otherwise the program is
    /// installed now.
    pub(crate) fn ready(&self) -> Result<PathBuf, String> {
        let own = root().join("target/tools/bin").join(self.name);
        for program in [Path::new(self.name), &own] {
            if self.is(program) {
                return Ok(program.to_owned());
            }
        }
        let Self { name, version } = self;
        eprintln!("installing {name} {version} below target/tools, once; this takes some minutes");
        let place = root().join("target/tools");
        // Without optimization a build takes a third of the time, and the programs have little to do.
        run(cargo().args(["install", "--debug", "--locked", "--version", version, name, "--root"]).arg(place))?;
        Ok(own)
    }

    fn is(&self, program: &Path) -> bool {
        let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).split_whitespace().any(|word| word == self.version))
    }
}

/// Installs Debian's packages if this process runs as root.
pub(crate) fn debian_packages(packages: &[&str]) -> Result<(), String> {
    // No installed package is removed.
    let install = format!("apt-get install --yes --no-install-recommends --no-remove {}", packages.join(" "));
    if says("apt-get", &["--version"]).is_err() {
        return Err(format!("Debian's packages {} are needed, and this system has no apt-get", packages.join(", ")));
    }
    if says("id", &["-u"])? != "0" {
        return Err(format!("install Debian's packages with `sudo {install}`, then try again"));
    }
    eprintln!("installing Debian's packages {}: {install}", packages.join(", "));
    let apt = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        run(command.args(words).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()))
    };
    // The package lists may be missing.
    apt(&install).or_else(|_| apt("apt-get update").and_then(|()| apt(&install)))
}
