//! `cargo xtask sdk`: packs each SDK as the registry of its language takes it.

use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use crate::steps::{cargo, root, run, says};

/// The version of the workspace, which all SDKs have.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The manifests that repeat the version.
const MANIFESTS: [&str; 3] = ["sdk/rust/Cargo.toml", "sdk/js/package.json", "sdk/python/pyproject.toml"];

/// Packs the SDKs below `target/sdk/`. An SDK whose packer is not installed is skipped, and named.
pub(crate) fn pack() -> Result<(), String> {
    MANIFESTS.into_iter().try_for_each(check_version)?;
    let to = root().join("target/sdk");
    let failed = |e: io::Error| format!("{}: {e}", to.display());
    match fs::remove_dir_all(&to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => fs::create_dir_all(&to).map_err(failed)?,
    }
    rust(&to)?;
    archive("go", &format!("guild@v{VERSION}/"), &to.join(format!("guild@v{VERSION}.zip")))?;
    archive("c", &format!("guild-c-{VERSION}/"), &to.join(format!("guild-c-{VERSION}.tar.gz")))?;
    let mut skipped = 0;
    for (folder, packer, pack) in
        [("js", &["npm"][..], js as fn(&Path) -> Result<(), String>), ("python", &["python3", "-m", "pip"], python)]
    {
        let [program, arguments @ ..] = packer else { continue };
        if says(program, &[arguments, &["--version"]].concat()).is_ok() {
            pack(&to)?;
        } else {
            skipped += 1;
            println!("sdk/{folder}: SKIPPED, since {} is not installed", packer.join(" "));
        }
    }
    println!("{} SDKs are packed in target/sdk, {skipped} skipped", 5 - skipped);
    Ok(())
}

/// Checks that a manifest has the version of the workspace.
fn check_version(manifest: &str) -> Result<(), String> {
    let text = fs::read_to_string(root().join(manifest)).map_err(|e| format!("{manifest}: {e}"))?;
    let lines = [format!("version = \"{VERSION}\""), format!("\"version\": \"{VERSION}\",")];
    let has_version = text.lines().any(|line| lines.iter().any(|version| line.trim() == version));
    has_version.then_some(()).ok_or_else(|| format!("{manifest} has another version than {VERSION}, that of the host"))
}

fn rust(to: &Path) -> Result<(), String> {
    let scratch = to.join("cargo");
    let mut package = cargo();
    package.args(["package", "--no-verify", "--allow-dirty", "--manifest-path", "sdk/rust/Cargo.toml"]);
    run(package.arg("--target-dir").arg(&scratch))?;
    let name = format!("guild-plugin-sdk-{VERSION}.crate");
    fs::rename(scratch.join("package").join(&name), to.join(&name)).map_err(|e| format!("{name}: {e}"))?;
    fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))
}

/// Archives a folder of the last commit.
fn archive(folder: &str, prefix: &str, to: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["archive", &format!("--prefix={prefix}"), "--output"]).arg(to).arg("HEAD");
    run(git.current_dir(root().join("sdk").join(folder)))
}

fn js(to: &Path) -> Result<(), String> {
    let mut npm = Command::new("npm");
    run(npm.args(["pack", "--silent", "--pack-destination"]).arg(to).current_dir(root().join("sdk/js")))
}

fn python(to: &Path) -> Result<(), String> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]).arg(to);
    run(pip.arg(root().join("sdk/python")).stdin(Stdio::null()))
}
