//! Renders the Markdown of reports.
//!
//! The Markdown is a model's text, about pages of anybody. So HTML in it is shown as text, links lead to web pages and
//! mail addresses only, and images become links: nothing is loaded, and nothing runs.

use guild_contract::text::harmless;
use maud::{Markup, PreEscaped};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};

/// The schemes of links that are kept.
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// Markdown as HTML. Headings begin at level 3, below those of the page.
pub fn render(markdown: &str) -> Markup {
    let markdown = harmless(markdown);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut html = String::with_capacity(markdown.len() * 3 / 2);
    // Whether each open link leads somewhere.
    let mut links = Vec::new();
    push_html(&mut html, Parser::new_ext(&markdown, options).filter_map(|event| safe(event, &mut links)));
    PreEscaped(html)
}

fn safe<'a>(event: Event<'a>, links: &mut Vec<bool>) -> Option<Event<'a>> {
    Some(match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Heading { level, classes: _, attrs: _, id: _ }) => {
            Event::Start(Tag::Heading { level: lowered(level), id: None, classes: Vec::new(), attrs: Vec::new() })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lowered(level))),
        Event::Start(Tag::Link { link_type, dest_url, title, id } | Tag::Image { link_type, dest_url, title, id }) => {
            let is_safe = is_safe(&dest_url);
            links.push(is_safe);
            return is_safe.then_some(Event::Start(Tag::Link { link_type, dest_url, title, id }));
        }
        Event::End(TagEnd::Link | TagEnd::Image) => return links.pop()?.then_some(Event::End(TagEnd::Link)),
        other => other,
    })
}

fn lowered(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

/// Whether a link leads to a web page or a mail address.
fn is_safe(url: &str) -> bool {
    let begins = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    SCHEMES.iter().any(|scheme| begins(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_headings_tables_and_links() {
        let html =
            render("# Findings\n\n*One* of [two](https://a.example/?q=1&r=2).\n\n|a|b|\n|-|-|\n|1|2|\n").into_string();
        assert!(html.contains("<h3>Findings</h3>") && html.contains("<em>One</em>"), "{html}");
        assert!(html.contains(r#"<a href="https://a.example/?q=1&amp;r=2">two</a>"#), "{html}");
        assert!(html.contains("<td>1</td>"), "{html}");
    }

    #[test]
    fn hostile_markdown_runs_nothing_and_loads_nothing() {
        let hostile = "<script>alert(1)</script>\n\na <img src=x onerror=alert(1)> b\n\n[x](javascript:alert(1)) \
            [y](JAVASCRIPT:alert(1)) [z](data:text/html,<script>1</script>) ![i](https://evil.example/pixel.png)\n\n\
            ![j](\"onerror=\"alert) <https://b.example/\"onclick=x>\n\n# h {onclick=x #content .y}\n\n\u{202e}bold\u{1b}[2J";
        let html = render(hostile).into_string();
        for never in
            ["<script", "<img", "javascript:", "JAVASCRIPT:", "data:text", "\u{202e}", "\u{1b}", "id=\"content"]
        {
            assert!(!html.contains(never), "{never:?} in {html}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && html.contains("x y z "), "{html}");
        assert!(html.contains(r#"<a href="https://evil.example/pixel.png">i</a>"#), "{html}");
    }
}
