//! A cache of the pages that a job has read.

use std::{collections::VecDeque, sync::Mutex};

/// The maximum number of pages.
const MAX_PAGES: usize = 32;
/// The maximum size of all pages together, in bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Pages by address. The least recently used page is dropped first.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    /// Addresses and texts, the most recently used last.
    kept: VecDeque<(String, String)>,
    bytes: usize,
}

impl Cache {
    pub(crate) fn get(&self, url: &str) -> Option<String> {
        let mut pages = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = pages.kept.iter().position(|(kept, _)| kept == url)?;
        let page = pages.kept.remove(at)?;
        let text = page.1.clone();
        pages.kept.push_back(page);
        Some(text)
    }

    pub(crate) fn put(&self, url: &str, text: &str) {
        let size = |url: &str, text: &str| url.len() + text.len();
        let mut pages = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if size(url, text) > MAX_BYTES || pages.kept.iter().any(|(kept, _)| kept == url) {
            return;
        }
        pages.bytes += size(url, text);
        pages.kept.push_back((url.to_owned(), text.to_owned()));
        while pages.bytes > MAX_BYTES || pages.kept.len() > MAX_PAGES {
            let Some((url, text)) = pages.kept.pop_front() else { break };
            pages.bytes -= size(&url, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_in_pages_and_in_bytes() {
        let cache = Cache::default();
        for page in 0..=MAX_PAGES {
            cache.put(&page.to_string(), "text");
            assert!(cache.get("0").is_some() || page == MAX_PAGES, "what is used is kept");
        }
        assert_eq!(cache.get("1"), None);

        let half = "x".repeat(MAX_BYTES / 2 - 10);
        cache.put("a", &half);
        cache.put("b", &half);
        cache.put("c", &half);
        assert_eq!((cache.get("a"), cache.get("b").is_some(), cache.get("c").is_some()), (None, true, true));
        cache.put("huge", &"x".repeat(MAX_BYTES));
        assert_eq!(cache.get("huge"), None);
        assert!(cache.get("c").is_some());
    }
}
