//! From a file's bytes to its text: blocks (paragraphs, list items, listings) with their heading and their place.

mod html;
mod markdown;
mod plain;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{format::Format, text::cut};

/// Characters of a heading or a title that are kept: it stands before each passage below it.
const MAX_HEADING_CHARS: usize = 300;
/// Blocks of a page that are kept, each with its place: people write some thousands.
const MAX_BLOCKS: usize = 200_000;

/// Stands in a text, as a paragraph of its own, where something of the page was left out.
pub(crate) const OMITTED: &str = "[…]";

/// The text of a file, in blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) format: Format,
    /// What the page is called; empty where it has no name of its own.
    pub(crate) title: String,
    /// The text that blocks are ranges of.
    pub(crate) text: String,
    /// The headings; a block names the one that it stands under. The first is empty: what stands under none.
    pub(crate) headings: Vec<String>,
    /// In the order of the text.
    pub(crate) blocks: Vec<Block>,
    /// Offsets in the text whose line in the file is known; between them, lines are counted. Sorted.
    lines: Vec<(u32, u32)>,
}

/// A paragraph, a list item, a table row, a listing: what stands together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Block {
    /// Where it is in the page's text.
    pub(crate) range: Range<usize>,
    /// Index of its heading.
    pub(crate) heading: usize,
    /// What it is.
    pub(crate) form: Form,
    /// Of a row of a long table, where the table's head is; else empty.
    pub(crate) head: Range<usize>,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A paragraph, a table, a quotation.
    Prose,
    /// An item of a list.
    Item,
    /// A listing, in which lines count.
    Code,
}

impl Page {
    fn new(format: Format, text: String) -> Self {
        let headings = vec![String::new()];
        Self { format, title: String::new(), text, headings, blocks: Vec::new(), lines: vec![(0, 1)] }
    }

    fn heading(&mut self, mut text: String) {
        text.truncate(cut(&text, MAX_HEADING_CHARS).0.len());
        if self.title.is_empty() {
            self.title.clone_from(&text);
        }
        self.headings.push(text);
    }

    fn block(&mut self, range: Range<usize>, form: Form) {
        self.blocks.push(Block { range, heading: self.headings.len() - 1, form, head: 0..0 });
    }

    /// A part of the text; empty if the text has no such part.
    pub(crate) fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// A block's text.
    pub(crate) fn words(&self, block: &Block) -> &str {
        self.slice(block.range.clone())
    }

    /// Keeps only some of the blocks, and only their text.
    pub(crate) fn keep(&mut self, keeps: impl Fn(&Self, &Block) -> bool) {
        let mut kept = Self { lines: Vec::new(), ..Self::new(self.format, String::new()) };
        let mut end = 0;
        for block in self.blocks.iter().filter(|block| keeps(self, block)) {
            if !self.slice(end..block.range.start).trim().is_empty() {
                kept.omit();
            }
            end = block.range.end;
            let start = kept.text.len();
            kept.lines.push((start as u32, self.line(block.range.start)));
            let within = |at: usize| self.lines.partition_point(|(known, _)| (*known as usize) < at);
            let inside = self.lines.get(within(block.range.start)..within(block.range.end)).unwrap_or_default();
            let moved = |(at, line): &(u32, u32)| ((*at as usize - block.range.start + start) as u32, *line);
            kept.lines.extend(inside.iter().map(moved));
            kept.text.push_str(self.words(block));
            kept.blocks.push(Block { range: start..kept.text.len(), head: 0..0, ..block.clone() });
            kept.text.push_str("\n\n");
        }
        kept.text.shrink_to_fit();
        (self.text, self.blocks, self.lines) = (kept.text, kept.blocks, kept.lines);
    }

    /// Marks that something of the page was left out here.
    fn omit(&mut self) {
        if !self.text.is_empty() && !self.text.trim_end().ends_with(OMITTED) {
            self.text.push_str(OMITTED);
            self.text.push_str("\n\n");
        }
    }

    /// The line of the file, from 1, in which the text at this offset stands.
    pub(crate) fn line(&self, offset: usize) -> u32 {
        let known = self.lines.partition_point(|(at, _)| *at as usize <= offset);
        let (at, line) = known.checked_sub(1).and_then(|last| self.lines.get(last)).copied().unwrap_or((0, 1));
        line + newlines(self.slice(at as usize..offset))
    }

    /// The page's size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let headings: usize = self.headings.iter().map(|heading| heading.len() + size_of::<String>()).sum();
        self.text.len() + headings + self.blocks.len() * size_of::<Block>() + self.lines.len() * size_of::<(u32, u32)>()
    }
}

/// Reads a file's text.
pub(crate) fn page(format: Format, path: &str, text: String) -> Page {
    let mut page = match format {
        Format::Html => html::page(&text),
        Format::Markdown => markdown::page(text),
        Format::Text => plain::text(text),
        Format::Code => plain::code(text),
    };
    if page.title.is_empty() || format == Format::Code {
        page.title = path.rsplit('/').next().unwrap_or(path).to_owned();
    }
    page.title.truncate(cut(&page.title, MAX_HEADING_CHARS).0.len());
    if page.blocks.len() > MAX_BLOCKS {
        page.blocks.truncate(MAX_BLOCKS);
        let last = page.blocks.last().map_or((0, 0), |block| (block.range.end, block.heading));
        page.headings.truncate(last.1 + 1);
        page.text.truncate(last.0);
        page.lines.retain(|(at, _)| (*at as usize) < last.0);
    }
    page.text.shrink_to_fit();
    page
}

/// The number of line breaks in a text.
fn newlines(text: &str) -> u32 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u32
}
