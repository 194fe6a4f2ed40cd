//! Where a manifest says what, so that errors name a line.

use std::{collections::BTreeMap, fmt};

use serde_json::value::RawValue;

use super::FILE_NAME;
use crate::nearest::suggested;

/// In which lines of a manifest values begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(BTreeMap<String, usize>);

impl Lines {
    /// How deep it looks: as deep as `component.grants.files.roots`.
    const DEPTH: usize = 4;

    pub(super) fn of(text: &str) -> Self {
        let mut lines = Self::default();
        let ends: Vec<usize> = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        lines.add((text, &ends), text, "", Self::DEPTH);
        lines
    }

    /// Notes the values of an object, which is a part of `text`, whose lines end at `ends`.
    fn add(&mut self, (text, ends): (&str, &[usize]), object: &str, path: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<BTreeMap<String, &RawValue>>(object) else { return };
        for (key, value) in values {
            let path = if path.is_empty() { key } else { format!("{path}.{key}") };
            let offset = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            let line = ends.partition_point(|end| *end < offset) + 1;
            if depth > 1 {
                self.add((text, ends), value.get(), &path, depth - 1);
            }
            self.0.insert(path, line);
        }
    }

    /// The keys of the manifest itself.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(|path| !path.contains('.'))
    }

    /// The line of `path`, as `component.grants.files`; where it is not said, of what it would stand in. From 1.
    pub fn of_key(&self, path: &str) -> usize {
        let parents = std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(parent, _)| parent));
        parents.filter_map(|path| self.0.get(path)).next().copied().unwrap_or(1)
    }
}

/// What is wrong with a manifest, and where. It reads `guild-member.json:LINE: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FILE_NAME}:{}: {}", self.line, self.text)
    }
}

impl std::error::Error for ManifestError {}

impl From<serde_json::Error> for ManifestError {
    fn from(error: serde_json::Error) -> Self {
        let whole = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let text = whole.strip_suffix(&place).unwrap_or(&whole);
        Self { line: error.line().max(1), text: suggested(text).unwrap_or_else(|| text.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_in_the_line_of_what_it_would_stand_in() {
        let lines = Lines::of("{\n\"component\": {\n \"grants\": {\"log\": {}\n}}}");
        assert_eq!(lines.of_key("component.grants.log"), 3);
        assert_eq!(lines.of_key("component.grants.files"), 3);
        assert_eq!((lines.of_key("component.tools"), lines.of_key("mcp")), (2, 1));
    }
}
