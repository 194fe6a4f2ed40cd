//! Finds the places of values in a member's files, so that errors name a file and a line.

use std::{collections::BTreeMap, fmt};

use serde_json::value::RawValue;

use super::FILE_NAME;
use crate::text::nearest::suggested;

/// A place in a file that declares a member, shown as `guild-member.json:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The path of the key at that line: `component.tools`, or `guildHall.builtInTools`. It is empty for the whole
    /// file.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The place of each value of a manifest, by its path in `guild-member.json`, even if another file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The file for values that are not declared.
    pub(super) file: &'static str,
    places: BTreeMap<String, Place>,
}

impl Default for Lines {
    fn default() -> Self {
        Self::none_of(FILE_NAME)
    }
}

impl Lines {
    /// The depth of the search, which is that of `guildHall.component.grants.files.roots`.
    const DEPTH: usize = 5;

    /// The places of a file without values.
    pub(super) fn none_of(file: &'static str) -> Self {
        Self { file, places: BTreeMap::new() }
    }

    pub(super) fn of(file: &'static str, text: &str) -> Self {
        let mut lines = Self::none_of(file);
        let ends: Vec<usize> = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        lines.add(text, &ends, text, "", Self::DEPTH);
        lines
    }

    /// Records the lines of an object's values. The object is a part of `text`, whose lines end at `ends`.
    fn add(&mut self, text: &str, ends: &[usize], object: &str, path: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<BTreeMap<String, &RawValue>>(object) else { return };
        for (key, value) in values {
            let path = if path.is_empty() { key } else { format!("{path}.{key}") };
            let offset = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            let line = ends.partition_point(|end| *end < offset) + 1;
            if depth > 1 {
                self.add(text, ends, value.get(), &path, depth - 1);
            }
            self.places.insert(path.clone(), Place { file: self.file, line, key: path });
        }
    }

    /// The keys of the object at `path`; an empty path is the file itself.
    pub(super) fn keys(&self, path: &str) -> impl Iterator<Item = &str> {
        let within = if path.is_empty() { String::new() } else { format!("{path}.") };
        let keys = self.places.keys().filter_map(move |key| key.strip_prefix(&within));
        keys.filter(|key| !key.contains('.'))
    }

    /// Records that `path` and all values in it are at the place of `key` in `from`; an empty `path` is the whole file.
    pub(super) fn adopt(&mut self, path: &str, from: &Self, key: &str) {
        for (found, place) in &from.places {
            match found.strip_prefix(key) {
                Some("") => _ = self.places.insert(path.to_owned(), place.clone()),
                Some(rest) if rest.starts_with('.') && !path.is_empty() => {
                    self.places.insert(format!("{path}{rest}"), place.clone());
                }
                _ => {}
            }
        }
    }

    /// Adds the places of `other` for values without a place here.
    pub(super) fn or(mut self, other: Self) -> Self {
        for (path, place) in other.places.into_iter().filter(|(path, _)| !path.is_empty()) {
            self.places.entry(path).or_insert(place);
        }
        self
    }

    /// The place of `path`, such as `component.grants.files`; for a missing value, the place of the object to which it
    /// would belong.
    pub fn place(&self, path: &str) -> Place {
        let parents = std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent));
        let found = parents.chain([""]).filter_map(|path| self.places.get(path)).next().cloned();
        found.unwrap_or(Place { file: self.file, line: 1, key: String::new() })
    }

    /// The file and the key of `path`, such as `guild-member.json: component.grants.files`; for a value that a package
    /// does not have, the key of the object to which it would belong.
    pub fn name(&self, path: &str) -> String {
        let Place { file, key, .. } = self.place(path);
        // The key in the file is known only if the value is there.
        format!("{file}: {}", if file == FILE_NAME { path } else { &key })
    }
}

/// An error in a manifest, displayed as `guild-member.json:LINE: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The file's name.
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The error and its remedy.
    pub text: String,
}

impl ManifestError {
    pub(super) fn at(place: &Place, text: impl Into<String>) -> Self {
        Self { file: place.file, line: place.line, text: text.into() }
    }

    /// Converts serde_json's error about a file.
    pub(super) fn of(file: &'static str, error: &serde_json::Error) -> Self {
        let whole = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let text = whole.strip_suffix(&place).unwrap_or(&whole);
        let text = suggested(text).unwrap_or_else(|| text.to_owned());
        Self { file, line: error.line().max(1), text }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

impl std::error::Error for ManifestError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_in_the_line_of_what_it_would_stand_in() {
        let lines = Lines::of(FILE_NAME, "{\n\"component\": {\n \"grants\": {\"log\": {}\n}}}");
        let line = |path: &str| lines.place(path).line;
        assert_eq!((line("component.grants.log"), line("component.grants.files")), (3, 3));
        assert_eq!((line("component.tools"), line("mcp")), (2, 1));
        assert_eq!(lines.name("component.tools"), "guild-member.json: component.tools");
    }
}
