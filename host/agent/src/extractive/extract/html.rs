//! HTML: the main text of a page, with the line of the file that each piece of it stands in.
//!
//! The tokens are html5ever's; no tree is built, since a page's text needs only to know which elements it stands in.
//! Left out are scripts and styles, what a page marks as navigation or as hidden, what class and id name so, blocks
//! that are little but links, and, where a page has a `main` or an `article`, whatever stands outside of it. What
//! several pages repeat is found later, over all pages.

mod cells;
mod frame;

use std::{cell::RefCell, mem};

use html5ever::{
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
        states::{Rawtext, Rcdata, ScriptData},
    },
};

use crate::{
    format::Format,
    text::{one_line, trimmed},
};

use super::{Block, Form, Page, newlines};
use crate::extractive::terms::among;
use cells::Cells;
use frame::{Open, is_main, skipped};

/// Elements that end the block before them, and whose end ends theirs.
const BLOCKS: &str = "address article blockquote body br caption dd details div dl dt fieldset figcaption figure h1 h2 h3 h4 h5 h6 \
    head header hr html li main ol p pre section summary table tbody tfoot thead title tr ul";

/// Exponents and indices that stand in each other, at most; those inside of more have no mark.
const MAX_SCRIPTS: usize = 8;

/// Reads a page.
pub(super) fn page(source: &str) -> Page {
    let sink = Sink(RefCell::new(State::new(source.len())));
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(source));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
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
    /// For each block, where it stands.
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
    row: bool,
    /// The cells of the current table.
    cells: Cells,
    /// Whether another cell of the row comes next.
    next_cell: bool,
    /// Whether a term stands in the current block, before what it means.
    term: bool,
    /// Where the exponents and indices that are open begin in the page's text.
    scripts: Vec<usize>,
    /// Where the current inline code begins in the page's text.
    code: Option<usize>,
    heading: bool,
    title: Option<String>,
    /// The line that the text's end stands in, if counting line breaks from the last known line gives it.
    counted: u32,
}

impl State {
    /// A page of so many bytes.
    fn new(bytes: usize) -> Self {
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
            row: false,
            cells: Cells::new(bytes),
            next_cell: false,
            term: false,
            scripts: Vec::new(),
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
        if let Some(skipped) = &self.skipped {
            let between = self.page.text.len() == self.start;
            if skipped.seen && between && text.contains(char::is_alphanumeric) {
                self.omit();
            }
            return;
        }
        self.cells.text(text);
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
        if mem::take(&mut self.next_cell) && self.page.text.len() > self.start {
            self.trim();
            self.page.text.push_str(" | ");
        }
        if self.counted != line {
            self.page.lines.push((self.page.text.len() as u32, line));
            self.counted = line;
        }
        self.page.text.push(c);
        self.counted += u32::from(c == '\n');
    }

    /// Removes the white space at the end of the current block.
    fn trim(&mut self) {
        let end = self.page.text.trim_end().len().max(self.start);
        self.counted = self.counted.saturating_sub(newlines(self.page.slice(end..self.page.text.len())));
        self.page.text.truncate(end);
    }

    /// Marks that between two blocks something was left out that a reader of the page sees.
    fn omit(&mut self) {
        self.page.omit();
        self.start = self.page.text.len();
    }

    /// Ends the current block.
    fn flush(&mut self) {
        self.code = None;
        (self.term, self.next_cell) = (false, false);
        self.scripts.clear();
        let block = trimmed(&self.page.text, self.start..self.page.text.len());
        // In a listing the indentation of the first line is part of it.
        let start = if self.pre > 0 { line_start(&self.page.text, self.start, block.start) } else { block.start };
        let words = self.page.text.get(block.clone()).unwrap_or_default();
        if self.heading {
            let text = words.replace('\n', " ");
            self.page.text.truncate(self.start);
            if !text.is_empty() {
                self.page.heading(text);
            }
        } else if words.is_empty() || !(self.row || self.item || words.contains(char::is_alphanumeric)) {
            self.page.text.truncate(self.start);
        } else if self.pre > 0 || self.row || self.linked * 10 < words.len() * 7 {
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
            self.page.omit();
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
        if matches!(name, "td" | "th" | "tr" | "table") {
            self.cell_ends(name, start, line);
        }
        match name {
            // A term and what it means are one block.
            "dt" if !start => {}
            "dd" if start && self.term => self.define(line),
            _ if among(BLOCKS, name) => self.flush(),
            _ => {}
        }
        match (name, start) {
            ("title", true) => self.title = self.page.title.is_empty().then(String::new),
            ("title", false) => {
                if let Some(title) = self.title.take() {
                    self.page.title = own_part(&title);
                }
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", _) => self.heading = start,
            ("dt", false) => {}
            ("li" | "dd" | "dt" | "ul" | "ol" | "dl", _) => {
                self.item = start;
                self.term = name == "dt";
            }
            ("tr", _) => self.row = start,
            ("td" | "th", true) => self.cell(tag, line),
            ("sup", true) => self.script('^', line),
            ("sub", true) => self.script('_', line),
            ("sup" | "sub", false) => self.end_script(),
            ("a", _) => self.link = start,
            ("pre", true) => self.pre += 1,
            ("pre", false) => self.pre = self.pre.saturating_sub(1),
            ("code" | "tt" | "kbd" | "samp", true) if self.pre == 0 && self.code.is_none() => {
                self.push('`', line);
                // Behind the boundary of a cell, which comes with the first character in it.
                self.code = Some(self.page.text.len() - 1);
            }
            ("code" | "tt" | "kbd" | "samp", false) => self.end_code(),
            _ => {}
        }
        self.skipped = skipped(tag, self.main.is_some() || self.article.is_some());
        if self.skipped.is_some() {
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
            self.page.text.remove(start);
            self.moved(start, -1);
        } else {
            self.page.text.push('`');
        }
    }

    /// What a term means begins.
    fn define(&mut self, line: u32) {
        self.trim();
        if self.page.text.len() > self.start {
            if !self.page.text.ends_with(':') {
                self.push(':', line);
            }
            self.blank(false);
        }
    }

    /// A cell, a row or a table begins or ends: so does the cell before it.
    fn cell_ends(&mut self, name: &str, start: bool, line: u32) {
        self.cells.end();
        // A table in a cell is no end of the row around it.
        if matches!((name, start), ("tr", _) | ("table", false)) {
            while let Some(text) = self.cells.above_behind() {
                self.repeat(&text, line);
            }
        }
        match (name, start) {
            ("table", _) => self.cells.clear(),
            ("tr", true) => self.cells.row(),
            _ => {}
        }
    }

    fn cell(&mut self, tag: &Tag, line: u32) {
        while let Some(text) = self.cells.above() {
            self.repeat(&text, line);
        }
        self.next_cell = true;
        self.cells.begin(tag);
    }

    /// The text of a cell that reaches down from a row above.
    fn repeat(&mut self, text: &str, line: u32) {
        self.next_cell = true;
        text.chars().for_each(|c| self.push(c, line));
    }

    /// An exponent or index begins: a mark stands before it, which else would run together with what is before.
    fn script(&mut self, mark: char, line: u32) {
        if self.pre == 0 && self.scripts.len() < MAX_SCRIPTS {
            self.push(mark, line);
            self.scripts.push(self.page.text.len() - mark.len_utf8());
        }
    }

    /// It ends. One that is no word or number by itself, as `n + 1`, stands in brackets; one that begins with a sign,
    /// as `[1]`, needs no mark.
    fn end_script(&mut self) {
        let Some(start) = self.scripts.pop() else { return };
        let inner = self.page.text.get(start + 1..).unwrap_or_default().trim();
        let unsigned = inner.trim_start_matches(['+', '-', '−']);
        if !unsigned.starts_with(char::is_alphanumeric) {
            self.page.text.remove(start);
            self.moved(start, -1);
        } else if !unsigned.chars().all(char::is_alphanumeric) {
            self.page.text.insert(start + 1, '(');
            self.moved(start, 1);
            self.page.text.push(')');
        }
    }

    /// Moves what was noted for the text behind a place.
    fn moved(&mut self, start: usize, by: i8) {
        for (at, _) in self.page.lines.iter_mut().rev().take_while(|(at, _)| *at as usize > start) {
            *at = at.saturating_add_signed(by.into());
        }
        for at in self.scripts.iter_mut().chain(&mut self.code).filter(|at| **at > start) {
            *at = at.saturating_add_signed(by.into());
        }
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
        *element = Some(Open::new(tag, true));
    }
}

/// Where the line begins that `at` stands in, but not before `least`.
fn line_start(text: &str, least: usize, at: usize) -> usize {
    let before = text.get(least..at).unwrap_or_default();
    least + before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// The tokenizer's state after this tag: the content of these elements is no markup.
fn raw(name: &str, start: bool) -> TokenSinkResult<()> {
    match name {
        "script" if start => TokenSinkResult::RawData(ScriptData),
        "style" | "noscript" | "iframe" | "noembed" | "noframes" | "xmp" if start => TokenSinkResult::RawData(Rawtext),
        "title" | "textarea" if start => TokenSinkResult::RawData(Rcdata),
        _ => TokenSinkResult::Continue,
    }
}

/// A page's own part of its title, without the name of the site.
fn own_part(title: &str) -> String {
    let title = one_line(title);
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
                let line = line.saturating_sub(newlines(&text).into());
                state.text(&text, u32::try_from(line).unwrap_or(u32::MAX));
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
    fn what_stands_side_by_side_keeps_its_boundary() {
        for (source, expected) in [
            ("<p>x<sup>2</sup> and H<sub>2</sub>O", &["x^2 and H_2O"][..]),
            (
                "<p>2<sup>n+1</sup>, a<sub>i<sup>2</sup></sub>, said<sup><a>[1]</a></sup>",
                &["2^(n+1), a_(i^2), said[1]"],
            ),
            (
                "<dl><dt>Roster</dt>\n<dd>The members.<dt>Key:<dd><p>Its name.</p><p>A number.</dl>",
                &["Roster: The members.", "Key:", "Its name.", "A number."],
            ),
            ("<dl><dt>Alone<dt>Two<dd>b</dl><p>end", &["Alone", "Two: b", "end"]),
            ("<table><tr><td>a</td>\n<td>b</td></tr><tr><td></td><td>c</table>", &["a | b", "c"]),
            ("<p><code>é<sup>[`é</code>é</sup> <sup>x<code>é`</sup>é</code>", &["é[`éé ^(xé`)é"]),
            (
                "<table><tr><th>System<th>Chip<tr><td rowspan=2><b>Linux</b> 6<td>x86<tr><td>arm<tr><td>BSD<td>vax</table>",
                &["System | Chip", "Linux 6 | x86", "Linux 6 | arm", "BSD | vax"],
            ),
            (
                "<table><tr><td>a<td colspan=2>b<td rowspan=0>c<tr><td>d<td>e<td>f<tr><td>g</table>",
                &["a | b | c", "d | e | f | c", "g | c"],
            ),
            ("<table><tr><td>a<td><p>b</p><p>c</p><td>d</table>", &["a", "b", "c", "d"]),
            (
                "<table><tr><td><code>a</code></td>\n<td><code>b</code></td><td>c <td><sup>2</sup></table>",
                &["`a` | `b` | c | ^2"],
            ),
        ] {
            let texts: Vec<String> = blocks(source).into_iter().map(|(_, text)| text).collect();
            assert_eq!(texts, expected, "{source}");
        }
    }

    #[test]
    fn a_cell_that_reaches_down_adds_no_more_than_the_page_has() {
        let reaching = format!("<td rowspan=65534>{}", "x".repeat(99));
        let source = format!("<table><tr>{}{}", reaching.repeat(50), "<tr><td>y".repeat(20_000));
        let page = page(&source);
        assert!(page.text.len() <= 3 * source.len(), "{} of {}", page.text.len(), source.len());
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
