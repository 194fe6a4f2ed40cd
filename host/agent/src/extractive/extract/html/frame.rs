//! The frame of a page: which elements are navigation, decoration or hidden, and which hold its main text.

use html5ever::{
    Attribute, LocalName,
    tokenizer::{Tag, TagKind},
};

use crate::extractive::terms::among;

/// Elements whose text is not the page's content.
const SKIPPED: &str = "aside audio button canvas dialog footer form iframe math menu nav noscript object script select style svg \
    template textarea video";
/// Roles that say the same.
const SKIPPED_ROLES: &str =
    "alert banner complementary contentinfo dialog menu menubar navigation search tablist toolbar";
/// Words that name such an element in its class or id.
const SKIPPED_NAMES: &str = "ads advert advertisement anchor boring breadcrumb breadcrumbs cookie cookies footer headerlink hidden \
    masthead menu nav navbar navigation newsletter pager pagination share sharing sidebar sidenav skip skiplink \
    social subscribe toc toolbar topbar";
/// What may stand behind such a word in a class or id; any other word makes it another name.
const SKIPPED_TAILS: &str = "area banner bar block box buttons chapters column consent container form header inner items link links list \
    menu message modal nav notice overlay panel popup prompt resizer scrollbox section title tree widget wrap \
    wrapper";
/// Elements that never have an end.
const VOID: &str = "area base br col embed hr img input link meta param source track wbr";

/// An element that is open, by its name, and how many of that name are open inside it.
pub(super) struct Open {
    name: LocalName,
    inside: u32,
    /// Whether a reader of the page sees it.
    pub(super) seen: bool,
}

impl Open {
    pub(super) fn new(tag: &Tag, seen: bool) -> Self {
        Self { name: tag.name.clone(), inside: 0, seen }
    }

    /// Follows a tag; true once the element itself is closed.
    pub(super) fn closed_by(&mut self, tag: &Tag) -> bool {
        if tag.name != self.name || tag.self_closing {
            return false;
        }
        match tag.kind {
            TagKind::StartTag => self.inside += 1,
            TagKind::EndTag if self.inside == 0 => return true,
            TagKind::EndTag => self.inside -= 1,
        }
        false
    }
}

/// The element that a tag opens, if it is one to skip.
pub(super) fn skipped(tag: &Tag, in_main: bool) -> Option<Open> {
    let name: &str = &tag.name;
    if tag.kind == TagKind::EndTag || tag.self_closing || among(VOID, name) {
        return None;
    }
    if among(SKIPPED, name) {
        return Some(Open::new(tag, matches!(name, "aside" | "footer" | "form" | "nav")));
    }
    if matches!(name, "html" | "body" | "head" | "main" | "article" | "title")
        || name.starts_with('h') && name.len() == 2
    {
        return None;
    }
    // A header is a page's frame, unless it is the header of the main text.
    if name == "header" && !in_main {
        return Some(Open::new(tag, true));
    }
    let is = |key, value: &str| attribute(tag, key).is_some_and(|found| found.eq_ignore_ascii_case(value));
    let hides = is("aria-hidden", "true")
        || attribute(tag, "hidden").is_some()
        || attribute(tag, "data-nosnippet").is_some()
        || attribute(tag, "style").is_some_and(|style| {
            let style: String = style.chars().filter(|c| !c.is_whitespace()).collect();
            style.contains("display:none") || style.contains("visibility:hidden")
        });
    if hides {
        return Some(Open::new(tag, false));
    }
    let frames = attribute(tag, "role").is_some_and(|role| among(SKIPPED_ROLES, role))
        || ["class", "id"].iter().filter_map(|key| attribute(tag, key)).any(names_frame);
    frames.then(|| Open::new(tag, true))
}

pub(super) fn is_main(tag: &Tag) -> bool {
    &*tag.name == "main" || attribute(tag, "role") == Some("main")
}

fn attribute<'a>(tag: &'a Tag, key: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|Attribute { name, .. }| &*name.local == key).map(|attribute| &*attribute.value)
}

/// Whether a class or an id names a part of a page's frame: `sidebar`, `nav-links`, `page__footer`, but not
/// `with-sidebar` or `sidebar-visible`, which name a page that has one.
fn names_frame(value: &str) -> bool {
    value.split_whitespace().any(|name| {
        let name = name.to_ascii_lowercase();
        let words: Vec<&str> = name.split(['-', '_']).filter(|word| !word.is_empty()).collect();
        let Some(at) = words.iter().position(|word| among(SKIPPED_NAMES, word)) else { return false };
        let (before, after) = words.split_at(at);
        !before.iter().any(|word| matches!(*word, "with" | "has" | "no" | "without" | "show" | "not"))
            && after.iter().skip(1).all(|word| among(SKIPPED_TAILS, word) || word.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_the_frame_or_a_page_that_has_one() {
        for frame in ["sidebar", "main nav-links", "page__footer", "toc-2", "cookie-banner", "Breadcrumbs"] {
            assert!(names_frame(frame), "{frame}");
        }
        for text in ["with-sidebar", "sidebar-visible", "no-nav", "navigate", "content", "shared", ""] {
            assert!(!names_frame(text), "{text}");
        }
    }
}
