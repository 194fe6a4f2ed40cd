//! Knows the texts and tables of languages' runtimes: each line and each dense region that a runtime brings along is known
//! by its digest.
//!
//! A component of Python has the interpreter's library with it, more than a million bytes of text that are the same in
//! each. A reader is shown what is not the runtime's. The files in `runtimes/` are sorted digests of [`DIGEST_BYTES`]
//! bytes each; `cargo run -p guild-audit --example runtime_lines -- A.wasm B.wasm C.wasm > FILE` writes one, of the
//! lines, whole texts and regions that at least two of several components of that runtime have.

use sha2::{Digest, Sha256};

/// Bytes of a digest that are kept: nobody finds another line that has the same.
pub const DIGEST_BYTES: usize = 12;
/// Bytes of a region that is a seed or a state of CPython's random numbers: 624 words, and what is beside them.
pub const SEED_BYTES: usize = 3 * 1024;
/// Words of a line that is known by its digest, and of a text that is one.
const FEWEST_WORDS: usize = 4;
/// Letters in a row that are a text in a script without spaces.
const FEWEST_LETTERS: usize = 12;

/// A runtime, with the sorted digests of its lines.
struct Runtime {
    name: &'static str,
    lines: &'static [u8],
}

/// The runtimes that the toolchains of `sdk/templates/` link.
static RUNTIMES: [Runtime; 2] = [
    Runtime { name: "CPython, by componentize-py 0.25.1", lines: include_bytes!("runtimes/componentize-py-0.25.1") },
    Runtime { name: "QuickJS, by componentize-qjs 0.4.5", lines: include_bytes!("runtimes/componentize-qjs-0.4.5") },
];

/// The runtime that brings a line along.
pub fn of_line(line: &str) -> Option<&'static str> {
    of_bytes(line.trim().as_bytes())
}

/// The runtime that brings a region of bytes along.
pub fn of_bytes(bytes: &[u8]) -> Option<&'static str> {
    let digest = digest(bytes);
    let has = |runtime: &&Runtime| {
        let (digests, _) = runtime.lines.as_chunks::<DIGEST_BYTES>();
        digests.binary_search(&digest).is_ok()
    };
    RUNTIMES.iter().find(has).map(|runtime| runtime.name)
}

/// Whether data has the state of CPython's random numbers at the beginning of a region: the position 624 and a first
/// word, as each seed leaves them. componentize-py runs the interpreter as it makes a component, so that the seed and
/// the state are in it, which are other bytes in each.
pub fn is_seeded(data: &[u8], region: usize) -> bool {
    const BEGINS: [u8; 8] = [0x70, 2, 0, 0, 0, 0, 0, 0x80];
    let around = data.get(region.saturating_sub(SEED_BYTES / 4)..(region + SEED_BYTES / 4).min(data.len()));
    around.is_some_and(|around| memchr::memmem::find(around, &BEGINS).is_some())
}

/// The digest by which a line, without the blanks around it, or a region is known.
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let whole = Sha256::digest(bytes);
    let mut digest = [0; DIGEST_BYTES];
    digest.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    digest
}

/// Whether a text has words enough to be read: in a script without spaces, letters.
pub fn is_worded(text: &str) -> bool {
    let has_letter = |word: &&str| word.chars().any(char::is_alphabetic);
    text.split_whitespace().filter(has_letter).take(FEWEST_WORDS).count() == FEWEST_WORDS
        || text.chars().filter(|c| !c.is_ascii() && c.is_alphabetic()).take(FEWEST_LETTERS).count() == FEWEST_LETTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_of_each_runtime_are_whole_and_sorted() {
        for runtime in &RUNTIMES {
            let (digests, rest) = runtime.lines.as_chunks::<DIGEST_BYTES>();
            assert!(rest.is_empty() && digests.len() > 100, "{}", runtime.name);
            assert!(digests.is_sorted_by(|a, b| a < b), "{}", runtime.name);
        }
    }

    #[test]
    fn a_line_of_a_runtime_is_known_and_another_is_not() {
        assert!(of_line("You should not call an overloaded function.").is_none());
        assert!(of_line("Traceback (most recent call last):").is_some());
    }

    #[test]
    fn words_and_letters_make_a_text() {
        assert!(is_worded("read all of them") && is_worded("研究員は報告を書きますので待って"));
        assert!(!is_worded("library/core/src/fmt.rs") && !is_worded("0 1 2 3 4 5"));
    }
}
