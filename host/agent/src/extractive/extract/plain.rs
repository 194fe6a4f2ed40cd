//! Plain text and source code: blocks of the file as it is.

use crate::{
    format::Format,
    text::{cut, trimmed},
};

use super::{Form, Page};

/// Lines longer than this, on average, are not written by people.
const MAX_AVERAGE_LINE: usize = 400;
/// A chunk of code takes further items in until it has this many bytes.
const CODE_BYTES: usize = 700;

/// Reads plain text: paragraphs are what blank lines part. A line over a line of `===` or `---` is a heading.
pub(super) fn text(text: String) -> Page {
    let mut page = Page::new(Format::Text, String::new());
    let mut paragraph: Option<usize> = None;
    let mut at = 0;
    let mut last = (0, "");
    for line in text.split_inclusive('\n') {
        let content = line.trim();
        let underlines = content.len() >= 3
            && ["=", "-", "~"].iter().any(|c| content.trim_matches(|x: char| c.contains(x)).is_empty());
        if underlines && paragraph == Some(last.0) && !last.1.is_empty() {
            page.heading(last.1.to_owned());
            paragraph = None;
        } else if content.is_empty() {
            if let Some(start) = paragraph.take() {
                page.block(trimmed(&text, start..at), Form::Prose);
            }
        } else {
            paragraph.get_or_insert(at);
        }
        last = (at, content);
        at += line.len();
    }
    if let Some(start) = paragraph {
        page.block(trimmed(&text, start..at), Form::Prose);
    }
    page.blocks.retain(|block| text.get(block.range.clone()).is_some_and(|text| text.contains(char::is_alphanumeric)));
    page.text = text;
    page
}

/// Reads source code: a chunk begins where, after a blank line, a line is not indented, and small ones are joined.
/// Its heading is the first line in it that is code. What was generated or minified has no chunks.
pub(super) fn code(text: String) -> Page {
    let mut page = Page::new(Format::Code, String::new());
    let lines = text.split_inclusive('\n').count().max(1);
    if text.len() / lines > MAX_AVERAGE_LINE {
        return page;
    }
    let mut start = 0;
    let mut at = 0;
    let mut blank = false;
    let mut chunks = Vec::new();
    for line in text.split_inclusive('\n') {
        let top = !line.starts_with([' ', '\t', '}', ')', ']']) && !line.trim().is_empty();
        if blank && top && at - start >= CODE_BYTES {
            chunks.push(start..at);
            start = at;
        }
        blank = line.trim().is_empty();
        at += line.len();
    }
    chunks.push(start..at);
    for chunk in chunks {
        let part = text.get(chunk.clone()).unwrap_or_default();
        if !part.contains(char::is_alphanumeric) {
            continue;
        }
        let named = part.lines().map(str::trim).find(|line| {
            line.contains(char::is_alphanumeric)
                && !["/", "#", "*", "<!", "--", ";", "\"\"\""].iter().any(|c| line.starts_with(c))
        });
        page.headings.push(cut(named.unwrap_or_default().trim_end_matches(['{', ' ']), 120).0.to_owned());
        // The whole lines, without the blank ones at the ends.
        let end = chunk.start + part.trim_end().len();
        let first = part.len() - part.trim_start_matches(['\n', '\r']).len();
        page.block(chunk.start + first..end, Form::Code);
    }
    page.text = text;
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_parted_between_items_and_never_inside_one() {
        let item = |n: u32| {
            format!("/// Item.\nfn item{n}() {{\n{}\n\n    last();\n}}\n\n", "    call_something();\n".repeat(40))
        };
        let page = code((1..=3).map(item).collect());
        let starts: Vec<(u32, &str)> = page
            .blocks
            .iter()
            .map(|block| (page.line(block.range.start), page.headings[block.heading].as_str()))
            .collect();
        assert_eq!(starts, [(1, "fn item1()"), (48, "fn item2()"), (95, "fn item3()")]);
    }

    #[test]
    fn minified_code_is_left_out() {
        assert!(code("var a=1;".repeat(1000)).blocks.is_empty());
    }

    #[test]
    fn paragraphs_of_text_stand_under_underlined_headings() {
        let page = text("Title\n=====\n\nFirst\nparagraph.\n\n\nSecond.".to_owned());
        let seen: Vec<(u32, &str)> =
            page.blocks.iter().map(|block| (page.line(block.range.start), page.words(block))).collect();
        assert_eq!(seen, [(4, "First\nparagraph."), (8, "Second.")]);
        assert_eq!(page.title, "Title");
    }
}
