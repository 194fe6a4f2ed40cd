//! Markdown: blocks of its source, as it stands in the file.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Form, Format, Page, trimmed};

/// Reads a page.
pub(super) fn page(text: String) -> Page {
    let mut page = Page::new(Format::Markdown, String::new());
    let options = Options::ENABLE_TABLES | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS | Options::ENABLE_FOOTNOTES;
    // Depth counts open blocks other than lists: a block is what stands in none of them.
    let (mut depth, mut lists) = (0_u32, 0_u32);
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(&text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => page.heading(heading.take().unwrap_or_default().trim().to_owned()),
            Event::Text(part) if heading.is_some() => heading.get_or_insert_default().push_str(&part),
            Event::Code(part) if heading.is_some() => heading.get_or_insert_default().push_str(&format!("`{part}`")),
            Event::SoftBreak if heading.is_some() => heading.get_or_insert_default().push(' '),
            Event::Start(Tag::List(_)) if depth == 0 => lists += 1,
            Event::End(TagEnd::List(_)) if depth == 0 => lists = lists.saturating_sub(1),
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
                    if text.get(range.clone()).unwrap_or_default().chars().any(char::is_alphanumeric) {
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
    page
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
}
