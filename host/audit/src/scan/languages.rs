//! Tells the language of a component's runtime: the component's claim, compared with its contents.
//!
//! componentize-py and componentize-qjs link their runtimes as shared libraries, so that a core module imports from one of that
//! name. Neither names its language in a producers section, and stripping a component leaves its imports. Names are claims
//! too: an engine has thousands of functions, and a compiler leaves its messages in the data.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem::find;
use wasmparser::ImportSectionReader;

use crate::{bounds::cut, meaning::Language, model::Runtime};

/// Imports of core modules that are looked at.
const LOOKED_AT: usize = 100_000;

/// How the names of a runtime's libraries begin and end.
const LIBRARIES: [(&str, &str, Language); 3] = [
    ("libpython", ".so", Language::Python),
    ("libcomponentize_py_", ".so", Language::Python),
    ("componentize_qjs_", ".wasm", Language::JavaScript),
];

/// Functions that a component with an engine of this language has at least. CPython has 13,000, StarlingMonkey 12,000,
/// QuickJS 1,600.
fn engine(language: Language) -> Option<u64> {
    match language {
        Language::Python => Some(5000),
        Language::JavaScript => Some(1200),
        Language::C | Language::Go | Language::Rust => None,
    }
}

/// Messages of a language's own library, one of which stands in the data of nearly all that it compiles.
const MESSAGES: [(Language, &[&[u8]]); 3] = [
    (Language::C, &[b"No error information", b"Illegal byte sequence", b"-+   0X0x", b"(null)"]),
    (Language::Go, &[b"runtime error: ", b"panic: "]),
    (Language::Rust, &[b"library/core/", b"library/std/", b"library/alloc/", b"/rustc/", b"`Option::unwrap()`"]),
];

/// The runtimes that were found, each with the first library of it.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    found: BTreeMap<Language, String>,
    /// Languages whose messages stand in the data.
    messages: BTreeSet<Language>,
    looked_at: usize,
}

impl Libraries {
    /// Looks through a section of data.
    pub(crate) fn look_at_data(&mut self, data: &[u8]) {
        for (language, messages) in MESSAGES {
            if !self.messages.contains(&language) && messages.iter().any(|message| find(data, message).is_some()) {
                self.messages.insert(language);
            }
        }
    }

    /// Whether a component of this many functions is made as one of this language is.
    pub(crate) fn prove(&self, language: Language, functions: u64) -> bool {
        engine(language).map_or_else(|| self.messages.contains(&language), |least| functions >= least)
    }

    /// Looks at the imports of a core module.
    pub(crate) fn look(&mut self, section: ImportSectionReader<'_>) {
        for imports in section.into_iter().flatten() {
            for (_, import) in imports.into_iter().flatten() {
                self.looked_at += 1;
                if self.looked_at > LOOKED_AT {
                    return;
                }
                let is_of = |(begins, ends, _): &&(&str, &str, Language)| {
                    import.module.starts_with(begins) && import.module.ends_with(ends)
                };
                if let Some((_, _, language)) = LIBRARIES.iter().find(is_of) {
                    self.found.entry(*language).or_insert_with(|| cut(import.module));
                }
            }
        }
    }

    /// The languages.
    pub(crate) fn languages(&self) -> impl Iterator<Item = Language> {
        self.found.keys().copied()
    }

    /// What an audit says of them.
    pub(crate) fn runtimes(self) -> Vec<Runtime> {
        let runtime =
            |(language, library): (Language, String)| Runtime { language: language.as_str().to_owned(), library };
        self.found.into_iter().map(runtime).collect()
    }
}
