//! Parts of texts.

use std::ops::Range;

/// The first `max` characters of a text, and whether that is all of it.
pub(crate) fn cut(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    }
}

/// A text on one line, with one space for each run of white space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A range of a text without the white space at its ends.
pub(crate) fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = text.get(range.clone()).unwrap_or_default();
    let start = range.start + (part.len() - part.trim_start().len());
    let end = range.end - (part.len() - part.trim_end().len());
    start..end.max(start)
}
