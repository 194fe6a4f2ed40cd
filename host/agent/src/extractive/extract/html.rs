//! HTML: the main text of a page, with the line of the file that each piece of it stands in.
//!
//! The tokens are html5ever's; no tree is built, since a page's text needs only to know which elements it stands in.
//! Left out are scripts and styles, what a page marks as navigation or as hidden, what class and id name so, blocks
//! that are little but links, and, where a page has a `main` or an `article`, whatever stands outside of it. What
//! several pages repeat is found later, over all pages.

use std::cell::RefCell;

use html5ever::{
    Attribute, LocalName,
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
        states::{Rawtext, Rcdata, ScriptData},
    },
};

use super::{Block, Form, Format, Page};

/// Elements whose text nobody came for.
const SKIPPED: &[&str] = &[
    "aside", "audio", "button", "canvas", "dialog", "footer", "form", "iframe", "math", "menu", "nav", "noscript",
    "object", "script", "select", "style", "svg", "template", "textarea", "video",
];
/// Roles that say the same.
const SKIPPED_ROLES: &[&str] = &[
    "alert",
    "banner",
    "complementary",
    "contentinfo",
    "dialog",
    "menu",
    "menubar",
    "navigation",
    "search",
    "tablist",
    "toolbar",
];
/// Words that name such an element in its class or id.
const SKIPPED_NAMES: &[&str] = &[
    "ads",
    "advert",
    "advertisement",
    "anchor",
    "boring",
    "breadcrumb",
    "breadcrumbs",
    "cookie",
    "cookies",
    "footer",
    "headerlink",
    "hidden",
    "masthead",
    "menu",
    "nav",
    "navbar",
    "navigation",
    "newsletter",
    "pager",
    "pagination",
    "share",
    "sharing",
    "sidebar",
    "sidenav",
    "skip",
    "skiplink",
    "social",
    "subscribe",
    "toc",
    "toolbar",
    "topbar",
];
/// What may stand behind such a word in a class or id; any other word makes it another name.
const SKIPPED_TAILS: &[&str] = &[
    "bar",
    "box",
    "buttons",
    "chapters",
    "container",
    "inner",
    "items",
    "link",
    "links",
    "list",
    "menu",
    "nav",
    "panel",
    "resizer",
    "scrollbox",
    "section",
    "tree",
    "widget",
    "wrap",
    "wrapper",
];
/// Elements that end the block before them, and whose end ends theirs.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "blockquote",
    "body",
    "br",
    "caption",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "title",
    "tr",
    "ul",
];
/// Elements that never have an end.
const VOID: &[&str] =
    &["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];

/// Reads a page.
pub(super) fn page(source: &str) -> Page {
    let sink = Sink(RefCell::new(State::new()));
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(source));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

/// An element that is open, by its name, and how many of that name are open inside it.
struct Open {
    name: LocalName,
    inside: u32,
}

impl Open {
    /// Follows a tag; true once the element itself is closed.
    fn closed_by(&mut self, tag: &Tag) -> bool {
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

/// Where in the page's frame a block stands. The highest that a page has is its main text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Area {
    Page,
    Article,
    Main,
}

struct State {
    page: Page,
    /// Beside each block: where it stands.
    areas: Vec<Area>,
    /// Where the current block begins in the page's text.
    start: usize,
    /// Characters of the current block that stand in links.
    linked: usize,
    skipped: Option<Open>,
    main: Option<Open>,
    article: Option<Open>,
    link: bool,
    pre: u32,
    item: bool,
    /// Where the current inline code begins in the page's text.
    code: Option<usize>,
    heading: bool,
    title: Option<String>,
    /// The line that the text's end stands in, if counting line breaks from the last known line gives it.
    counted: u32,
}

impl State {
    fn new() -> Self {
        Self {
            page: Page::new(Format::Html, String::new()),
            areas: Vec::new(),
            start: 0,
            linked: 0,
            skipped: None,
            main: None,
            article: None,
            link: false,
            pre: 0,
            item: false,
            code: None,
            heading: false,
            title: None,
            counted: 1,
        }
    }

    /// Text that starts in this line of the file.
    fn text(&mut self, text: &str, mut line: u32) {
        if let Some(title) = &mut self.title {
            title.push_str(text);
            return;
        }
        if self.skipped.is_some() {
            return;
        }
        let before = self.page.text.len();
        for c in text.chars() {
            let blank = c.is_whitespace() && (c != '\u{a0}' || self.pre == 0);
            if blank && self.pre == 0 {
                self.blank(c == '\n');
            } else {
                self.push(if c == '\u{a0}' { ' ' } else { c }, line);
            }
            line += u32::from(c == '\n');
        }
        if self.link {
            self.linked += self.page.text.len().saturating_sub(before);
        }
    }

    /// White space: one space, or one line break where the file has a line break.
    fn blank(&mut self, newline: bool) {
        match self.page.text.as_bytes().last() {
            _ if self.page.text.len() <= self.start => {}
            Some(b'\n') => {}
            Some(b' ') if newline => {
                self.page.text.pop();
                self.page.text.push('\n');
                self.counted += 1;
            }
            Some(b' ') => {}
            _ => {
                self.page.text.push(if newline { '\n' } else { ' ' });
                self.counted += u32::from(newline);
            }
        }
    }

    fn push(&mut self, c: char, line: u32) {
        if self.counted != line {
            self.page.lines.push((self.page.text.len() as u32, line));
            self.counted = line;
        }
        self.page.text.push(c);
        self.counted += u32::from(c == '\n');
    }

    /// Ends the current block.
    fn flush(&mut self) {
        self.code = None;
        let block = super::trimmed(&self.page.text, self.start..self.page.text.len());
        // In a listing the indentation of the first line is part of it.
        let start = if self.pre > 0 { line_start(&self.page.text, self.start, block.start) } else { block.start };
        let words = self.page.text.get(block.clone()).unwrap_or_default();
        if self.heading {
            let text = words.replace('\n', " ");
            self.page.text.truncate(self.start);
            if !text.is_empty() {
                self.page.heading(text);
            }
        } else if words.chars().any(char::is_alphanumeric) && (self.pre > 0 || self.linked * 10 < words.len() * 7) {
            self.page.text.truncate(block.end);
            self.page.block(
                start..block.end,
                match (self.pre, self.item) {
                    (0, false) => Form::Prose,
                    (0, true) => Form::Item,
                    _ => Form::Code,
                },
            );
            self.areas.push(match (&self.main, &self.article) {
                (Some(_), _) => Area::Main,
                (None, Some(_)) => Area::Article,
                (None, None) => Area::Page,
            });
            self.page.text.push_str("\n\n");
        } else {
            self.page.text.truncate(self.start);
        }
        // Lines that were noted for text that is gone, or that the separator made wrong, are noted again.
        let len = self.page.text.len();
        while self.page.lines.last().is_some_and(|(at, _)| *at as usize >= len.max(1)) {
            self.page.lines.pop();
        }
        self.counted = 0;
        self.start = len;
        self.linked = 0;
    }

    fn tag(&mut self, tag: &Tag, line: u32) -> TokenSinkResult<()> {
        let name: &str = &tag.name;
        let start = tag.kind == TagKind::StartTag;
        if start && is_main(tag) {
            // Whatever was taken for something to skip holds the main text.
            self.skipped = None;
        }
        if let Some(skipped) = &mut self.skipped {
            if skipped.closed_by(tag) {
                self.skipped = None;
            }
            return raw(name, start);
        }
        if BLOCKS.contains(&name) {
            self.flush();
        }
        match (name, start) {
            ("title", true) => self.title = self.page.title.is_empty().then(String::new),
            ("title", false) => {
                if let Some(title) = self.title.take() {
                    self.page.title = own_part(&title);
                }
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", _) => self.heading = start,
            ("li" | "dd" | "dt" | "ul" | "ol" | "dl", _) => self.item = start,
            ("a", _) => self.link = start,
            ("pre", true) => self.pre += 1,
            ("pre", false) => self.pre = self.pre.saturating_sub(1),
            ("td" | "th", _) => self.blank(false),
            ("code" | "tt" | "kbd" | "samp", true) if self.pre == 0 && self.code.is_none() => {
                self.code = Some(self.page.text.len());
                self.push('`', line);
            }
            ("code" | "tt" | "kbd" | "samp", false) => self.end_code(),
            _ => {}
        }
        if start && !VOID.contains(&name) && !tag.self_closing && self.skips(tag) {
            self.skipped = Some(Open { name: tag.name.clone(), inside: 0 });
            return raw(name, start);
        }
        let is_main = start && is_main(tag);
        follow(&mut self.main, tag, is_main);
        follow(&mut self.article, tag, start && name == "article");
        raw(name, start)
    }

    /// Ends inline code. It stands in backticks unless it has some itself.
    fn end_code(&mut self) {
        let Some(start) = self.code.take() else { return };
        let inner = self.page.text.get(start + 1..).unwrap_or_default();
        if inner.trim().is_empty() || inner.contains(['`', '\n']) {
            // The lines noted after the backtick move with the text.
            self.page.text.remove(start);
            for (at, _) in self.page.lines.iter_mut().rev().take_while(|(at, _)| *at as usize > start) {
                *at -= 1;
            }
        } else {
            self.page.text.push('`');
        }
    }

    fn skips(&self, tag: &Tag) -> bool {
        let name: &str = &tag.name;
        if SKIPPED.contains(&name) {
            return true;
        }
        if matches!(name, "html" | "body" | "head" | "main" | "article" | "title")
            || name.starts_with('h') && name.len() == 2
        {
            return false;
        }
        // A header is a page's frame, unless it is the header of the main text.
        if name == "header" && self.main.is_none() && self.article.is_none() {
            return true;
        }
        let is = |key, value: &str| attribute(tag, key).is_some_and(|found| found.eq_ignore_ascii_case(value));
        let hides = is("aria-hidden", "true")
            || attribute(tag, "hidden").is_some()
            || attribute(tag, "data-nosnippet").is_some()
            || attribute(tag, "style").is_some_and(|style| {
                let style: String = style.chars().filter(|c| !c.is_whitespace()).collect();
                style.contains("display:none") || style.contains("visibility:hidden")
            });
        hides
            || attribute(tag, "role").is_some_and(|role| SKIPPED_ROLES.contains(&role))
            || ["class", "id"].iter().filter_map(|key| attribute(tag, key)).any(names_frame)
    }

    fn finish(mut self) -> Page {
        self.flush();
        let sum = |least: Area| -> usize {
            let of_area = self.page.blocks.iter().zip(&self.areas).filter(|(_, area)| **area >= least);
            of_area.map(|(block, _)| block.range.len()).sum()
        };
        let least = if sum(Area::Main) > 0 {
            Area::Main
        } else if sum(Area::Article) * 2 > sum(Area::Page) {
            Area::Article
        } else {
            Area::Page
        };
        let mut areas = self.areas.iter();
        self.page.blocks.retain(|_: &Block| areas.next().is_some_and(|area| *area >= least));
        self.page
    }
}

/// Follows an element that a tag may open, or close if it is open.
fn follow(element: &mut Option<Open>, tag: &Tag, opens: bool) {
    if let Some(open) = element {
        if open.closed_by(tag) {
            *element = None;
        }
    } else if opens {
        *element = Some(Open { name: tag.name.clone(), inside: 0 });
    }
}

fn is_main(tag: &Tag) -> bool {
    &*tag.name == "main" || attribute(tag, "role") == Some("main")
}

/// Where the line begins that `at` stands in, but not before `least`.
fn line_start(text: &str, least: usize, at: usize) -> usize {
    let before = text.get(least..at).unwrap_or_default();
    least + before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// How the tokenizer goes on after this tag: what stands in these elements is no markup.
fn raw(name: &str, start: bool) -> TokenSinkResult<()> {
    match name {
        "script" if start => TokenSinkResult::RawData(ScriptData),
        "style" | "noscript" | "iframe" | "noembed" | "noframes" | "xmp" if start => TokenSinkResult::RawData(Rawtext),
        "title" | "textarea" if start => TokenSinkResult::RawData(Rcdata),
        _ => TokenSinkResult::Continue,
    }
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
        let Some(at) = words.iter().position(|word| SKIPPED_NAMES.contains(word)) else { return false };
        let (before, after) = words.split_at(at);
        !before.iter().any(|word| matches!(*word, "with" | "has" | "no" | "without" | "show" | "not"))
            && after.iter().skip(1).all(|word| SKIPPED_TAILS.contains(word) || word.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// A page's own part of its title, without the name of the site.
fn own_part(title: &str) -> String {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let ends = [" - ", " | ", " – ", " — ", " · "].iter().filter_map(|between| title.rfind(between));
    match ends.max() {
        Some(end) if end > 0 => title.get(..end).unwrap_or(&title).to_owned(),
        _ => title,
    }
}

struct Sink(RefCell<State>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
        let mut state = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => return state.tag(&tag, u32::try_from(line).unwrap_or(u32::MAX)),
            Token::CharacterTokens(text) => {
                // The tokenizer says in which line the text ends.
                let newlines = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
                let line = u32::try_from(line.saturating_sub(newlines)).unwrap_or(u32::MAX);
                state.text(&text, line);
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(source: &str) -> Vec<(u32, String)> {
        let page = page(source);
        page.blocks.iter().map(|block| (page.line(block.range.start), page.words(block).to_owned())).collect()
    }

    #[test]
    fn a_block_has_the_line_that_its_text_starts_in() {
        let source = "<html>\n<body>\n<p>One\nand   two</p>\n\n<p\n class=x>Three <b>bold</b>\n\n\nfour</p><ul><li>Five &amp;\nsix</ul>";
        assert_eq!(
            blocks(source),
            [(3, "One\nand two".to_owned()), (7, "Three bold\nfour".to_owned()), (10, "Five &\nsix".to_owned())]
        );
        let page = page(source);
        let four = page.text.find("four").unwrap();
        assert_eq!(page.line(four), 10);
    }

    #[test]
    fn only_the_main_text_is_read() {
        let source = "<title>A page - The site</title><style>p{}</style><script>let p = '<p>no</p>';</script>
            <body class='sidebar-visible'><header>Site head</header><nav><ul><li>Home</ul></nav>
            <div class='page-with-sidebar'><div id=sidebar><p>Chapters</p></div><main><header><h1>Real</h1></header>
            <p>Text with <code>Rc&lt;T&gt;</code> in it.</p><p><a href=x>Next chapter</a></p>
            <div class='toc'><p>On this page</p></div><p hidden>unseen</p><pre>fn main() {\n    code();\n}</pre></main></div>
            <footer>Imprint</footer>";
        let page = page(source);
        let texts: Vec<&str> = page.blocks.iter().map(|block| page.words(block)).collect();
        assert_eq!(texts, ["Text with `Rc<T>` in it.", "fn main() {\n    code();\n}"]);
        assert_eq!((page.title.as_str(), page.headings.last().unwrap().as_str()), ("A page", "Real"));
    }

    #[test]
    fn a_page_with_unclosed_and_crossed_elements_is_read_all_the_same() {
        let texts: Vec<String> = blocks("<div><p>a<p>b <code>c<p>d</div></nav></main><nav>x<nav>y</nav>z</nav><p>e")
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(texts, ["a", "b `c", "d", "e"]);
    }
}
