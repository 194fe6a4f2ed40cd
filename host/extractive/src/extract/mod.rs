//! Splits a file's text into passages, each with its heading and the line in which it begins.

mod html;
mod text;

use std::ops::Range;

use guild_contract::text::cut;
use guild_session::document::Format;
use serde::{Deserialize, Serialize};

/// Blocks under one heading are joined up to this length, and longer ones are split.
const PASSAGE_BYTES: usize = 700;
/// Characters of a heading or a title that are kept: each passage below it is shown with it.
const MAX_HEADING_CHARS: usize = 300;
/// Passages of a page that are kept.
const MAX_PASSAGES: usize = 100_000;

/// The text of a file, in passages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    /// The page's title; the name of its file where it has none.
    pub(crate) title: String,
    /// The headings; a passage names the one that it stands under. The first is empty.
    pub(crate) headings: Vec<String>,
    /// In the order of the text.
    pub(crate) passages: Vec<Passage>,
}

/// The unit of search and quotation: consecutive blocks under one heading, or a part of a long block.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Passage {
    /// Index of its heading.
    pub(crate) heading: u32,
    /// The line of the file, from 1, in which it begins.
    pub(crate) line: u32,
    /// Whether it is a listing, in which lines count.
    pub(crate) code: bool,
    pub(crate) text: String,
}

impl Page {
    fn new() -> Self {
        Self { headings: vec![String::new()], ..Self::default() }
    }

    /// Begins a section.
    fn heading(&mut self, text: &str) {
        let text = cut(text.trim(), MAX_HEADING_CHARS).0;
        if self.title.is_empty() {
            self.title = text.to_owned();
        }
        self.headings.push(text.to_owned());
    }

    /// Adds a paragraph, a list item, a table row or a listing that begins in this line.
    fn block(&mut self, text: &str, line: u32, code: bool) {
        self.block_as(text, line, code, str::to_owned);
    }

    /// [`Page::block`], with a function that makes the kept text of prose.
    fn block_as(&mut self, text: &str, line: u32, code: bool, tidy: impl Fn(&str) -> String) {
        let heading = self.headings.len().saturating_sub(1) as u32;
        for piece in pieces(text, code) {
            let line = line + newlines(text.get(..piece.start).unwrap_or_default());
            let text = text.get(piece).unwrap_or_default();
            if !text.contains(char::is_alphanumeric) || self.passages.len() >= MAX_PASSAGES {
                continue;
            }
            let text = if code { text.to_owned() } else { tidy(text) };
            match self.passages.last_mut() {
                Some(last)
                    if last.heading == heading
                        && last.code == code
                        && last.text.len() + text.len() <= PASSAGE_BYTES =>
                {
                    last.text.push_str("\n\n");
                    last.text.push_str(&text);
                }
                _ => self.passages.push(Passage { heading, line, code, text }),
            }
        }
    }

    /// The heading that a passage stands under; the page's title where there is none.
    pub(crate) fn heading_of(&self, passage: &Passage) -> &String {
        self.headings.get(passage.heading as usize).filter(|heading| !heading.is_empty()).unwrap_or(&self.title)
    }

    /// The page's approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let headings: usize = self.headings.iter().map(|heading| heading.len() + size_of::<String>()).sum();
        let passages: usize = self.passages.iter().map(|passage| passage.text.len() + size_of::<Passage>()).sum();
        headings + passages
    }
}

/// Reads a file's text.
pub(crate) fn page(format: Format, path: &str, text: &str) -> Page {
    let mut page = match format {
        Format::Html => html::page(text),
        Format::Markdown | Format::Text | Format::Code => text::page(format, text),
    };
    let title = if page.title.is_empty() { path.rsplit('/').next().unwrap_or(path) } else { &page.title };
    page.title = cut(title, MAX_HEADING_CHARS).0.to_owned();
    page
}

/// Splits a block into parts that fit into a passage: between sentences of prose and lines of code, else between lines
/// or words.
fn pieces(text: &str, code: bool) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while text.len() - start > PASSAGE_BYTES {
        let rest = text.get(start..).unwrap_or_default();
        let window = rest.get(..rest.floor_char_boundary(PASSAGE_BYTES)).unwrap_or_default();
        let sentence = sentence_ends(window).last().filter(|_| !code);
        let end = sentence.or_else(|| window.rfind('\n')).or_else(|| window.rfind(char::is_whitespace));
        let end = end.filter(|end| *end > 0).unwrap_or(window.len());
        pieces.push(start..start + end);
        start += end;
    }
    pieces.push(start..text.len());
    pieces.into_iter().map(|piece| trimmed(text, piece, code)).collect()
}

/// A range of a text without the white space at its ends; the indentation of a listing's first line is kept.
fn trimmed(text: &str, range: Range<usize>, code: bool) -> Range<usize> {
    let part = text.get(range.clone()).unwrap_or_default();
    let kept = if code { part.trim_start_matches(['\n', '\r']) } else { part.trim_start() };
    let start = range.start + part.len() - kept.len();
    start..start + kept.trim_end().len()
}

/// Where the sentences of a text end: behind `.`, `?` or `!` that white space follows, behind their Chinese and Japanese
/// forms, and at an empty line.
pub(crate) fn sentence_ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().filter_map(|(at, c)| {
        let end = at + c.len_utf8();
        let rest = text.get(end..).unwrap_or_default();
        let ends = match c {
            '.' | '?' | '!' => {
                let next = rest.trim_start_matches(['"', '\'', '”', '’', '»', ')', '`', '*', '_']);
                next.starts_with(char::is_whitespace) && !next.trim_start().starts_with(char::is_lowercase)
            }
            '。' | '？' | '！' => true,
            '\n' => rest.starts_with('\n'),
            _ => false,
        };
        ends.then_some(end)
    })
}

/// The number of line breaks in a text.
fn newlines(text: &str) -> u32 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;

    #[test]
    fn long_blocks_are_split_and_nothing_is_lost() {
        let sentence = "This sentence is one of very many that stand in a single paragraph.\n";
        for (text, code) in [(sentence.repeat(100), false), ("word ".repeat(2000), false), ("é".repeat(5000), true)] {
            let mut page = Page::new();
            page.block(&text, 1, code);
            assert!(page.passages.len() > 1);
            assert!(page.passages.iter().all(|passage| passage.text.len() <= PASSAGE_BYTES));
            let kept: String = page.passages.iter().flat_map(|passage| passage.text.split_whitespace()).collect();
            assert_eq!(kept, text.split_whitespace().collect::<String>());
            let lines: Vec<&str> = text.lines().collect();
            assert!(page.passages.iter().all(|passage| {
                let first = passage.text.lines().next().unwrap();
                lines.get(passage.line as usize - 1).unwrap().contains(first)
            }));
        }
    }

    #[test]
    fn any_text_is_read_in_time_in_the_order_of_its_length() {
        let started = std::time::Instant::now();
        let filled = |part: &str| part.repeat((1 << 17) / part.len());
        let parts =
            ["a. ", ".", "a.\"", "\n", "# a\n", "```\n", "<!--", "<p>", "<a>x", "<nav>", "a\n---\n", "<td><sup>"];
        let (name, many) = (filled("name "), filled("<p>a<pre>a</pre>"));
        let titled = [
            format!("<title>{name}</title>{many}"),
            format!("<h1>{name}</h1>{many}"),
            format!("{name}\n===\na\n\n# b\n"),
        ];
        let texts: Vec<String> = parts.map(filled).into_iter().chain(titled).collect();
        for format in [Format::Html, Format::Markdown, Format::Text, Format::Code] {
            for text in &texts {
                let page = page(format, "x", text);
                assert!(page.passages.iter().all(|passage| passage.text.len() <= 2 * PASSAGE_BYTES));
                assert!(page.headings.iter().chain([&page.title]).all(|name| name.len() <= MAX_HEADING_CHARS));
                Index::of(&page);
            }
        }
        // Work in the square of the length would take minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "{:?}", started.elapsed());
    }
}
