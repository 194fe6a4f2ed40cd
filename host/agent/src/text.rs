//! Texts of files, as far as they are looked at.

/// How much of a file decides whether it is binary: a NUL in there says so.
pub(crate) const HEAD_BYTES: usize = 8192;

/// Whether a file that begins so is binary.
pub(crate) fn is_binary(head: &[u8]) -> bool {
    head.iter().take(HEAD_BYTES).any(|byte| *byte == 0)
}

/// The first `max` characters of a text, and whether that is all of it.
pub(crate) fn cut(text: &str, max: usize) -> (&str, bool) {
    match text.char_indices().nth(max) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    }
}
