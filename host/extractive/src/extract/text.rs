//! Reads Markdown, plain text and source code: blocks of the file, unchanged.

use std::mem;

use guild_session::document::Format;

use super::Page;

/// The longest line of code that is read, in bytes. A program wrote a longer one for programs: minified code, or an index.
const MAX_LINE_BYTES: usize = 10_000;

/// Reads a page: blank lines part its blocks, except in a listing between fences. A heading is a line of Markdown with `#`,
/// or a line above a line of `===`, `---` or `~~~`. Source code is a listing without headings.
pub(super) fn page(format: Format, text: &str) -> Page {
    let mut page = Page::new();
    let (is_code, is_markdown) = (format == Format::Code, format == Format::Markdown);
    let (mut block, mut first) = (String::new(), 1);
    let mut fence: Option<&str> = None;
    let mut is_hidden = false;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let content = line.trim();
        let opens = ["```", "~~~"].into_iter().find(|fence| is_markdown && content.starts_with(fence));
        let heading = content.trim_start_matches('#');
        if fence.is_some_and(|fence| opens == Some(fence)) {
            fence = None;
            block.push_str(line);
        } else if fence.is_some() {
            block.push_str(line);
        } else if is_markdown && (is_hidden || content.starts_with("<!--")) {
            is_hidden = !content.contains("-->");
        } else if is_markdown && heading.len() < content.len() && heading.starts_with([' ', '\t']) {
            page.block(&mem::take(&mut block), first, false);
            page.heading(heading.trim_end_matches('#'));
        } else if !is_code && underlines(content) && first + 1 == number && !block.is_empty() {
            page.heading(&mem::take(&mut block));
        } else if content.is_empty() || is_code && line.len() > MAX_LINE_BYTES {
            page.block(&mem::take(&mut block), first, is_code);
        } else {
            if block.is_empty() {
                first = number;
            }
            fence = opens;
            block.push_str(line);
        }
    }
    page.block(&block, first, is_code);
    page
}

/// Whether a line makes the line above it a heading.
fn underlines(line: &str) -> bool {
    line.len() >= 3 && ["=", "-", "~"].iter().any(|mark| line.trim_matches(|c: char| mark.contains(c)).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passages(format: Format, text: &str) -> Vec<(u32, String, String, bool)> {
        let page = page(format, text);
        let passage = |passage: &super::super::Passage| {
            (passage.line, page.headings[passage.heading as usize].clone(), passage.text.clone(), passage.code)
        };
        page.passages.iter().map(passage).collect()
    }

    #[test]
    fn a_line_that_a_program_wrote_for_programs_is_no_part_of_a_passage() {
        let text = format!("let a = 1;\n{}\nlet b = 2;\n", "x ".repeat(MAX_LINE_BYTES / 2 + 1));
        let found = passages(Format::Code, &text);
        assert_eq!(found, [(1, String::new(), "let a = 1;\n\nlet b = 2;".to_owned(), true)]);
        let longest = "x ".repeat(MAX_LINE_BYTES / 2 - 1) + "\n";
        assert!(passages(Format::Code, &longest).len() > 1);
    }

    #[test]
    fn passages_are_the_source_under_its_headings() {
        let source = "---\ntitle: x\n---\n# The `top` #\n\nFirst *para*\nof two lines.\n\n<!-- hidden\n-->\n- one\n- two\n\n\
            Sub\n===\n```rust\n# fn a() {}\n\n}\n```\n~~~\nopen";
        let seen = passages(Format::Markdown, source);
        let seen: Vec<_> = seen.iter().map(|(line, heading, text, code)| (*line, &**heading, &**text, *code)).collect();
        assert_eq!(
            seen,
            [
                (1, "", "---\ntitle: x\n---", false),
                (6, "The `top`", "First *para*\nof two lines.\n\n- one\n- two", false),
                (16, "Sub", "```rust\n# fn a() {}\n\n}\n```\n~~~\nopen", false),
            ]
        );
    }

    #[test]
    fn plain_text_and_code_have_no_markup() {
        assert_eq!(
            passages(Format::Text, "Title\n-----\n\n# one\n```\ntwo"),
            [(4, "Title".to_owned(), "# one\n```\ntwo".to_owned(), false)]
        );
        assert_eq!(
            passages(Format::Code, "\n# a\n---\n\n    b"),
            [(2, String::new(), "# a\n---\n\n    b".to_owned(), true)]
        );
    }
}
