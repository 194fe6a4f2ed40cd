//! Builds the web UI of the original Guild Hall from its unchanged checkout, and finds the browser that drives it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::UNIX_EPOCH,
};

use super::install::{Bundler, once};
use crate::{
    steps::{run, says},
    tools::debian_packages,
};

/// The parts of the checkout that the web UI needs.
const SOURCES: [&str; 3] = ["apps/web", "lib", "tsconfig.json"];
/// The directories in these parts that the web UI does not need.
const NOT_NEEDED: [&str; 3] = ["tests", "node_modules", ".next"];
/// A configuration that takes precedence over the checkout's own, which only has hosts of its author. Types are not
/// checked, since the checkout's types belong to packages that only its daemon needs.
const CONFIG: (&str, &str) =
    ("apps/web/next.config.mjs", "export default { typescript: { ignoreBuildErrors: true } };\n");

/// Builds the web UI of a checkout, unless it is built already, and returns its directory.
pub(super) fn site(bundler: &Bundler, checkout: &Path) -> Result<PathBuf, String> {
    // Node searches packages next to a module, and in the directories above it.
    let site = bundler.packages.join("site");
    let mut files = Vec::new();
    for source in SOURCES {
        list(checkout, Path::new(source), &mut files)
            .map_err(|e| format!("{}: {e}", checkout.join(source).display()))?;
    }
    let state = files.iter().map(|file| state(checkout, file)).collect::<io::Result<Vec<_>>>();
    let state = state.map_err(|e| format!("{}: {e}", checkout.display()))?.join("\n");
    once(state.as_bytes(), &site, || {
        copy(checkout, &files, &site).map_err(|e| format!("cannot copy the web UI to {}: {e}", site.display()))?;
        eprintln!("building the web UI of {} below target/clients, once; this takes a minute", checkout.display());
        let mut build = Command::new(&bundler.node);
        build.arg(bundler.packages.join("node_modules/next/dist/bin/next")).args(["build", "apps/web"]);
        run(build.current_dir(&site).env("NEXT_TELEMETRY_DISABLED", "1").stdin(Stdio::null()))
    })?;
    Ok(site)
}

/// Debian's Chromium, which is installed if this process runs as root.
pub(super) fn browser() -> Result<PathBuf, String> {
    let find = || says("sh", &["-c", "command -v chromium"]).map(PathBuf::from);
    find().or_else(|_| debian_packages(&["chromium"]).and_then(|()| find()))
}

/// All files of a directory of the checkout, or the file itself, in order.
fn list(checkout: &Path, path: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    if !checkout.join(path).is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    let names = fs::read_dir(checkout.join(path))?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    names.retain(|name| NOT_NEEDED.iter().all(|not| name != not));
    names.iter().try_for_each(|name| list(checkout, &path.join(name), into))
}

/// A text that changes when the file changes.
fn state(checkout: &Path, file: &Path) -> io::Result<String> {
    let about = checkout.join(file).metadata()?;
    let modified = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {} {}", file.display(), about.len(), modified.as_nanos()))
}

fn copy(checkout: &Path, files: &[PathBuf], site: &Path) -> io::Result<()> {
    if site.exists() {
        fs::remove_dir_all(site)?;
    }
    for file in files {
        let to = site.join(file);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(checkout.join(file), to)?;
    }
    let (config, text) = CONFIG;
    fs::write(site.join(config), text)
}
