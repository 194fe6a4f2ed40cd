//! Writes the bindings of the SDKs from `wit/`, by the generators of the Bytecode Alliance: `cargo xtask bindings`.
//!
//! They are committed, so that authors need no generator. This program is a workspace of its own, since its WIT parser
//! is newer than that of the host's wasmtime.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use wit_bindgen_core::{
    Files, WorldGenerator,
    wit_parser::{Resolve, WorldId},
};

/// The module of the SDK for Go.
const GO_MODULE: &str = "guild";
/// The imports of `guild:worker`.
const IMPORTS: [&str; 9] = ["log", "memory", "files", "web", "job-tools", "status", "agent", "hall", "manager"];

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let to = env::args_os().nth(1).map_or_else(|| root.join("sdk"), PathBuf::from);
    rust(&root.join("wit"), &to.join("rust/src/bindings")).context("the bindings for Rust")?;
    go(&root.join("wit"), &to.join("go/internal/bindings")).context("the bindings for Go")?;
    c(&root.join("wit"), &to.join("c/bindings")).context("the bindings for C")
}

/// A world with these imports and exports of `guild:worker`.
fn world(wit: &Path, name: &str, imports: &[&str], exports: &[&str]) -> Result<(Resolve, WorldId)> {
    let mut resolve = Resolve::default();
    resolve.push_dir(wit)?;
    let imports = imports.iter().map(|interface| format!("import guild:worker/{interface}@0.1.0;\n"));
    let exports = exports.iter().map(|interface| format!("export guild:worker/{interface}@0.1.0;\n"));
    let items: String = imports.chain(exports).collect();
    let package = resolve.push_str("world.wit", &format!("package guild:sdk;\nworld {name} {{\n{items}}}\n"))?;
    let world = resolve.select_world(&[package], Some(name))?;
    Ok((resolve, world))
}

fn generate(generator: &mut dyn WorldGenerator, (mut resolve, world): (Resolve, WorldId)) -> Result<Files> {
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files)?;
    Ok(files)
}

/// One module with all imports and the export `dispatch`, and one for each further export.
fn rust(wit: &Path, to: &Path) -> Result<()> {
    use wit_bindgen_rust::{Opts, WithOption};

    let types = WithOption::Path("super::worker::guild::worker::types".to_owned());
    let options = || Opts {
        format: true,
        additional_derive_attributes: vec!["Clone".to_owned(), "PartialEq".to_owned()],
        additional_derive_ignore: vec!["session".to_owned()],
        pub_export_macro: true,
        ..Opts::default()
    };
    let with_types = |name: &str| Opts {
        with: vec![("guild:worker/types@0.1.0".to_owned(), types.clone())],
        export_macro_name: Some(name.to_owned()),
        ..options()
    };
    fs::create_dir_all(to)?;
    for (module, imports, export, options) in [
        ("worker", &IMPORTS[..], "dispatch", Opts { generate_all: true, ..options() }),
        ("runner", &[], "run", with_types("export_run")),
        ("tools", &[], "toolbox", with_types("export_tools")),
    ] {
        let files = generate(&mut options.build(), world(wit, module, imports, &[export])?)?;
        let (_, text) = files.iter().next().context("nothing was generated")?;
        fs::write(to.join(format!("{module}.rs")), text)?;
    }
    Ok(())
}

/// One package for each interface, and one for each export, which calls what the SDK has in `internal/exports`. The
/// support packages of the generator (`wit/`) are copied by hand, and are packages of the SDK, so that it has no
/// dependency.
fn go(wit: &Path, to: &Path) -> Result<()> {
    use wit_bindgen_go::Opts;

    let (bindings, exports) = (format!("{GO_MODULE}/internal/bindings"), format!("{GO_MODULE}/internal/exports"));
    for export in ["dispatch", "run", "toolbox"] {
        let (pkg_name, export_pkg_name) = (Some(bindings.clone()), Some(exports.clone()));
        let options = Opts { pkg_name, export_pkg_name, ..Opts::default() };
        let files = generate(&mut *options.build(), world(wit, export, &IMPORTS, &[export])?)?;
        for (name, text) in files.iter() {
            let text =
                String::from_utf8_lossy(text).replace("go.bytecodealliance.org/pkg/wit", &format!("{bindings}/wit"));
            let (file, text) = match name {
                "wit_exports/wit_exports.go" => {
                    let package = format!("package wit_{export}");
                    (to.join(format!("wit_{export}/exports.go")), text.replace("package wit_exports", &package))
                }
                _ => (to.join(name), text),
            };
            fs::create_dir_all(file.parent().unwrap_or(to))?;
            fs::write(file, text)?;
        }
    }
    Ok(())
}

/// One source and header for workers and toolboxes. It exports no function: the macros of the SDK do, so that a component
/// exports only what its author wrote. Without exports for it, the host frees no result: the instance is dropped. The
/// description of the world is left out, since the build embeds it.
fn c(wit: &Path, to: &Path) -> Result<()> {
    use wit_bindgen_c::Opts;

    let mut generator = Opts { no_object_file: true, ..Opts::default() }.build();
    let imports = ["log", "memory", "files", "web", "hall"];
    let files = generate(&mut *generator, world(wit, "bindings", &imports, &["dispatch", "toolbox"])?)?;
    fs::create_dir_all(to)?;
    let is_kept = |line: &&str| !line.contains("__export_name__(") || line.contains("\"cabi_realloc\"");
    for (name, text) in files.iter() {
        let text = String::from_utf8_lossy(text);
        // What follows would refer to the description of the world.
        let text = text.split("\n// Ensure that the *_component_type.o").next().unwrap_or_default();
        fs::write(to.join(name), text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect::<String>())?;
    }
    Ok(())
}
