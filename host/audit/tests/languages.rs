//! Real components of other languages, cut down by `real/cut.py` to what an audit reads: the languages are known by the runtimes
//! that they link.
//!
//! - `python.wasm.z`: componentize-py 0.25.1, `componentize-py -d wit -w reviewer componentize worker`
//! - `quickjs.wasm.z`: componentize-qjs 0.4.5, `componentize-qjs --sync --wit wit --world reviewer --js worker.js`
//! - `starlingmonkey.wasm.z`: jco 1.34.0, `jco componentize worker.js --wit wit --world-name reviewer`
//!
//! The sources are those of `docs/tutorials/contract.md`.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{fs, io::Read, path::Path};

use flate2::read::ZlibDecoder;
use guild_audit::{Audit, FactName, Member, Operator, Package, Subject};
use guild_contract::{
    Bounds, Limits, Manifest,
    capability::grants::{Grants, Policy},
};
use serde_json::json;

fn real(name: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real").join(format!("{name}.wasm.z"));
    let mut bytes = Vec::new();
    ZlibDecoder::new(fs::File::open(file).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The audit of a member whose component this is, as `strict_imports` has it.
fn audit(name: &str, strict_imports: bool) -> Audit {
    let manifest = json!({
        "name": "ann", "displayName": "Ann", "description": "d", "version": "1.0.0", "transport": "http",
        "mcp": {"command": "guild", "args": ["serve", "--member", "."]}, "capabilities": ["worker"],
        "component": {"file": "worker.wasm", "world": "worker"},
    });
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).unwrap();
    let (key, spec) = ("ann".parse().unwrap(), manifest.component.as_ref().unwrap());
    let grants = Grants::of(&key, spec, &Policy { strict_imports, ..Policy::default() });
    let operator = Operator { grants: grants.clone(), ..Operator::default() };
    let member = Member {
        key: &key,
        manifest: &manifest,
        spec,
        grants: &grants,
        bounds: Bounds::default(),
        package: Package::default(),
        operator: &operator,
    };
    let limits = Limits::default();
    Audit::of(&Subject {
        file: "worker.wasm",
        bytes: &real(name),
        member: Some(member),
        limits: &limits,
        signature: None,
        trusted: None,
        whole: None,
    })
}

fn places(audit: &Audit, name: FactName) -> usize {
    audit.facts.iter().filter(|fact| fact.name == name).count()
}

#[test]
fn a_real_component_is_known_by_the_runtime_that_it_links() {
    for (name, runtime) in [
        ("python", Some(("Python", "libcomponentize_py_runtime.so"))),
        ("quickjs", Some(("JavaScript", "componentize_qjs_runtime.wasm"))),
        // It is one module, and its producers section names the language.
        ("starlingmonkey", None),
    ] {
        let audit = audit(name, false);
        assert!(audit.is_readable() && !audit.is_refused(), "{name}: {:?}", audit.facts);
        let found = audit.identity.runtimes.first();
        assert_eq!(found.map(|found| (found.language.as_str(), found.library.as_str())), runtime, "{name}");
    }
}

#[test]
fn the_sockets_of_pythons_runtime_are_told_as_its_runtimes() {
    let python = audit("python", false);
    assert!(python.identity.producers.iter().all(|producer| !producer.name.contains("python")));
    assert_eq!(places(&python, FactName::NetworkImport), 1);
    let sockets = python.imports.iter().filter(|import| import.name.starts_with("wasi:sockets/"));
    assert!(
        sockets.clone().count() == 7 && sockets.clone().all(|import| import.runtimes.contains(&"Python".to_owned()))
    );
}

#[test]
fn strict_imports_refuses_the_default_build_of_two_tools() {
    for (name, refused) in [("python", 7), ("starlingmonkey", 2), ("quickjs", 0)] {
        assert_eq!(places(&audit(name, true), FactName::ImportRefused), refused, "{name}");
    }
}
