//! Every target on every seed, without a fuzzer. An input that once was a finding is among the seeds.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use guild_fuzz_targets::{TARGETS, Target};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn names(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(directory)).unwrap();
    entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Runs a target on its seeds, and on each cut short.
fn seeds(name: &str, target: Target) {
    let directory = fuzz().join("seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no seeds", directory.display());
    for file in files {
        let seed = fs::read(&file).unwrap();
        target(&seed);
        target(seed.get(..seed.len() / 2).unwrap());
    }
    target(b"");
}

#[test]
fn each_target_has_a_binary_and_seeds() {
    let targets: BTreeSet<_> = TARGETS.map(|(name, _)| name.to_owned()).into();
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("seeds"), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    targets.iter().for_each(|name| assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}"));
}

macro_rules! seeds {
    ($($target:ident)+) => {
        $(#[test]
        fn $target() {
            seeds(stringify!($target), guild_fuzz_targets::$target);
        })+

        #[test]
        fn no_target_is_left_out() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($target)),+]);
        }
    };
}

seeds!(anthropic audit component gemini globs job_files manifest memory_keys ollama openai paths rpc trust);
