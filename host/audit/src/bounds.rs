//! Bounds texts and lists that came with a component.

use std::collections::BTreeSet;

use guild_contract::text::{hex, is_steering};
use sha2::{Digest, Sha256};

/// Bytes of a name or text that is kept.
const NAME_BYTES: usize = 400;

/// The beginning of a text that came with a component; of one that is cut with a hash of the whole, so that two that begin
/// alike are distinguished.
pub(crate) fn cut(text: &str) -> String {
    match text.get(..text.floor_char_boundary(NAME_BYTES)) {
        Some(beginning) if beginning.len() < text.len() => {
            let hash = hex(Sha256::digest(text).get(..8).unwrap_or_default());
            format!("{beginning}… (sha256 {hash}…)")
        }
        _ => text.to_owned(),
    }
}

/// Whether a text has characters that are invisible, or that change how what follows is shown.
pub(crate) fn steers(text: &str) -> bool {
    text.contains(is_steering)
}

/// Keeps at most `most` of sorted, distinct values.
pub(crate) fn bounded<T: Ord>(values: BTreeSet<T>, most: usize) -> Vec<T> {
    values.into_iter().take(most).collect()
}
