//! Tells the language of a component's runtime, by the libraries that its modules link.
//!
//! componentize-py and componentize-qjs link their runtimes as shared libraries, so that a core module imports from one of
//! that name. Neither names its language in a producers section, and stripping a component leaves its imports.

use std::collections::BTreeMap;

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

/// The runtimes that were found, each with the first library of it.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    found: BTreeMap<Language, String>,
    looked_at: usize,
}

impl Libraries {
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
