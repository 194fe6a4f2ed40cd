//! Makes pages of lists, whose long texts are cut.

use std::{ops::Deref, sync::Arc};

/// The most bytes of a text in a list. A cut text ends with `…`; the operation that reads a single item has the whole
/// text.
const LISTED_BYTES: usize = 2048;
/// The most bytes of the texts of one list.
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The bytes that one item of a list counts besides its texts.
const ITEM_BYTES: usize = 512;

/// The items of a list in one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items from the requested offset on.
    pub items: Vec<T>,
    /// The number of further items.
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
    /// The type of the full item.
    type Of;

    /// The item with its texts cut.
    fn listed(of: &Self::Of) -> Self;

    /// The bytes of the item's texts.
    fn bytes(&self) -> usize;
}

impl<T: Item> Page<T> {
    /// The items from an offset on, as many as one answer can hold and `limit` allows.
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
