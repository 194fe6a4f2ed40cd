//! Finds traces of a component's build, such as paths of the machine, and programs within its data.

use std::collections::BTreeSet;

use memchr::memmem::Finder;
use wasmparser::Parser;

use crate::{
    bounds::{bounded, cut},
    evidence::{characters::marked, form::key_at},
    model::{HostPath, Program},
};

/// Where files of people and of build machines are. What the Rust project compiled (`/rustc/..`) says nothing of anybody.
const PLACES: [&str; 8] =
    ["/home/", "/Users/", "/root/", "/builds/", "/var/folders/", "/tmp/", ":\\Users\\", ":/Users/"];
/// Paths that are distinguished.
const COUNTED: usize = 1000;
/// Places that are looked at, so that a file made of nothing but their names takes no time.
const LOOKED_AT: usize = 200_000;
/// Paths, and programs, that an audit lists.
const LISTED: usize = 10;
/// Data that is shorter holds none of them: `/tmp/a/b`.
const SHORTEST: usize = 8;
/// Bytes of a script that are looked at.
const SCRIPT_BYTES: usize = 400;
/// Characters of a script or a key that are shown.
const PREVIEW_CHARS: usize = 60;
/// Sections of WebAssembly within data that are looked at.
const SECTIONS: usize = 100_000;
/// Bytes of a path that are looked at.
const PATH_BYTES: usize = 240;

/// Paths of the machine that a component was made on.
#[derive(Debug)]
pub(crate) struct Traces {
    places: [(&'static str, Finder<'static>); 8],
    found: BTreeSet<HostPath>,
    looked_at: usize,
}

impl Default for Traces {
    fn default() -> Self {
        let places = PLACES.map(|place| (place, Finder::new(place)));
        Self { places, found: BTreeSet::new(), looked_at: 0 }
    }
}

impl Traces {
    /// Looks through a section.
    pub(crate) fn look(&mut self, section: &str, data: &[u8]) {
        if data.len() < SHORTEST {
            return;
        }
        for (place, finder) in &self.places {
            for at in finder.find_iter(data) {
                self.looked_at += 1;
                if self.found.len() >= COUNTED || self.looked_at > LOOKED_AT {
                    return;
                }
                // A drive's letter stands before the colon.
                let start = if place.starts_with(':') { at.saturating_sub(1) } else { at };
                if let Some(path) = path(data.get(start..).unwrap_or_default(), place) {
                    self.found.insert(HostPath { section: section.to_owned(), path });
                }
            }
        }
    }

    /// Some of them, and how many there are.
    pub(crate) fn finish(self) -> (Vec<HostPath>, u64) {
        let total = self.found.len() as u64;
        (bounded(self.found, LISTED), total)
    }
}

/// The path that begins here: up to the first byte that paths of build machines do not have. One without a file in a
/// folder of a user is none.
fn path(data: &[u8], place: &str) -> Option<String> {
    let is_path = |b: &&u8| b.is_ascii_alphanumeric() || b"/\\:._-+@~=".contains(b);
    let path: Vec<u8> = data.iter().take(PATH_BYTES).take_while(is_path).copied().collect();
    let path = String::from_utf8(path).ok()?;
    let (_, inside) = path.split_once(place)?;
    let (folder, file) = inside.split_once(['/', '\\'])?;
    (!folder.is_empty() && !file.is_empty()).then(|| cut(&path))
}

/// A private key among what data holds.
pub(crate) const PRIVATE_KEY: &str = "a private key";

/// Beginnings of programs within data, and private keys.
#[derive(Debug)]
pub(crate) struct Programs {
    forms: [(Finder<'static>, &'static str); 8],
    found: BTreeSet<Program>,
}

impl Default for Programs {
    fn default() -> Self {
        let forms: [(&[u8], &str); 8] = [
            (b"\x7fELF\x01\x01\x01", "an ELF program (32 bit)"),
            (b"\x7fELF\x02\x01\x01", "an ELF program (64 bit)"),
            (b"This program cannot be run in DOS mode", "a Windows program"),
            (b"\xcf\xfa\xed\xfe\x07\x00\x00\x01", "a macOS program"),
            (b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01", "a macOS program"),
            (b"#!/bin/", "a shell script"),
            (b"\0asm\x01\0\0\0", "a WebAssembly module"),
            (b"\0asm\x0d\0\x01\0", "a WebAssembly component"),
        ];
        Self { forms: forms.map(|(magic, form)| (Finder::new(magic), form)), found: BTreeSet::new() }
    }
}

impl Programs {
    /// Looks through a data section that begins at `offset`.
    pub(crate) fn look(&mut self, offset: u64, data: &[u8]) {
        if let Some(at) = key_at(data) {
            add(&mut self.found, offset, data, at, PRIVATE_KEY);
        }
        for (finder, form) in &self.forms {
            if self.found.len() >= COUNTED {
                return;
            }
            let places = finder.find_iter(data).filter(|at| !form.ends_with("script") || is_script(data, *at));
            for at in places.take(LISTED) {
                add(&mut self.found, offset, data, at, form);
            }
        }
    }

    /// Some of them.
    pub(crate) fn finish(self) -> Vec<Program> {
        bounded(self.found, LISTED)
    }
}

/// Keeps what begins at `at`, with its size and its beginning where they can be told.
fn add(found: &mut BTreeSet<Program>, offset: u64, data: &[u8], at: usize, form: &str) {
    let rest = data.get(at..).unwrap_or_default();
    let is_text = form == PRIVATE_KEY || form.ends_with("script");
    let text = rest.iter().take_while(|byte| is_text && (!byte.is_ascii_control() || b"\n\r\t".contains(byte)));
    let text: Vec<u8> = text.take(SCRIPT_BYTES).copied().collect();
    let bytes = if form.contains("WebAssembly") { Some(length_of(rest)) } else { is_text.then_some(text.len() as u64) };
    let text = String::from_utf8_lossy(&text);
    let preview = marked(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    let preview = preview.chars().take(PREVIEW_CHARS).collect();
    found.insert(Program { offset: offset + at as u64, form: form.to_owned(), bytes, preview });
}

/// How long a module or component is: up to its last whole section.
fn length_of(wasm: &[u8]) -> u64 {
    let sections = Parser::new(0).parse_all(wasm).map_while(Result::ok).take(SECTIONS);
    let ends = sections.filter_map(|payload| payload.as_section().map(|(_, range)| range.end as u64));
    ends.max().unwrap_or(8)
}

/// Whether what begins with the line of an interpreter goes on for a line: a linter knows many such lines, and runs none.
fn is_script(data: &[u8], at: usize) -> bool {
    let rest = data.get(at..).unwrap_or_default();
    let text =
        rest.iter().take(SCRIPT_BYTES).take_while(|byte| !byte.is_ascii_control() || b"\n\t".contains(byte)).count();
    let lines = rest.get(..text).unwrap_or_default().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with(b"#!")).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(data: &[u8]) -> Vec<String> {
        let mut traces = Traces::default();
        traces.look("data", data);
        traces.finish().0.into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn paths_of_people_are_found_and_others_are_not() {
        let data = b"x/home/ann/p/src/main.rs\0C:\\Users\\ann\\p\\x.rs\x01/rustc/abc/library/core /home/page /tmp/x";
        assert_eq!(paths(data), ["/home/ann/p/src/main.rs", "C:\\Users\\ann\\p\\x.rs"]);
        assert!(paths(b"").is_empty() && paths(b"/home/").is_empty() && paths(b":\\Users\\").is_empty());
    }

    #[test]
    fn a_flood_of_paths_is_bounded() {
        let data: String = (0..5000).map(|n| format!("/home/ann/{n}\0")).collect();
        let mut traces = Traces::default();
        traces.look("data", data.as_bytes());
        let (listed, total) = traces.finish();
        assert_eq!((listed.len(), total), (LISTED, COUNTED as u64));
    }

    #[test]
    fn programs_within_data_are_found() {
        let mut programs = Programs::default();
        programs.look(100, b"..\x7fELF\x02\x01\x01\0..\0asm\x01\0\0\0");
        let found: Vec<_> = programs.finish().into_iter().map(|found| (found.offset, found.form)).collect();
        assert_eq!(found, [(102, "an ELF program (64 bit)".to_owned()), (112, "a WebAssembly module".to_owned())]);
        // A module with one section of three bytes, and a script.
        let mut programs = Programs::default();
        programs.look(0, b"\0asm\x01\0\0\0\x01\x01\0 and #!/bin/sh\nrm -r \"$1\"\n\0");
        let found: Vec<_> = programs.finish().into_iter().map(|found| (found.bytes, found.preview)).collect();
        assert_eq!(found, [(Some(11), String::new()), (Some(21), "#!/bin/sh rm -r \"$1\"".to_owned())]);
    }
}
