//! Reads the visible text of an HTML page, without navigation.
//!
//! The tokens are html5ever's. No tree is built: the open elements are enough to read the text.

use std::{cell::RefCell, mem};

use html5ever::{
    Attribute, LocalName,
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
        states::{Rawtext, Rcdata, ScriptData},
    },
};

use super::{Page, newlines};

/// Elements at whose start and end a block ends.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "blockquote",
    "body",
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
/// Elements whose text is not the page's content.
const SKIPPED: &[&str] = &[
    "aside", "audio", "button", "canvas", "dialog", "footer", "form", "iframe", "menu", "nav", "noscript", "object",
    "script", "select", "style", "svg", "template", "textarea", "video",
];
/// Elements that never have an end.
const VOID: &[&str] =
    &["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];

/// Reads a page.
pub(super) fn page(source: &str) -> Page {
    let sink = Sink(RefCell::new(State { page: Page::new(), ..State::default() }));
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(source));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    let mut state = tokenizer.sink.0.into_inner();
    state.end_block();
    state.page
}

#[derive(Default)]
struct State {
    page: Page,
    /// The text of the current block, with as many line breaks as the file has, and the lines in which it begins and ends.
    text: String,
    line: u32,
    end: u32,
    /// The element that is left out, and how many of its name are open inside it.
    skipped: Option<(LocalName, u32)>,
    is_heading: bool,
    is_title: bool,
    /// The `pre` elements that are open.
    pre: u32,
}

impl State {
    /// Adds text that begins in this line of the file.
    fn text(&mut self, mut text: &str, mut line: u32) {
        if self.skipped.is_some() {
            return;
        }
        if self.text.is_empty() {
            if self.pre == 0 {
                let kept = text.trim_start();
                line += newlines(text.get(..text.len() - kept.len()).unwrap_or_default());
                text = kept;
            }
            (self.line, self.end) = (line, line);
        }
        // Line breaks within tags.
        for _ in self.end..line {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.end = line.max(self.end) + newlines(text);
    }

    fn end_block(&mut self) {
        let text = mem::take(&mut self.text);
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.is_title {
            self.page.title = line;
        } else if self.is_heading {
            if !line.is_empty() {
                self.page.heading(&line);
            }
        } else if self.pre > 0 {
            self.page.block(&text, self.line, true);
        } else {
            self.page.block_as(&text, self.line, false, tidy);
        }
    }

    fn tag(&mut self, tag: &Tag, line: u32) -> TokenSinkResult<()> {
        let (name, starts): (&str, bool) = (&tag.name, tag.kind == TagKind::StartTag);
        if let Some((skipped, inside)) = &mut self.skipped {
            if *skipped == tag.name && !tag.self_closing {
                match (starts, *inside) {
                    (true, _) => *inside += 1,
                    (false, 0) => self.skipped = None,
                    (false, _) => *inside -= 1,
                }
            }
            return raw(name, starts);
        }
        if BLOCKS.contains(&name) {
            self.end_block();
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.is_heading = starts,
            "title" => self.is_title = starts && self.page.title.is_empty(),
            "pre" if starts => self.pre += 1,
            "pre" => self.pre = self.pre.saturating_sub(1),
            "td" | "th" if starts && !self.text.is_empty() => self.text(" | ", line),
            // `2<sup>10</sup>` is not 210.
            "sup" if starts => self.text("^", line),
            "sub" if starts => self.text("_", line),
            "br" => self.text("\n", line),
            _ => {}
        }
        if starts && !tag.self_closing && !VOID.contains(&name) && (SKIPPED.contains(&name) || is_hidden(tag)) {
            self.skipped = Some((tag.name.clone(), 0));
        }
        raw(name, starts)
    }
}

/// A text with one space or line break for each gap, and each table row on one line.
fn tidy(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    text.replace("\n| ", " | ")
}

fn is_hidden(tag: &Tag) -> bool {
    tag.attrs.iter().any(|Attribute { name, value }| match &*name.local {
        "hidden" => true,
        "aria-hidden" => &**value == "true",
        "role" => matches!(&**value, "navigation" | "banner" | "contentinfo" | "search"),
        "style" => value.replace(' ', "").contains("display:none"),
        _ => false,
    })
}

/// The tokenizer's state after this tag: the content of these elements is no markup.
fn raw(name: &str, starts: bool) -> TokenSinkResult<()> {
    match name {
        "script" if starts => TokenSinkResult::RawData(ScriptData),
        "style" | "noscript" | "iframe" | "noembed" | "noframes" | "xmp" if starts => TokenSinkResult::RawData(Rawtext),
        "title" | "textarea" if starts => TokenSinkResult::RawData(Rcdata),
        _ => TokenSinkResult::Continue,
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

    fn texts(source: &str) -> Vec<String> {
        page(source).passages.into_iter().map(|passage| passage.text).collect()
    }

    #[test]
    fn a_passage_has_the_line_that_its_text_begins_in() {
        let source = "<html>\n<body>\n<h1\nid=x>A</h1><p>\n  One\nand   two</p>\n\n<h2>B</h2><p\n class=x>Three <b\n>bold</b>\n\n\nfour</p>\
            <h2>C</h2><ul><li>Five &amp;\nsix</ul>";
        let page = page(source);
        let seen: Vec<(u32, &str)> = page.passages.iter().map(|passage| (passage.line, &*passage.text)).collect();
        assert_eq!(seen, [(5, "One\nand two"), (9, "Three\nbold\nfour"), (13, "Five &\nsix")]);
        let long = format!("<p>\n{}<b\n>end", "A sentence <i\n>of</i> two lines.\n".repeat(100));
        let last = super::page(&long).passages.pop().unwrap();
        assert!(long.lines().nth(last.line as usize - 1).unwrap().contains("A sentence"), "{last:?}");
    }

    #[test]
    fn navigation_and_hidden_text_are_left_out() {
        let source = "<title>A page</title><style>p{}</style><script>let p = '<p>no</p>';</script><nav><ul><li>Home</ul></nav>
            <p>Text with <a href=x><code>Rc&lt;T&gt;</code></a>.</p><p hidden>unseen</p>
            <div style='display: none'>unseen</div><pre>fn main() {\n    code();\n}</pre><img hidden><p>End.<footer>Imprint</footer>";
        let page = page(source);
        let seen: Vec<(&str, bool)> = page.passages.iter().map(|passage| (&*passage.text, passage.code)).collect();
        assert_eq!(seen, [("Text with Rc<T>.", false), ("fn main() {\n    code();\n}", true), ("End.", false)]);
        assert_eq!(page.title, "A page");
    }

    #[test]
    fn neighbouring_texts_keep_their_boundary() {
        assert_eq!(texts("<p>x<sup>2</sup> and H<sub>2</sub>O"), ["x^2 and H_2O"]);
        assert_eq!(texts("<table><tr><td>a</td>\n<td>b</td></tr><tr><td></td><td>c</table>"), ["a | b\n\nc"]);
        assert_eq!(texts("<div><p>a<p>b <code>c<p>d</div></nav><nav>x<nav>y</nav>z</nav><p>e"), ["a\n\nb c\n\nd\n\ne"]);
    }
}
