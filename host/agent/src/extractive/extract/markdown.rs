//! Markdown: blocks of its source, as it stands in the file, but for comments and the targets of links.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::{
    format::Format,
    text::{one_line, trimmed},
};

use super::{Form, Page, newlines};

/// A table of more bytes is taken row by row.
const TABLE_BYTES: usize = 1200;

/// Reads a page.
pub(super) fn page(text: String) -> Page {
    let mut page = Page::new(Format::Markdown, String::new());
    let options = Options::ENABLE_TABLES | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_FOOTNOTES;
    // Depth counts open blocks other than lists: a block is what stands in none of them.
    let (mut depth, mut lists) = (0_u32, 0_u32);
    let mut heading: Option<String> = None;
    let mut hidden = Hidden::default();
    for (event, range) in Parser::new_ext(&text, options).into_offset_iter() {
        hidden.note(&text, &event, &range);
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => page.heading(heading.take().unwrap_or_default().trim().to_owned()),
            Event::Text(part) if heading.is_some() => heading.get_or_insert_default().push_str(&part),
            Event::Code(part) if heading.is_some() => heading.get_or_insert_default().push_str(&format!("`{part}`")),
            Event::SoftBreak if heading.is_some() => heading.get_or_insert_default().push(' '),
            Event::Start(Tag::List(_)) if depth == 0 => lists += 1,
            Event::End(TagEnd::List(_)) if depth == 0 => lists = lists.saturating_sub(1),
            Event::Start(Tag::HtmlBlock) if heading_of(&text, &range).is_some() => {
                page.heading(heading_of(&text, &range).unwrap_or_default());
                depth += 1;
            }
            Event::Start(Tag::Table(_)) if depth == 0 && range.len() > TABLE_BYTES => {
                rows(&mut page, &text, range);
                depth += 1;
            }
            Event::Start(tag) => {
                let block = match tag {
                    Tag::Paragraph | Tag::BlockQuote(_) | Tag::Table(_) | Tag::FootnoteDefinition(_) => {
                        Some(Form::Prose)
                    }
                    Tag::Item if lists > 0 => Some(Form::Item),
                    Tag::CodeBlock(_) => Some(Form::Code),
                    // What an author hides from readers (metadata, comments), and markup that only frames text.
                    Tag::MetadataBlock(_) | Tag::HtmlBlock => None,
                    // Inline markup: always inside one of the above.
                    _ => continue,
                };
                if depth == 0
                    && let Some(form) = block
                {
                    let range = trimmed(&text, range);
                    if text.get(range.clone()).is_some_and(|text| text.contains(char::is_alphanumeric)) {
                        page.block(range, form);
                    }
                }
                depth += 1;
            }
            Event::End(
                TagEnd::Paragraph
                | TagEnd::BlockQuote(_)
                | TagEnd::Table
                | TagEnd::FootnoteDefinition
                | TagEnd::Item
                | TagEnd::CodeBlock
                | TagEnd::MetadataBlock(_)
                | TagEnd::HtmlBlock,
            ) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    page.text = text;
    hidden.cut(&mut page);
    page
}

/// What a reader of the page does not see, outside of listings: comments, and of links all but their text.
#[derive(Default)]
struct Hidden {
    ranges: Vec<Range<usize>>,
    /// The link that is open, and where its text ends as far as it was read.
    link: Option<(Range<usize>, usize)>,
}

impl Hidden {
    fn note(&mut self, text: &str, event: &Event<'_>, range: &Range<usize>) {
        let written = text.get(range.clone()).unwrap_or_default();
        match event {
            Event::Start(Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. }) => {}
            Event::Start(Tag::Link { .. }) => self.link = Some((range.clone(), range.start + 1)),
            Event::End(TagEnd::Link) => {
                if let Some((link, end)) = self.link.take() {
                    self.ranges.extend([link.start..link.start + 1, end..link.end]);
                }
            }
            Event::InlineHtml(_) | Event::Start(Tag::HtmlBlock) if written.starts_with("<!--") => {
                self.ranges.push(range.start..range.start + written.find("-->").map_or(written.len(), |end| end + 3));
            }
            _ => {
                if let Some((_, end)) = &mut self.link {
                    *end = range.end.max(*end);
                }
            }
        }
    }

    /// Takes it out of the page; lines stay right.
    fn cut(mut self, page: &mut Page) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        // The end of each cut in the source, and how many bytes are gone up to there.
        let mut gone: Vec<(usize, usize)> = Vec::new();
        let (mut kept, mut end, mut line) = (String::with_capacity(page.text.len()), 0, 1);
        for range in self.ranges {
            let before = page.text.get(end..range.start).unwrap_or_default();
            let cut = page.text.get(range.clone()).unwrap_or_default();
            kept.push_str(before);
            line += newlines(before) + newlines(cut);
            end = range.end;
            gone.push((end, end - kept.len()));
            if cut.contains('\n') {
                page.lines.push((kept.len() as u32, line));
            }
        }
        kept.push_str(page.text.get(end..).unwrap_or_default());
        let moved = |at: usize| {
            let last = gone.partition_point(|(end, _)| *end <= at).checked_sub(1);
            at - last.and_then(|last| gone.get(last)).map_or(0, |(_, bytes)| *bytes)
        };
        for block in &mut page.blocks {
            block.range = trimmed(&kept, moved(block.range.start)..moved(block.range.end));
            block.head = moved(block.head.start)..moved(block.head.end);
        }
        page.text = kept;
    }
}

/// The heading that a piece of HTML in Markdown is: `<h3 id="x">Its text</h3>`.
fn heading_of(text: &str, range: &Range<usize>) -> Option<String> {
    let html = text.get(range.clone())?.trim_start();
    let level = html.strip_prefix("<h").or_else(|| html.strip_prefix("<H"))?;
    if !level.starts_with(['1', '2', '3', '4', '5', '6']) {
        return None;
    }
    let mut tag = false;
    let plain = html.chars().filter(|c| {
        let inside = tag || *c == '<';
        tag = inside && *c != '>';
        !inside
    });
    let plain = one_line(&plain.collect::<String>());
    (!plain.is_empty()).then_some(plain)
}

/// Each row of a long table, with the table's head.
fn rows(page: &mut Page, text: &str, table: Range<usize>) {
    let mut at = table.start;
    let mut head = table.start..table.start;
    for (number, line) in text.get(table).unwrap_or_default().split_inclusive('\n').enumerate() {
        let row = trimmed(text, at..at + line.len());
        if number < 2 {
            head.end = row.end;
        } else if line.contains(char::is_alphanumeric) {
            page.block(row, Form::Prose);
            page.blocks.last_mut().into_iter().for_each(|block| block.head = head.clone());
        }
        at += line.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_source_under_its_headings() {
        let source = "---\ntitle: x\n---\n# The `top`\n\nFirst *para*\nof two lines.\n\n<!-- hidden -->\n\n\
            - one\n- two\n  - nested\n\n## Sub\n\n```rust\nfn a() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
        let page = page(source.to_owned());
        let seen: Vec<(u32, &str, &str, bool)> = page
            .blocks
            .iter()
            .map(|block| {
                let text = page.words(block);
                (page.line(block.range.start), page.headings[block.heading].as_str(), text, block.form == Form::Code)
            })
            .collect();
        assert_eq!(
            seen,
            [
                (6, "The `top`", "First *para*\nof two lines.", false),
                (11, "The `top`", "- one", false),
                (12, "The `top`", "- two\n  - nested", false),
                (17, "Sub", "```rust\nfn a() {}\n```", true),
                (21, "Sub", "| a | b |\n|---|---|\n| 1 | 2 |", false),
            ]
        );
    }

    #[test]
    fn links_are_their_text_and_comments_are_gone_but_not_in_listings() {
        let source = "See [Chapter *2*][two]<!--\nignore --> and [b](c.md \"d\"), not <https://e.f> or a[0].\n\n\
            <!-- hidden -->\n- [one](x) `[y](z)`\n\n  <!-- hidden -->\n\n```html\n<!-- kept --> [a](b)\n```\n\n[two]: two.md\n";
        let page = page(source.to_owned());
        let seen: Vec<(u32, &str)> =
            page.blocks.iter().map(|block| (page.line(block.range.start), page.words(block))).collect();
        assert_eq!(
            seen,
            [
                (1, "See Chapter *2* and b, not <https://e.f> or a[0]."),
                (5, "- one `[y](z)`"),
                (9, "```html\n<!-- kept --> [a](b)\n```"),
            ]
        );
        assert_eq!(page.line(page.text.find("and b").unwrap()), 2);
    }

    #[test]
    fn a_long_table_is_taken_row_by_row_and_a_heading_may_be_html() {
        let rows: String = (0..100).map(|n| format!("| name{n} | value{n} |\n")).collect();
        let page = page(format!("<h3 name=\"x\">\nWhy a <code>b</code>?\n</h3>\n\n| n | v |\n|---|---|\n{rows}"));
        assert_eq!(page.blocks.len(), 100);
        let block = &page.blocks[7];
        assert_eq!(page.headings[block.heading], "Why a b?");
        assert_eq!(
            (page.words(block), page.text.get(block.head.clone())),
            ("| name7 | value7 |", Some("| n | v |\n|---|---|"))
        );
    }
}
