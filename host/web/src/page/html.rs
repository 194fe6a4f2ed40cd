//! The main text of an HTML page, as Markdown.
//!
//! The text is found and written by libraries: html5ever reads the page into a tree, dom_smoothie finds the main text
//! in it, dom_query writes that as Markdown. This module bounds the work that a hostile page can cause, since none of
//! them can be interrupted: HTML can be written so that its tree has the square of its length, lists can stand in lists
//! so deep that the indentation is longer than the text, and a base address of a megabyte is repeated in each link. So
//! the page is read piece by piece while its tree and the clock are watched, and the tree is simplified before it is
//! passed on. The child process bounds the rest.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use dom_query::{Document, NodeId, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};
use html5ever::{
    ParseOpts, parse_document,
    tendril::{StrTendril, TendrilSink},
    tree_builder::{Tracer, TreeBuilderOpts},
};
use url::Url;

/// A tree has at most so many nodes. The longest pages that people write have some 100,000.
const MAX_NODES: usize = 200_000;
/// Elements stand at most so deep in each other; browsers stop at 512.
const MAX_DEPTH: usize = 256;
/// The parser holds at most so many elements open, counting those that it would open again: each of its steps can take
/// as long as there are of them.
const MAX_OPEN: usize = 2 * MAX_DEPTH;
/// Elements that Markdown indents, or marks at both ends, stand at most so deep in each other; those below become plain.
const MAX_NESTED: usize = 8;
/// A page is read in pieces of so many bytes, between which the tree and the clock are looked at.
const PIECE_BYTES: usize = 1024;
/// A base address, an address that a link is resolved to, or another attribute, is at most so long.
const MAX_LINK_BYTES: usize = 2048;
/// The links of a page have at most so many bytes together, and those behind it lose their address.
const MAX_LINKS_BYTES: usize = 2 * 1024 * 1024;
/// Longer texts are split into pieces of so many bytes: writing one as HTML looks through all of it at each `&`.
const MAX_PIECE_BYTES: usize = 2 * 1024;
/// Reading a page takes at most so long, since a processor is busy with it.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);
/// A title is at most so many characters long.
const MAX_TITLE_CHARS: usize = 300;
/// Where the main text is shorter than so many characters, the whole page is shown: it is short, or no article.
const MIN_MAIN_CHARS: usize = 500;

/// Elements in which others are indented or marked by Markdown.
const NESTING: &[&str] = &["a", "b", "blockquote", "code", "em", "i", "ol", "pre", "strong", "table", "ul"];
/// What tables are made of. A table in which another stands is no table but a layout, and becomes plain.
const TABLE: &[&str] = &["caption", "table", "tbody", "td", "tfoot", "th", "thead", "tr"];
/// Elements that show nothing.
const HIDDEN: &str = "script, style, template, noscript, iframe, object, embed, svg, canvas, audio, video, base, \
                      [hidden], [aria-hidden=true]";
/// Elements around the main text, where a page says so itself.
const FRAME: &str = "body > header, body > nav, body > footer, nav, [role=navigation], [role=banner], \
                     [role=contentinfo], [role=search]";

/// The title, where there is one, and the main text without it.
pub(super) fn main_text(html: &str, url: &Url, until: Instant) -> Result<(Option<String>, String), String> {
    let document = parse(html, until)?;
    simplify(&document, url)?;
    let config = Config {
        // What scripts say about the page in JSON is no text of the page.
        disable_json_ld: true,
        // They name the language of code.
        keep_classes: true,
        char_threshold: MIN_MAIN_CHARS,
        text_mode: TextMode::Markdown,
        ..Config::default()
    };
    let main =
        Readability::with_document(document.clone(), None, Some(config)).ok().and_then(|mut page| page.parse().ok());
    if Instant::now() > until {
        return Err(too_slow());
    }
    let title = document.select_single("title").text();
    let (title, text) = match main {
        Some(main) if main.length >= MIN_MAIN_CHARS => (main.title, main.text_content.to_string()),
        _ => {
            document.select(FRAME).remove();
            (title.to_string(), document.body().map(|body| body.md(None).to_string()).unwrap_or_default())
        }
    };
    let title: String = title.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_TITLE_CHARS).collect();
    let text = text.trim();
    let repeated = text.strip_prefix("# ").and_then(|rest| rest.strip_prefix(&title)).filter(|_| !title.is_empty());
    let text = repeated.filter(|rest| rest.is_empty() || rest.starts_with('\n')).map_or(text, str::trim_start);
    Ok(((!title.is_empty()).then_some(title), text.to_owned()))
}

/// Reads a page into a tree.
fn parse(html: &str, until: Instant) -> Result<Document, String> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let options = ParseOpts { tree_builder, ..ParseOpts::default() };
    let mut parser = parse_document(Document::default(), options);
    let mut rest = html;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        parser.process(StrTendril::from(piece));
        let builder = &parser.tokenizer.sink;
        let open = Open(Cell::new(0));
        builder.trace_handles(&open);
        if open.0.get() > MAX_OPEN {
            return Err(too_deep());
        }
        if builder.sink.tree.len() > MAX_NODES {
            return Err(format!("it has more than {MAX_NODES} elements"));
        }
        if Instant::now() > until {
            return Err(too_slow());
        }
        rest = behind;
    }
    Ok(parser.finish())
}

/// Counts the elements that the parser holds open, and those that it would open again.
struct Open(Cell<usize>);

impl Tracer for Open {
    type Handle = NodeId;

    fn trace_handle(&self, _: &NodeId) {
        self.0.set(self.0.get() + 1);
    }
}

fn too_deep() -> String {
    format!("its elements stand more than {MAX_DEPTH} deep in each other")
}

fn too_slow() -> String {
    "it took too long to make text of it".to_owned()
}

/// Makes a tree such that whatever is done with it takes time and room in the order of its size: see [`MAX_DEPTH`],
/// [`MAX_NESTED`], [`MAX_PIECE_BYTES`] and the bounds of links. Links become absolute, and what shows nothing is removed.
fn simplify(document: &Document, url: &Url) -> Result<(), String> {
    let base = document.select_single("base[href]").attr("href");
    let base = base.filter(|base| base.len() <= MAX_LINK_BYTES).and_then(|base| url.join(&base).ok());
    let base = base.as_ref().filter(|base| base.as_str().len() <= MAX_LINK_BYTES).unwrap_or(url);
    document.select(HIDDEN).remove();

    let mut room = MAX_LINKS_BYTES;
    let mut open = vec![OpenNode { node: document.root(), depth: 0, nested: 0, in_layout: false }];
    while let Some(OpenNode { node, depth, nested, in_layout }) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        if node.is_text() {
            split(&node);
            continue;
        }
        let long = |attribute: &dom_query::Attr| attribute.value.len() > MAX_LINK_BYTES;
        for attribute in node.attrs().iter().filter(|attribute| long(attribute)) {
            node.remove_attr(&attribute.name.local);
        }
        let name = node.node_name().unwrap_or_default();
        match &*name {
            "a" => resolve(&node, "href", base, &mut room),
            "img" if node.attr("alt").is_none_or(|alt| alt.trim().is_empty()) => {
                node.remove_from_parent();
                continue;
            }
            "img" => resolve(&node, "src", base, &mut room),
            _ => {}
        }
        let is_layout = &*name == "table" && node.descendants_it().any(|below| below.has_name("table"));
        let in_layout = is_layout || in_layout && &*name != "table";
        if in_layout && TABLE.contains(&&*name) {
            node.rename("div");
        }
        let nests = NESTING.contains(&&*name);
        if nests && nested >= MAX_NESTED {
            let is_block = matches!(&*name, "blockquote" | "ol" | "pre" | "table" | "ul");
            node.rename(if is_block { "div" } else { "span" });
        }
        let open_node = |node| OpenNode { node, depth: depth + 1, nested: nested + usize::from(nests), in_layout };
        // The last is taken first, so the first child has to come last.
        open.extend(node.children_it(true).map(open_node));
    }
    Ok(())
}

/// A node that is still to be visited, with its depth.
struct OpenNode<'a> {
    node: NodeRef<'a>,
    depth: usize,
    /// How many elements it stands in that Markdown indents or marks.
    nested: usize,
    /// Whether the table that it belongs to only lays out others.
    in_layout: bool,
}

/// Makes several texts of a long one.
fn split(node: &NodeRef<'_>) {
    let text = node.text();
    if text.len() <= MAX_PIECE_BYTES {
        return;
    }
    let (first, mut rest) = text.split_at(text.floor_char_boundary(MAX_PIECE_BYTES));
    node.set_text(first);
    let mut last = *node;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
        let next = node.tree.new_text(piece);
        last.insert_after(&next);
        (last, rest) = (next, behind);
    }
}

/// Makes an address absolute, or removes it where it leads to no page, is too long, or there is no more room for it.
fn resolve(node: &NodeRef<'_>, attribute: &str, base: &Url, room: &mut usize) {
    let Some(link) = node.attr(attribute) else { return };
    let link = link.trim();
    let absolute = (!link.starts_with('#')).then(|| base.join(link).ok()).flatten();
    let absolute = absolute.filter(|link| matches!(link.scheme(), "http" | "https" | "mailto"));
    let fits = |link: &Url| link.as_str().len() <= MAX_LINK_BYTES.min(*room);
    match absolute.filter(fits) {
        Some(link) => {
            *room -= link.as_str().len();
            node.set_attr(attribute, link.as_str());
        }
        None => node.remove_attr(attribute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_secs(20);

    fn read(html: &str) -> Result<(Option<String>, String), String> {
        let url = Url::parse("https://example.org/docs/page.html").unwrap();
        main_text(html, &url, Instant::now() + ENOUGH)
    }

    #[test]
    fn a_page_is_its_title_and_its_main_text() {
        let paragraphs =
            "<p>Words that make up a text, of which there are some more, so that it is one.</p>".repeat(20);
        let (title, text) = read(&format!(
            "<title>A page of words and more words</title><nav>menu</nav><article>{paragraphs}</article>"
        ))
        .unwrap();
        assert_eq!(title.as_deref(), Some("A page of words and more words"));
        assert!(text.starts_with("Words that") && !text.contains("menu"), "{text}");
    }

    #[test]
    fn a_short_page_is_shown_whole_but_for_what_shows_nothing() {
        let (title, text) = read(
            "<title>Short</title><body><nav>menu</nav><h1>Short</h1><p>a <a href='../x?y=1#z'>link</a>, \
             <a href='javascript:alert(1)'>no link</a>, <a href='#here'>here</a>, <img src=pixel.gif>\
             <img src=cat.png alt='a cat'><script>alert(1)</script><p hidden>hidden",
        )
        .unwrap();
        assert_eq!(title.as_deref(), Some("Short"));
        assert_eq!(
            text,
            "a [link](https://example.org/x?y=1#z), no link, here, ![a cat](https://example.org/docs/cat.png)"
        );
    }

    #[test]
    fn a_base_address_is_that_of_the_links_but_not_a_huge_one() {
        let link = |base: &str| read(&format!("<base href='{base}'><a href=x>y</a>")).unwrap().1;
        assert_eq!(link("/other/"), "[y](https://example.org/other/x)");
        assert_eq!(link(&format!("/{}/", "b".repeat(5000))), "[y](https://example.org/docs/x)");
    }

    /// Each of these would, without a bound, take minutes or gigabytes.
    #[test]
    fn a_hostile_page_takes_bounded_time_and_room() {
        const BYTES: usize = 1024 * 1024;
        let fill = |text: &str| text.repeat(BYTES / text.len());
        let pages = [
            ("deep", fill("<div>")),
            ("deep behind the body", fill("<div></body></html><!---->")),
            ("formatting that is opened again", fill("<p><b><i>")),
            (
                "different formatting that is opened again",
                (0..200).map(|n| format!("<b id={n}>")).chain([fill("<p>x")]).collect(),
            ),
            ("deep lists", format!("{}{}", "<ul><li>".repeat(100), "<li>x".repeat(50_000))),
            ("deep quotes", format!("{}{}", "<blockquote>".repeat(200), "x<br>".repeat(50_000))),
            ("deep tables", format!("{}{}", "<table><tr><td>x</td><td>".repeat(50), "<p>x".repeat(50_000))),
            ("many references", "&a".repeat(100_000)),
            ("a long base", format!("<base href=/{}/>{}", "b".repeat(2000), "<a href=x>y</a>".repeat(30_000))),
            ("a wide table", format!("<table><tr><td colspan=1000000000>{}", "<tr><td>x".repeat(20_000))),
        ];
        for (name, html) in pages {
            let started = Instant::now();
            let text = read(&html).map(|(_, text)| text).unwrap_or_default();
            assert!(started.elapsed() < ENOUGH, "{name}: {:?}", started.elapsed());
            assert!(text.len() < 8 * BYTES, "{name}: {} bytes", text.len());
        }
    }

    #[test]
    fn a_page_that_keeps_the_parser_busy_is_given_up() {
        let attributes: String = (0..500_000).map(|n| format!("a{n} ")).collect();
        let url = Url::parse("https://example.org/").unwrap();
        let started = Instant::now();
        let error = main_text(&format!("<p {attributes}>"), &url, started + Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("too long") && started.elapsed() < ENOUGH, "{error}, {:?}", started.elapsed());
    }
}
