//! Installs the packages of the clients. They come from their registries, in the versions of the locks in
//! `tests/clients`, and go below `target/clients`, so that the user's own packages are not touched.

use std::{
    env::consts::ARCH,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::steps::{root, run};

/// The minimum version of Node for the conformance suite.
const MIN_NODE_VERSION: u32 = 22;
/// The name of the file with the lock of an installation.
const INSTALLED_LOCK: &str = "installed.lock";

/// The clients, ready to run.
pub(super) struct Clients {
    /// The directory of the JavaScript clients and of the packages that they import.
    pub(super) scripts: PathBuf,
    pub(super) node: PathBuf,
    pub(super) python: PathBuf,
}

/// The directory of the clients' sources.
pub(super) fn sources() -> PathBuf {
    root().join("tests/clients")
}

impl Clients {
    /// Installs packages that are missing, or that belong to another lock.
    pub(super) fn ready() -> Result<Self, String> {
        let target = root().join("target/clients");
        let scripts = target.join("npm");
        fs::create_dir_all(&scripts).map_err(|e| format!("{}: {e}", scripts.display()))?;
        // Node searches the imports of a module next to the module.
        copy_all(&sources(), &scripts).map_err(|e| format!("cannot copy the clients to {}: {e}", scripts.display()))?;
        once(&lock("package-lock.json")?, &scripts, || packages(&scripts, &target))?;
        let place = target.join("python");
        once(&lock("requirements.txt")?, &place, || environment(&place, &target))?;
        Ok(Self { node: node(&scripts)?, python: place.join("bin/python"), scripts })
    }
}

/// The packages that bundle the command line of the original Guild Hall, and a Node to run it.
pub(super) struct Bundler {
    pub(super) node: PathBuf,
    /// The directory of the packages.
    pub(super) packages: PathBuf,
}

impl Bundler {
    /// Installs packages that are missing, or that belong to another lock.
    pub(super) fn ready() -> Result<Self, String> {
        let Clients { node, .. } = Clients::ready()?;
        let (from, target) = (sources().join("guild-hall"), root().join("target/clients"));
        let place = target.join("guild-hall-npm");
        let copied = fs::create_dir_all(&place).and_then(|()| copy_all(&from, &place));
        copied.map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), place.display()))?;
        once(&lock("guild-hall/package-lock.json")?, &place, || packages(&place, &target))?;
        Ok(Self { node, packages: place })
    }

    /// Bundles a module and all its imports into a file.
    pub(super) fn bundle(&self, module: &Path, into: &Path) -> Result<(), String> {
        let file = format!("--outfile={}", into.display());
        // The packages come from this directory, not from the checkout. `import.meta.main` starts the command line, as
        // Bun does.
        let options =
            ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", "--define:import.meta.main=true"];
        // A definition of `require`, which esbuild keeps in CommonJS packages.
        let require =
            "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
        let modules = self.packages.join("node_modules");
        let mut esbuild = Command::new(&self.node);
        esbuild.arg(modules.join("esbuild/bin/esbuild")).arg(module).args(options).args([require, &file]);
        run(esbuild.env("NODE_PATH", &modules))
    }
}

/// The content of a lock.
fn lock(name: &str) -> Result<Vec<u8>, String> {
    let file = sources().join(name);
    fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Installs into a directory, unless its installation belongs to this lock.
pub(super) fn once(
    wanted: &[u8],
    directory: &Path,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stamp = directory.join(INSTALLED_LOCK);
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    install()?;
    fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))
}

fn packages(directory: &Path, target: &Path) -> Result<(), String> {
    if !runs("npm", &["--version"]) {
        return Err(
            "the TypeScript clients come from npm, which does not run here: install Node.js with npm".to_owned()
        );
    }
    eprintln!("installing packages of tests/clients below target/clients, once");
    let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"];
    run(Command::new("npm").args(quiet).current_dir(directory).env("npm_config_cache", target.join("npm-cache")))
}

fn environment(place: &Path, target: &Path) -> Result<(), String> {
    let usable = ["-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"];
    if !runs("python3", &usable) {
        let needed = "install Python 3.11 or newer with its module venv (on Debian: python3 and python3-venv)";
        return Err(format!("the Python client cannot be set up with this machine's `python3`: {needed}"));
    }
    eprintln!("installing the packages of tests/clients/requirements.txt below target/clients, once");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
    let mut install = Command::new(place.join("bin/python"));
    install.args(pip).arg(sources().join("requirements.txt"));
    run(install.env("PIP_CACHE_DIR", target.join("pip-cache")))
}

/// The Node from the packages if they have one for this machine, or else the machine's own.
fn node(scripts: &Path) -> Result<PathBuf, String> {
    let arch = if ARCH == "aarch64" { "arm64" } else { "x64" };
    let own = scripts.join(format!("node_modules/node-linux-{arch}/bin/node"));
    let enough = format!("process.exit(parseInt(process.versions.node) >= {MIN_NODE_VERSION} ? 0 : 1)");
    let there = [own, PathBuf::from("node")].into_iter().find(|node| runs(node, &["--eval", &enough]));
    there.ok_or_else(|| {
        format!("the clients need Node.js {MIN_NODE_VERSION} or newer, and npm has none for this machine: install it")
    })
}

fn runs(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> bool {
    let quiet =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Copies the files of a directory into another.
pub(super) fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
