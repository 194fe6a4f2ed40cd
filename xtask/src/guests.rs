//! `cargo xtask guests`: installs the requirements of a guest build, and builds the guests.
//!
//! A guest is a component for `wasm32-wasip2`. If the active toolchain has that target, or rustup can add it, this is a
//! plain cargo build. Otherwise Debian's Rust builds the guest together with the standard library: Debian packages the
//! library's source, and a libc for WebAssembly.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    steps::{root, run, says},
    tools::debian_packages,
};

const TARGET: &str = "wasm32-wasip2";
/// The variable that forces one of the two toolchains.
const TOOLCHAIN_VARIABLE: &str = "GUILD_GUEST_TOOLCHAIN";
/// The workspaces of guests. They share the target directory of the first, so that a standard library is built once.
const WORKSPACES: [&str; 2] = ["plugins", "tests/guests"];
/// Components that are installed into a member's directory: the file, and the directory.
const INSTALLED: [(&str, &str); 5] = [
    ("guild_master.wasm", "guild-members/guild-master"),
    ("researcher.wasm", "guild-members/researcher"),
    ("digest.wasm", "guild-members/digest"),
    ("analyst.wasm", "guild-members/analyst"),
    ("textkit.wasm", "guild-members/textkit"),
];
/// The timeout of a download.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(180);

const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "wasi-libc"];
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_STD: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";

/// Builds all guests in release, and installs those of the members that come with this repository.
pub(crate) fn build() -> Result<(), String> {
    let target = root().join("plugins/target");
    let toolchain = Toolchain::choose(&target)?;
    eprintln!("guests: {toolchain}");
    for workspace in WORKSPACES.map(|folder| root().join(folder)) {
        if workspace.join("Cargo.toml").is_file() {
            let mut command = toolchain.cargo();
            command.args(["build", "--release", "--workspace", "--target", TARGET, "--target-dir"]).arg(&target);
            run(command.current_dir(&workspace))?;
        }
    }
    toolchain.remember(&target)?;
    for (file, member) in INSTALLED {
        let built = target.join(TARGET).join("release").join(file);
        install(&built, &root().join(member)).map_err(|e| format!("cannot put {file} into {member}: {e}"))?;
    }
    Ok(())
}

/// The toolchain that builds guests, and the reason for its choice.
enum Toolchain {
    /// The toolchain that runs this program.
    Active { rustc: String, why: &'static str },
    /// Debian's toolchain, with the linkers of the active toolchain.
    Debian { rustc: String, why: &'static str, linkers: PathBuf },
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active { rustc, why } => write!(f, "{rustc} ({why})"),
            Self::Debian { rustc, why, .. } => write!(f, "Debian's {rustc} ({why})"),
        }
    }
}

impl Toolchain {
    /// Uses an installed target, or else lets rustup add it, or else uses Debian's packages. `GUILD_GUEST_TOOLCHAIN`
    /// forces one of the last two.
    fn choose(target: &Path) -> Result<Self, String> {
        let choice = std::env::var_os(TOOLCHAIN_VARIABLE).map(|choice| choice.to_string_lossy().into_owned());
        match choice.as_deref() {
            None => {}
            Some("rustup") => {
                let why = "GUILD_GUEST_TOOLCHAIN requests it";
                return if has_target()? { Self::active(why) } else { add_target().and_then(|()| Self::active(why)) };
            }
            Some("debian") => return Self::debian("GUILD_GUEST_TOOLCHAIN requests it"),
            Some(other) => {
                return Err(format!("{TOOLCHAIN_VARIABLE} is {other:?}; it can be `rustup`, `debian` or not set"));
            }
        }
        if has_target()? {
            return Self::active("the active toolchain has the target");
        }
        if fs::read_to_string(chosen(target)).is_ok_and(|last| last == "debian") && debian_is_missing().is_empty() {
            return Self::debian("as in the last run, when rustup could not add the target");
        }
        match add_target() {
            Ok(()) => Self::active("rustup added the target"),
            Err(rustup) => {
                eprintln!("guests: {rustup}");
                Self::debian("rustup could not add the target").map_err(|debian| {
                    format!(
                        "{TARGET} cannot be built here; one of these two toolchains must work.\n  \
                         rustup: {rustup}\n  Debian: {debian}"
                    )
                })
            }
        }
    }

    fn active(why: &'static str) -> Result<Self, String> {
        Ok(Self::Active { rustc: says("rustc", &["--version"])?, why })
    }

    fn debian(why: &'static str) -> Result<Self, String> {
        if !debian_is_missing().is_empty() {
            debian_packages(&DEBIAN_PACKAGES)?;
            let missing = debian_is_missing();
            if !missing.is_empty() {
                return Err(format!("Debian's packages are installed, but {} is missing", missing.join(", ")));
            }
        }
        let version = says("rustc", &["-vV"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or("rustc -vV names no host")?;
        let linkers = sysroot()?.join("lib/rustlib").join(host).join("bin");
        for linker in ["wasm-component-ld", "gcc-ld/wasm-ld"] {
            if !linkers.join(linker).is_file() {
                return Err(format!("{} is missing; a rustup toolchain includes it", linkers.join(linker).display()));
            }
        }
        Ok(Self::Debian { rustc: says(DEBIAN_RUSTC, &["--version"])?, why, linkers })
    }

    fn cargo(&self) -> Command {
        match self {
            Self::Active { .. } => {
                let mut command = crate::steps::cargo();
                command.env("CARGO_ENCODED_RUSTFLAGS", without_paths().join("\u{1f}"));
                command
            }
            Self::Debian { linkers, .. } => {
                let mut command = Command::new(DEBIAN_CARGO);
                // The variables that cargo and rustup set for their child processes would select the other toolchain.
                for name in ["CARGO", "LD_LIBRARY_PATH", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS"] {
                    command.env_remove(name);
                }
                let mut flags = without_paths();
                flags.extend([
                    "-Clink-self-contained=no".to_owned(),
                    format!("-L{DEBIAN_LIBC}"),
                    format!("-Clink-arg=--wasm-ld-path={}", linkers.join("gcc-ld/wasm-ld").display()),
                ]);
                command
                    .env("RUSTC", DEBIAN_RUSTC)
                    // Building the standard library is unstable; the guests themselves use only stable features.
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_WASIP2_LINKER", linkers.join("wasm-component-ld"))
                    .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
                    .arg("-Zbuild-std=std,panic_abort");
                command
            }
        }
    }

    /// Records the choice, so that a later run does not ask rustup again for a target that it cannot add.
    fn remember(&self, target: &Path) -> Result<(), String> {
        let name = match self {
            Self::Active { .. } => "active",
            Self::Debian { .. } => "debian",
        };
        fs::write(chosen(target), name).map_err(|e| format!("cannot write {}: {e}", chosen(target).display()))
    }
}

/// Flags that remove paths of this machine from the built files.
fn without_paths() -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".cargo")));
    let remapped = [(cargo, "cargo"), (Some(crate::steps::root().to_owned()), "guild")];
    let remapped = remapped.into_iter().filter_map(|(from, to)| Some((from?, to)));
    remapped.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect()
}

/// The file with the toolchain of the last build.
fn chosen(target: &Path) -> PathBuf {
    target.join(".guest-toolchain")
}

fn sysroot() -> Result<PathBuf, String> {
    says("rustc", &["--print", "sysroot"]).map(PathBuf::from)
}

/// Whether the active toolchain can build for the target.
fn has_target() -> Result<bool, String> {
    Ok(sysroot()?.join("lib/rustlib").join(TARGET).join("lib").is_dir())
}

/// Lets rustup add the target to the active toolchain.
fn add_target() -> Result<(), String> {
    eprintln!("guests: rustup target add {TARGET}");
    let mut rustup = Command::new("rustup")
        .args(["target", "add", TARGET])
        .current_dir(root())
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start rustup: {e}"))?;
    let begun = Instant::now();
    loop {
        match rustup.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("`rustup target add {TARGET}` ended with {status}")),
            None if begun.elapsed() > RUSTUP_TIMEOUT => {
                let _ = rustup.kill();
                let _ = rustup.wait();
                return Err(format!("`rustup target add {TARGET}` took more than {} s", RUSTUP_TIMEOUT.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The missing files of Debian's packages.
fn debian_is_missing() -> Vec<String> {
    let needed =
        [DEBIAN_CARGO.to_owned(), DEBIAN_RUSTC.to_owned(), DEBIAN_STD.to_owned(), format!("{DEBIAN_LIBC}/libc.a")];
    needed.into_iter().filter(|path| !Path::new(path).exists()).collect()
}

/// Copies a file into a directory atomically, unless the directory has the same file already.
fn install(file: &Path, directory: &Path) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let to = directory.join(name);
    let bytes = fs::read(file)?;
    if fs::read(&to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let mut temporary = name.to_owned();
    temporary.push(".new");
    let temporary = directory.join(temporary);
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, &to)?;
    eprintln!("guests: {}", to.strip_prefix(root()).unwrap_or(&to).display());
    Ok(())
}
