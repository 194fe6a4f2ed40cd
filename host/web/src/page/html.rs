//! Extracts the main text of an HTML page as Markdown.
//!
//! Libraries find and write the text: html5ever parses the page into a tree, dom_smoothie finds the main text in it,
//! dom_query writes it as Markdown. This module bounds the work that a hostile page can cause, since none of them can
//! be interrupted: the tree of a page can have the square of the page's length, nested lists can have more indentation
//! than text, and a base address of a megabyte is repeated in each link. So the page is parsed piece by piece while the
//! tree's size and the time are checked, and the tree is simplified before it is passed on. The child process bounds
//! the rest.
//!
//! The module also keeps boundaries that Markdown cannot express: `x<sup>2</sup>` becomes `x^2`, and a term and its
//! definition become paragraphs, the second after a colon.

mod table;

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

/// The maximum number of nodes in a tree. The longest pages that people write have some 100,000.
const MAX_NODES: usize = 200_000;
/// The maximum depth of elements; browsers stop at 512.
const MAX_DEPTH: usize = 256;
/// The maximum number of open elements in the parser, including those that it would reopen, since the time of each of
/// its steps can grow with them.
const MAX_OPEN: usize = 2 * MAX_DEPTH;
/// The maximum nesting of elements that Markdown indents, or marks at both ends; deeper ones become plain text.
const MAX_NESTED: usize = 8;
/// The size of the pieces in which a page is parsed. The tree and the time are checked between them.
const PIECE_BYTES: usize = 1024;
/// The maximum length of a base address, a resolved link, or another attribute.
const MAX_LINK_BYTES: usize = 2048;
/// The maximum size of all links of a page; later links lose their address.
const MAX_LINKS_BYTES: usize = 2 * 1024 * 1024;
/// The size of the pieces into which long texts are split: writing a text as HTML scans all of it at each `&`.
const MAX_PIECE_BYTES: usize = 2 * 1024;
/// The maximum size of the cells that are added to tables. Each counts one byte more than its text.
const MAX_ADDED_BYTES: usize = 256 * 1024;
/// How many bytes of an exponent or index are examined.
const MAX_SCRIPT_BYTES: usize = 64;
/// The maximum time for parsing a page, since it keeps a processor busy.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);
/// The maximum length of a title.
const MAX_TITLE_CHARS: usize = 300;
/// If the main text is shorter than this, the whole page is shown: it is short, or not an article.
const MIN_MAIN_CHARS: usize = 500;

/// Elements whose contents Markdown indents or marks.
const NESTING: &[&str] = &["a", "b", "blockquote", "code", "em", "i", "ol", "pre", "strong", "table", "ul"];
/// The elements of tables. A table that contains another is only layout, and becomes plain text.
const TABLE: &[&str] = &["caption", "table", "tbody", "td", "tfoot", "th", "thead", "tr"];
/// Elements that browsers show on separate lines, and Markdown does not.
const LINES: &[&str] = &["address", "dd", "dt", "figcaption", "legend", "summary"];
/// Elements without visible text.
const HIDDEN: &str = "script, style, template, noscript, iframe, object, embed, svg, canvas, audio, video, base, \
                      [hidden], [aria-hidden=true]";
/// Elements around the main text, if the page marks them.
const FRAME: &str = "body > header, body > nav, body > footer, nav, [role=navigation], [role=banner], \
                     [role=contentinfo], [role=search]";

/// The title, if there is one, and the main text without it.
pub(super) fn main_text(html: &str, url: &Url, until: Instant) -> Result<(Option<String>, String), String> {
    let document = parse(html, until)?;
    simplify(&document, url)?;
    let config = Config {
        // Scripts' JSON about the page is not part of its text.
        disable_json_ld: true,
        // Classes name the language of code.
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

/// Parses a page into a tree.
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

/// Counts the elements that the parser holds open, and those that it would reopen.
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

/// Simplifies a tree so that all later work takes time and memory proportional to its size: see [`MAX_DEPTH`],
/// [`MAX_NESTED`], [`MAX_PIECE_BYTES`] and the bounds on links. Links become absolute, and invisible elements are
/// removed.
fn simplify(document: &Document, url: &Url) -> Result<(), String> {
    let base = document.select_single("base[href]").attr("href");
    let base = base.filter(|base| base.len() <= MAX_LINK_BYTES).and_then(|base| url.join(&base).ok());
    let base = base.as_ref().filter(|base| base.as_str().len() <= MAX_LINK_BYTES).unwrap_or(url);
    document.select(HIDDEN).remove();

    let (mut room, mut added) = (MAX_LINKS_BYTES, MAX_ADDED_BYTES);
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
            "sup" => mark(&node, '^'),
            "sub" => mark(&node, '_'),
            "dd" => first_paragraph(node).prepend_child(&node.tree.new_text(": ")),
            _ => {}
        }
        if LINES.contains(&&*name) {
            node.rename("p");
        }
        let nests = NESTING.contains(&&*name);
        let is_layout = &*name == "table"
            && (nested >= MAX_NESTED
                || node.descendants_it().any(|below| below.has_name("table"))
                || !table::align(&node, &mut added));
        let in_layout = is_layout || in_layout && &*name != "table";
        if in_layout && TABLE.contains(&&*name) {
            node.rename("div");
        }
        if nests && nested >= MAX_NESTED {
            let is_block = matches!(&*name, "blockquote" | "ol" | "pre" | "table" | "ul");
            node.rename(if is_block { "div" } else { "span" });
        }
        let open_node = |node| OpenNode { node, depth: depth + 1, nested: nested + usize::from(nests), in_layout };
        // The last node is visited first, so the first child is pushed last.
        open.extend(node.children_it(true).map(open_node));
    }
    Ok(())
}

/// The paragraph at the start of a block; or the block itself, if it starts with something else.
fn first_paragraph(mut block: NodeRef<'_>) -> NodeRef<'_> {
    let is_blank = |node: &NodeRef<'_>| node.is_comment() || node.is_text() && node.text().trim().is_empty();
    while let Some(first) = block.children_it(false).find(|node| !is_blank(node)).filter(|node| node.has_name("p")) {
        block = first;
    }
    block
}

/// Inserts a mark before an exponent or index, which would otherwise run together with the text before it. A text that
/// is no single word or number, as `n + 1`, gets brackets; one that begins with a sign, as `[1]`, needs no mark.
fn mark(node: &NodeRef<'_>, mark: char) {
    let mut text = String::new();
    for part in node.descendants_it().filter(NodeRef::is_text) {
        text.push_str(&part.text());
        if text.len() > MAX_SCRIPT_BYTES {
            break;
        }
    }
    let text = text.trim();
    let unsigned = text.trim_start_matches(['+', '-', '−']);
    if !unsigned.starts_with(char::is_alphanumeric) {
        return;
    }
    if unsigned.chars().all(char::is_alphanumeric) {
        node.prepend_child(&node.tree.new_text(mark.to_string()));
    } else {
        node.prepend_child(&node.tree.new_text(format!("{mark}(")));
        node.append_child(&node.tree.new_text(")"));
    }
}

/// A node to visit, with its depth.
struct OpenNode<'a> {
    node: NodeRef<'a>,
    depth: usize,
    /// The number of ancestors that Markdown indents or marks.
    nested: usize,
    /// Whether its table is only layout.
    in_layout: bool,
}

/// Splits a long text into several.
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

/// Makes an address absolute, or removes it if it leads to no page, is too long, or exceeds the remaining room.
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
    fn what_stands_side_by_side_keeps_its_boundary() {
        for (html, expected) in [
            ("<p>x<sup>2</sup> and H<sub>2</sub>O", "x^2 and H\\_2O"),
            ("<p>2<sup>n+1</sup>, 10<sup>-3</sup>, said<sup><a>[1]</a></sup>", "2^(n+1), 10^-3, said\\[1\\]"),
            (
                "<dl><dt>Roster</dt><dd>The members.</dd><dt>Key</dt><dd>Its name.</dd></dl>",
                "Roster\n\n: The members.\n\nKey\n\n: Its name.",
            ),
            ("<dl><dt>Roster<dd>\n<p>The members.<p>All of them.</dl>", "Roster\n\n: The members.\n\nAll of them."),
            (
                "<table><tr><th>System<th>Chip<th>Bits<tr><td rowspan=2>Linux<td>x86<td>64<tr><td>arm<td>32</table>",
                "| System | Chip | Bits |\n| ------ | ---- | ---- |\n| Linux | x86 | 64 |\n| Linux | arm | 32 |",
            ),
            (
                "<table><tr><th>a<th>b<th>c<tr><td colspan=2>both<td>one<tr><td>1<td>2<td rowspan=0>3<tr><td>4<td>5<tr><td>6</table>",
                "| a | b | c |\n| - | - | - |\n| both | both | one |\n| 1 | 2 | 3 |\n| 4 | 5 | 3 |\n| 6 |  | 3 |",
            ),
            ("<table><tr><td>a<td>b<tr><td>c</table>", "|   |   |\n| - | - |\n| a | b |\n| c |  |"),
            (
                "<table><tr><td>a<td>b<table><tr><td>c<td>d</table></table>",
                "a\n\nb\n\n\n|   |   |\n| - | - |\n| c | d |",
            ),
        ] {
            assert_eq!(read(html).unwrap().1, expected, "{html}");
        }
    }

    #[test]
    fn a_base_address_is_that_of_the_links_but_not_a_huge_one() {
        let link = |base: &str| read(&format!("<base href='{base}'><a href=x>y</a>")).unwrap().1;
        assert_eq!(link("/other/"), "[y](https://example.org/other/x)");
        assert_eq!(link(&format!("/{}/", "b".repeat(5000))), "[y](https://example.org/docs/x)");
    }

    /// Without bounds, each of these pages would take minutes or gigabytes.
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
            ("a table of cells that reach down", {
                let spans = "<td rowspan=65534 colspan=1000>a text that is repeated ".repeat(300);
                format!("<table><tr>{spans}{}", "<tr><td>x".repeat(50_000))
            }),
            ("scripts in scripts", format!("{}{}", "<sup>x".repeat(200), "<sub>y</sub>".repeat(50_000))),
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
