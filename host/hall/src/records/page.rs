//! Pages of lists, whose long texts are cut.

use std::{ops::Deref, sync::Arc};

/// The most bytes of a text in a list. A text that is cut ends in `…`; the operation that reads one item has the whole.
const LISTED_BYTES: usize = 2048;
/// The most bytes of the texts of one list.
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The bytes that one item of a list counts besides its texts.
const ITEM_BYTES: usize = 512;

/// The items of a list that one answer has.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, from the asked position on.
    pub items: Vec<T>,
    /// How many follow.
    pub more: usize,
}

impl<T> Deref for Page<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// An item of a list.
pub trait Item {
    /// The type that it is made of.
    type Of;

    /// The item, with its texts cut.
    fn listed(of: &Self::Of) -> Self;

    /// The bytes of its texts.
    fn bytes(&self) -> usize;
}

impl<T: Item> Page<T> {
    /// Of these, as many as one answer has and `limit` allows, from a position on.
    pub(crate) fn of(all: &[Arc<T::Of>], offset: usize, limit: Option<usize>) -> Self {
        let mut bytes = 0;
        let rest = all.get(offset..).unwrap_or_default();
        let items: Vec<T> = rest
            .iter()
            .take(limit.unwrap_or(usize::MAX))
            .map(|of| T::listed(of))
            .take_while(|item| {
                bytes += item.bytes() + ITEM_BYTES;
                bytes <= PAGE_BYTES
            })
            .collect();
        let more = rest.len() - items.len();
        Self { items, more }
    }
}

/// The beginning of a text in a list.
pub(crate) fn shortened(text: &str) -> String {
    match text.get(..text.floor_char_boundary(LISTED_BYTES)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…"),
        _ => text.to_owned(),
    }
}

/// The bytes of these texts.
pub(crate) fn bytes_of(texts: &[&str], lists: &[&[String]]) -> usize {
    texts.iter().map(|text| text.len()).sum::<usize>()
        + lists.iter().copied().flatten().map(|text| text.len() + size_of::<String>()).sum::<usize>()
}
