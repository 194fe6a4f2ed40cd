//! What the clients run on. It comes from their registries, in the versions of the locks in `tests/clients`, and goes
//! below `target/clients`, so that the user's own are not touched.

use std::{
    env::consts::ARCH,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::steps::{root, run};

/// The least that the conformance suite runs on.
const NODE: u32 = 22;
/// What says which lock an installation is of.
const STAMP: &str = "installed.lock";

/// The clients, ready to run.
pub(super) struct Clients {
    /// Where the JavaScript ones are, next to what they import.
    pub(super) scripts: PathBuf,
    pub(super) node: PathBuf,
    pub(super) python: PathBuf,
}

/// Where the clients' sources are.
pub(super) fn sources() -> PathBuf {
    root().join("tests/clients")
}

impl Clients {
    /// Installs what is not there yet, or of another lock.
    pub(super) fn ready() -> Result<Self, String> {
        let target = root().join("target/clients");
        let scripts = target.join("npm");
        fs::create_dir_all(&scripts).map_err(|e| format!("{}: {e}", scripts.display()))?;
        // A module looks for its imports next to itself.
        copy_all(&sources(), &scripts).map_err(|e| format!("cannot copy the clients to {}: {e}", scripts.display()))?;
        once(&lock("package-lock.json")?, &scripts, || packages(&scripts, &target))?;
        let place = target.join("python");
        once(&lock("requirements.txt")?, &place, || environment(&place, &target))?;
        Ok(Self { node: node(&scripts)?, python: place.join("bin/python"), scripts })
    }
}

/// The packages with which the original Guild Hall's command line is bundled, and a Node to run it.
pub(super) struct Bundler {
    pub(super) node: PathBuf,
    /// Where the packages are.
    pub(super) packages: PathBuf,
}

impl Bundler {
    /// Installs what is not there yet, or of another lock.
    pub(super) fn ready() -> Result<Self, String> {
        let Clients { node, .. } = Clients::ready()?;
        let (from, target) = (sources().join("guild-hall"), root().join("target/clients"));
        let place = target.join("guild-hall-npm");
        let copied = fs::create_dir_all(&place).and_then(|()| copy_all(&from, &place));
        copied.map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), place.display()))?;
        once(&lock("guild-hall/package-lock.json")?, &place, || packages(&place, &target))?;
        Ok(Self { node, packages: place })
    }

    /// Bundles a module, with all that it imports, into a file.
    pub(super) fn bundle(&self, module: &Path, into: &Path) -> Result<(), String> {
        let file = format!("--outfile={}", into.display());
        // The packages come from here, not from the checkout; the one of its command line that starts it is `main` for Bun.
        let options =
            ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", "--define:import.meta.main=true"];
        // What esbuild makes of `require` in packages of the older form.
        let require =
            "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
        let modules = self.packages.join("node_modules");
        let mut esbuild = Command::new(&self.node);
        esbuild.arg(modules.join("esbuild/bin/esbuild")).arg(module).args(options).args([require, &file]);
        run(esbuild.env("NODE_PATH", &modules))
    }
}

/// One of the locks, whole.
fn lock(name: &str) -> Result<Vec<u8>, String> {
    let file = sources().join(name);
    fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Installs into a directory, unless what is there is of this lock.
pub(super) fn once(
    wanted: &[u8],
    directory: &Path,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stamp = directory.join(STAMP);
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

/// The Node that came with the packages, where there is one for this machine; else the machine's own.
fn node(scripts: &Path) -> Result<PathBuf, String> {
    let arch = if ARCH == "aarch64" { "arm64" } else { "x64" };
    let own = scripts.join(format!("node_modules/node-linux-{arch}/bin/node"));
    let enough = format!("process.exit(parseInt(process.versions.node) >= {NODE} ? 0 : 1)");
    let there = [own, PathBuf::from("node")].into_iter().find(|node| runs(node, &["--eval", &enough]));
    there.ok_or_else(|| {
        format!("the clients need Node.js {NODE} or newer, and npm has none for this machine: install it")
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
