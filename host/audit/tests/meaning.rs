//! The sentences against the interfaces: each function of `wit/` and of WASI 0.2 that a component can import has one, and
//! there is none too many.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test helper fails its test")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use guild_audit::meaning::{self, Meaning};
use guild_contract::capability::interfaces::{self, Link};
use wit_parser::Resolve;

/// Not offered by this host: what a command exports, and what WASI has not settled.
const NOT_HERE: [&str; 2] = ["wasi:cli/run", "wasi:clocks/timezone"];

/// `package/interface#function` of each function, as a component's binary spells it, and each interface by itself.
fn declared(resolve: &Resolve, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    for (_, interface) in &resolve.interfaces {
        let package = &resolve.packages[interface.package.unwrap()].name;
        let name = format!("{}:{}/{}", package.namespace, package.name, interface.name.as_deref().unwrap());
        if wanted(&name) {
            declared.extend(interface.functions.keys().map(|function| format!("{name}#{function}")));
            declared.insert(name);
        }
    }
    declared
}

fn explained(wanted: impl Fn(&Meaning) -> bool) -> BTreeSet<String> {
    let known = meaning::all().filter(|known| wanted(known));
    known
        .flat_map(|known| {
            let functions = known.functions.iter().map(|(function, _)| format!("{}#{function}", known.name));
            functions.chain([known.name.to_owned()])
        })
        .collect()
}

fn assert_same(told: &BTreeSet<String>, declared: &BTreeSet<String>) {
    let other: Vec<_> = told.symmetric_difference(declared).collect();
    assert!(other.is_empty() && !told.is_empty(), "only told, or only declared: {other:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_function_of_wit_has_a_sentence_and_none_is_too_many() {
    let mut resolve = Resolve::default();
    resolve.push_dir(root().join("wit")).unwrap();
    let is_worker = |name: &str| name.starts_with("guild:worker/");
    assert_same(&explained(|known| is_worker(known.name)), &declared(&resolve, is_worker));
}

#[test]
fn every_function_of_wasi_has_a_sentence_and_none_is_too_many() {
    let mut resolve = Resolve { all_features: true, ..Resolve::default() };
    for package in ["io", "clocks", "random", "filesystem", "sockets", "cli", "http"] {
        resolve.push_file(wasi().join(format!("{package}.wit"))).unwrap();
    }
    let is_here = |name: &str| name.starts_with("wasi:") && !NOT_HERE.contains(&name);
    assert_same(&explained(|known| known.name.starts_with("wasi:")), &declared(&resolve, is_here));
}

#[test]
fn every_interface_that_a_host_links_is_explained_and_no_other() {
    let explained: BTreeSet<_> = meaning::all().map(|known| known.name.to_owned()).collect();
    assert_eq!(explained, interfaces::all().collect());
    for known in meaning::all() {
        let denied = interfaces::link(known.name) == Some(Link::Denied);
        assert_eq!(known.reach.contains("every call traps"), denied, "{}", known.name);
    }
}

#[test]
fn sentences_are_sentences() {
    for known in meaning::all() {
        let functions = known.functions.iter().map(|(_, sentence)| *sentence);
        for sentence in functions.chain([known.sentence, known.reach]) {
            assert!(
                sentence.ends_with('.') && sentence.starts_with(|c: char| c.is_uppercase() || c == '/'),
                "{sentence}"
            );
        }
        assert!(known.functions.is_sorted_by_key(|(name, _)| *name), "{}", known.name);
    }
}

/// The WIT files of WASI 0.2, out of the package `wasip2`, which the workspace's lock file pins.
fn wasi() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap();
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "wasip2").unwrap();
    assert!(package["version"].as_str().unwrap().ends_with("+wasi-0.2.12"), "{}", package["version"]);
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().join("wit/deps")
}
