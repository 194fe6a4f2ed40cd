//! Components made for tests, from WAT text and a few lines of WIT: they build anywhere.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{ManglingAndAbi, PackageId, Resolve, WorldId};

/// The project's `wit/`.
fn wit() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(path).unwrap();
    (resolve, package)
}

fn encode(mut module: Vec<u8>, resolve: &Resolve, world: WorldId) -> Vec<u8> {
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// A component of a world made of these WIT lines. `module` is the core module: its imports and exports carry the
/// canonical names, as `guild:worker/dispatch@0.1.0#activate`.
pub(crate) fn component(world: &str, module: &str) -> Vec<u8> {
    component_with("", world, module)
}

/// As [`component`], of a world that uses this package too.
pub(crate) fn component_with(more: &str, world: &str, module: &str) -> Vec<u8> {
    let (mut resolve, _) = wit();
    if !more.is_empty() {
        resolve.push_str("more.wit", more).unwrap();
    }
    let text = format!("package test:guest;\nworld guest {{\n{world}\n}}");
    let package = resolve.push_str("guest.wit", &text).unwrap();
    let world = resolve.select_world(&[package], Some("guest")).unwrap();
    encode(wat::parse_str(module).unwrap(), &resolve, world)
}

/// A component that imports all that the world has, and whose exports trap.
pub(crate) fn dummy(world: &str) -> Vec<u8> {
    let (resolve, package) = wit();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    encode(module, &resolve, world)
}

/// Every function that some world of `wit/` imports, as `interface#function`, in order.
pub(crate) fn imported_functions() -> Vec<String> {
    let (resolve, package) = wit();
    let mut functions = Vec::new();
    for (_, interface) in &resolve.packages[package].interfaces {
        let used = resolve.packages[package].worlds.values().any(|world| {
            let imports = resolve.worlds[*world].imports.values();
            imports
                .into_iter()
                .any(|item| matches!(item, wit_parser::WorldItem::Interface { id, .. } if id == interface))
        });
        if used {
            let interface = &resolve.interfaces[*interface];
            let name = interface.name.clone().unwrap();
            functions.extend(interface.functions.keys().map(|function| format!("{name}#{function}")));
        }
    }
    functions
}

/// The world of a worker that imports nothing.
pub(crate) const WORKER: &str = "export guild:worker/dispatch@0.1.0;";
/// The world of one that runs itself.
pub(crate) const AUTONOMOUS: &str = "export guild:worker/dispatch@0.1.0; export guild:worker/run@0.1.0;";

/// A worker whose `activate` is this WAT: it has one parameter (where the activation is) and gives back where the
/// answer is.
pub(crate) fn worker(activate: &str) -> Vec<u8> {
    component(WORKER, &module(&[("guild:worker/dispatch@0.1.0#activate", activate)], ""))
}

/// A worker that plans to run itself, and whose `run` is this WAT.
pub(crate) fn autonomous(run: &str) -> Vec<u8> {
    let exports = [("guild:worker/dispatch@0.1.0#activate", OWN_RUN), ("guild:worker/run@0.1.0#run", run)];
    component(AUTONOMOUS, &module(&exports, ""))
}

/// `activate` that answers `ok(own-run({none, none, none}))`: the answer is made of zeros but for the plan's case.
const OWN_RUN: &str = "(i32.store8 (i32.const 4104) (i32.const 1)) (i32.const 4096)";

/// `activate` that refuses with `unsupported(text)`.
pub(crate) fn refusing(text: &str) -> Vec<u8> {
    let body = format!(
        "(i32.store8 (i32.const 4096) (i32.const 1)) (i32.store8 (i32.const 4104) (i32.const 1))
         (i32.store (i32.const 4108) (i32.const 1024)) (i32.store (i32.const 4112) (i32.const {})) (i32.const 4096)",
        text.len()
    );
    let module =
        module(&[("guild:worker/dispatch@0.1.0#activate", &body)], &format!("(data (i32.const 1024) {text:?})"));
    component(WORKER, &module)
}

fn module(exports: &[(&str, &str)], more: &str) -> String {
    let functions: String = exports
        .iter()
        .map(|(name, body)| format!("(func (export \"{name}\") (param i32) (result i32) {body})\n"))
        .collect();
    format!(
        "(module
           (memory (export \"memory\") 2)
           (global $next (mut i32) (i32.const 65536))
           {functions}
           {more}
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
             (local $at i32)
             (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
             (global.set $next (i32.add (local.get $at) (local.get 3)))
             (local.get $at)))"
    )
}

/// A component that `cargo xtask guests` built.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/target/wasm32-wasip2/release");
    let file = release.join(format!("{name}.wasm"));
    std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask guests` builds it", file.display()))
}
