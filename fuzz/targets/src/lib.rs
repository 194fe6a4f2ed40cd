//! What the fuzzers run: one function per target. Each takes any bytes, and panics where the host does not keep a promise;
//! not to panic itself is only the least of them.
//!
//! `fuzz/fuzz_targets` has a binary for each, which libFuzzer drives (`cargo xtask fuzz`). The tests here run each on its
//! seeds, `fuzz/seeds/TARGET/`, without a fuzzer: an input that once was a finding is one of them.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fuzzer learns of a finding by a panic"
)]

mod audit;
mod component;
mod globs;
mod job_files;
mod manifest;
mod memory_keys;
mod paths;
mod provider;
mod rpc;
mod scratch;
mod trust;
mod wasm;

pub use audit::run as audit;
pub use component::run as component;
pub use globs::run as globs;
pub use job_files::run as job_files;
pub use manifest::run as manifest;
pub use memory_keys::run as memory_keys;
pub use paths::run as paths;
pub use provider::{anthropic, gemini, ollama, openai};
pub use rpc::run as rpc;
pub use trust::run as trust;

/// A target: it takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their binaries and of their seeds' directories.
pub const TARGETS: [(&str, Target); 13] = [
    ("anthropic", anthropic),
    ("audit", audit),
    ("component", component),
    ("gemini", gemini),
    ("globs", globs),
    ("job_files", job_files),
    ("manifest", manifest),
    ("memory_keys", memory_keys),
    ("ollama", ollama),
    ("openai", openai),
    ("paths", paths),
    ("rpc", rpc),
    ("trust", trust),
];

/// The sections of an input that holds several texts: each begins after a line `==== NAME`. What stands before the first
/// such line is the section without a name.
fn sections(data: &[u8]) -> Vec<(&[u8], Vec<u8>)> {
    let mut sections: Vec<(&[u8], Vec<u8>)> = vec![(b"", Vec::new())];
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b"==== ") {
            Some(name) => sections.push((name.trim_ascii(), Vec::new())),
            None => sections.last_mut().expect("there is one").1.extend_from_slice(line),
        }
    }
    sections
}

/// The section of this name; empty where there is none.
fn section(data: &[u8], name: &[u8]) -> Vec<u8> {
    sections(data).into_iter().find(|(other, _)| *other == name).map(|(_, text)| text).unwrap_or_default()
}
