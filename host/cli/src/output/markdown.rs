//! Renders Markdown reports on a terminal, with styles in place of the markup.
//!
//! Reports come from workers and are untrusted. Control characters never reach the terminal, including those written as
//! an entity (`&#27;`); a link shows its target; HTML is shown as source text. The size of the output is bounded by the
//! size of the input, however deeply that is nested.

use std::io::{self, Write as _};

use anstyle::{AnsiColor, Effects, Style};
use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{LABEL, harmless, stdout_width, write_whole};

const CODE: Style = AnsiColor::Cyan.on_default();
const HEADING: Style = Style::new().effects(Effects::BOLD);
const TITLE: Style = AnsiColor::Magenta.on_default().effects(Effects::BOLD);
/// The maximum depth to which lists and quotations are indented.
const MAX_DEPTH: usize = 12;
/// The maximum line length of prose on a wider terminal.
const PROSE_CHARS: usize = 100;
/// The maximum number of columns that are aligned in a table, and the maximum width of each.
const MAX_COLUMNS: usize = 16;
const CELL_CHARS: usize = 40;
/// The largest report that is rendered.
const RENDERED_BYTES: usize = 1024 * 1024;

/// Prints a worker's report: rendered on a terminal with styles, unless it is too large; without control characters on
/// any other terminal; unchanged into a file or a pipe.
pub(crate) fn print_report(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shows_styles = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
    match stdout_width() {
        Some(width) if shows_styles && report.len() <= RENDERED_BYTES => {
            out.write_all(render(report, width).as_bytes())?
        }
        width => write_whole(&mut out, report, width.is_some())?,
    }
    out.flush()
}

/// Renders Markdown for a terminal with lines of `width` characters.
fn render(text: &str, width: usize) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page { width: width.min(PROSE_CHARS), ..Page::default() };
    // The parser yields events from its own stack, so nesting costs no recursion here.
    Parser::new_ext(text, options).for_each(|event| page.event(event));
    page.end_line();
    page.out
}

/// A block that indents its lines.
enum Block {
    Quote,
    /// An item of a list. The marker precedes its first line.
    Item {
        marker: String,
        is_written: bool,
    },
}

/// A link or an image that is being parsed.
struct Link {
    target: String,
    /// Its text so far.
    text: String,
}

/// A table that is being parsed.
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Fragment>>,
    row: Vec<Fragment>,
}

/// A styled text, and its number of visible characters.
#[derive(Default)]
struct Fragment {
    text: String,
    chars: usize,
}

impl Fragment {
    fn push(&mut self, text: &str, style: Style) {
        self.text.push_str(&format!("{style}{text}{style:#}"));
        self.chars += text.chars().count();
    }

    fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.chars += other.chars;
    }
}

#[derive(Default)]
struct Page {
    out: String,
    width: usize,
    blocks: Vec<Block>,
    /// The next number of each open list; `None` for a list without numbers.
    lists: Vec<Option<u64>>,
    styles: Vec<Style>,
    links: Vec<Link>,
    table: Option<Table>,
    is_code: bool,
    line: Fragment,
    /// The word at the end of the line, which may not fit on it.
    word: Fragment,
    /// Whether an empty line precedes the next block.
    is_gap: bool,
}

impl Page {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.code(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, self.style()),
            Event::Code(text) => self.text(&text, CODE),
            Event::SoftBreak => self.text(" ", self.style()),
            Event::HardBreak if self.table.is_some() => self.text(" ", self.style()),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.start_block();
                self.line.push(&"─".repeat(self.width), LABEL);
                self.end_block();
            }
            Event::TaskListMarker(is_done) => self.text(if is_done { "[x] " } else { "[ ] " }, self.style()),
            // Extensions that are not enabled.
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text, self.style())
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.styles.push(if level == HeadingLevel::H1 { TITLE } else { HEADING });
                self.start_block();
            }
            Tag::BlockQuote(_) => {
                self.start_block();
                self.blocks.push(Block::Quote);
            }
            Tag::CodeBlock(_) => {
                self.start_block();
                self.is_code = true;
            }
            Tag::List(first) => {
                // No empty line between the text of an item and a list in it.
                if !self.lists.is_empty() {
                    self.end_line();
                    self.is_gap = false;
                }
                self.start_block();
                self.lists.push(first);
            }
            Tag::Item => {
                self.start_block();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    _ => "• ".to_owned(),
                };
                self.blocks.push(Block::Item { marker, is_written: false });
            }
            Tag::Table(alignments) => {
                self.start_block();
                self.table = Some(Table { alignments, rows: Vec::new(), row: Vec::new() });
            }
            Tag::Emphasis => self.style_with(Effects::ITALIC),
            Tag::Strong => self.style_with(Effects::BOLD),
            Tag::Strikethrough => self.style_with(Effects::STRIKETHROUGH),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(Link { target: dest_url.into_string(), text: String::new() });
            }
            Tag::Paragraph | Tag::HtmlBlock => self.start_block(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.blocks.pop();
                self.is_gap = true;
            }
            TagEnd::Item => {
                self.end_line();
                // An item without text is shown, too.
                if matches!(self.blocks.last(), Some(Block::Item { is_written: false, .. })) {
                    self.write_line();
                }
                self.blocks.pop();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_gap |= self.lists.is_empty();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.word);
                if let Some(table) = &mut self.table {
                    table.row.push(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(std::mem::take(&mut table.row));
                }
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn style_with(&mut self, effects: Effects) {
        let style = self.style();
        self.styles.push(style.effects(style.get_effects().insert(effects)));
    }

    /// Text of a paragraph, a heading, an item or a cell, wrapped by words.
    fn text(&mut self, text: &str, style: Style) {
        if let Some(link) = self.links.last_mut() {
            link.text.push_str(text);
        }
        if self.table.is_some() {
            self.word.push(&harmless(text).replace('\n', " "), style);
            return;
        }
        for part in harmless(text).split_inclusive(char::is_whitespace) {
            let word = part.trim_end_matches(char::is_whitespace);
            if !word.is_empty() {
                self.word.push(word, style);
            }
            if word.len() < part.len() {
                self.end_word();
            }
        }
    }

    fn code(&mut self, text: &str) {
        for part in harmless(text).split_inclusive('\n') {
            let line = part.strip_suffix('\n');
            if self.line.chars == 0 {
                self.line.push("  ", Style::new());
            }
            self.line.push(line.unwrap_or(part), CODE);
            if line.is_some() {
                self.write_line();
            }
        }
    }

    /// Adds the target of a link, unless its text is the target.
    fn end_link(&mut self) {
        let Some(Link { target, text }) = self.links.pop() else { return };
        if target.is_empty() || target == text || target.strip_prefix("mailto:") == Some(text.as_str()) {
            return;
        }
        self.text(&format!(" ({target})"), LABEL)
    }

    fn end_word(&mut self) {
        if self.word.chars == 0 {
            return;
        }
        let indent: usize = self.blocks.iter().take(MAX_DEPTH).map(Block::chars).sum();
        if self.line.chars > 0 {
            match indent + self.line.chars + 1 + self.word.chars > self.width {
                true => self.write_line(),
                false => self.line.push(" ", Style::new()),
            }
        }
        self.line.append(std::mem::take(&mut self.word));
    }

    fn end_line(&mut self) {
        self.end_word();
        if self.line.chars > 0 {
            self.write_line();
        }
    }

    fn start_block(&mut self) {
        self.end_line();
        if std::mem::take(&mut self.is_gap) {
            // The bars of quotations continue on the empty line.
            let quotes = self.blocks.iter().take(MAX_DEPTH).take_while(|block| matches!(block, Block::Quote)).count();
            match quotes {
                0 => self.out.push('\n'),
                _ => self.out.push_str(&format!("{LABEL}{}{LABEL:#}\n", "│ ".repeat(quotes).trim_end())),
            }
        }
    }

    fn end_block(&mut self) {
        self.end_line();
        self.is_gap = true;
    }

    /// Writes the line with its indentation.
    fn write_line(&mut self) {
        for block in self.blocks.iter_mut().take(MAX_DEPTH) {
            match block {
                Block::Quote => self.out.push_str(&format!("{LABEL}│ {LABEL:#}")),
                Block::Item { is_written: true, .. } => self.out.push_str(&" ".repeat(block.chars())),
                Block::Item { marker, is_written } => {
                    *is_written = true;
                    self.out.push_str(marker);
                }
            }
        }
        // The marker of an item below the maximum depth is not shown.
        if let Some(Block::Item { is_written, .. }) = self.blocks.last_mut() {
            *is_written = true;
        }
        self.out.push_str(&std::mem::take(&mut self.line).text);
        self.out.push('\n');
    }

    fn end_table(&mut self) {
        let Some(Table { alignments, rows, .. }) = self.table.take() else { return };
        let is_aligned = alignments.len() <= MAX_COLUMNS;
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars);
            cells.max().unwrap_or(0).min(CELL_CHARS)
        };
        let widths: Vec<usize> = (0..alignments.len()).map(|at| if is_aligned { width(at) } else { 0 }).collect();
        for (at, mut row) in rows.into_iter().enumerate() {
            // The parser pads each row to all columns.
            let used = row.iter().rposition(|cell| cell.chars > 0).map_or(0, |last| last + 1);
            row.truncate(used);
            for (column, cell) in row.into_iter().enumerate() {
                if column > 0 {
                    self.line.push(" │ ", LABEL);
                }
                let room = widths.get(column).map_or(0, |width| width.saturating_sub(cell.chars));
                let before = match alignments.get(column) {
                    Some(Alignment::Right) => room,
                    Some(Alignment::Center) => room / 2,
                    _ => 0,
                };
                self.line.push(&" ".repeat(before), Style::new());
                self.line.append(cell);
                self.line.push(&" ".repeat(room - before), Style::new());
            }
            self.write_line();
            if at == 0 && is_aligned {
                let rules: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.line.push(&rules.join("─┼─"), LABEL);
                self.write_line();
            }
        }
        self.is_gap = true;
    }
}

impl Block {
    fn chars(&self) -> usize {
        match self {
            Self::Quote => 2,
            Self::Item { marker, .. } => marker.chars().count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn rendered(text: &str) -> String {
        render(text, 40)
    }

    fn plain(text: &str) -> String {
        String::from_utf8(anstream::adapter::strip_bytes(rendered(text).as_bytes()).into_vec()).unwrap()
    }

    #[test]
    fn markup_becomes_styles_and_layout() {
        let report = "# Findings\n\nOwnership is **how Rust** keeps `memory` safe, see\n[the book](https://doc.rust-lang.org/book) and <https://a.example>.\n\n\
                      > Each value has an owner.\n>\n> There can only be one.\n\n1. one\n   - inner\n2. two\n\n```rust\nlet  x;\n```\n\n\
                      | a | count |\n|---|------:|\n| x | 10 |\n";
        assert_eq!(
            plain(report),
            "Findings\n\nOwnership is how Rust keeps memory safe,\nsee the book\n(https://doc.rust-lang.org/book) and\nhttps://a.example.\n\n\
             │ Each value has an owner.\n│\n│ There can only be one.\n\n1. one\n   • inner\n2. two\n\n  let  x;\n\n\
             a │ count\n──┼──────\nx │    10\n"
        );
        let styled = rendered(report);
        for part in [TITLE.render().to_string() + "Findings", CODE.render().to_string() + "memory"] {
            assert!(styled.contains(&part), "{styled:?}");
        }
    }

    #[test]
    fn a_report_cannot_control_the_terminal() {
        let report = "\u{1b}[2J&#27;[31m&#x9b;1m <b onclick=x>\u{202e}bold</b> [safe](https://evil.example/&#27;]8;;x)\n\n```\n\u{1b}]0;title\u{7}\n```\n\
                      | &#27;[2J |\n|-|\n| \u{1b}c |\n";
        let shown = plain(report);
        assert!(shown.contains("<b onclick=x>") && shown.contains("(https://evil.example/\u{fffd}]8;;x)"), "{shown}");
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n') && !shown.contains('\u{202e}'), "{shown:?}");
        // The remaining escapes are the styles of this module.
        let escapes = rendered(report).matches('\u{1b}').count();
        let styles = rendered(report).matches("\u{1b}[").count();
        assert_eq!(escapes, styles);
        assert_eq!(rendered(report).matches("\u{1b}[2J").count() + rendered(report).matches("\u{1b}[31m").count(), 0);
    }

    /// Texts of 64 KiB each that cost a careless renderer much more than they are long.
    #[test]
    fn a_hostile_report_costs_no_more_than_its_length() {
        let bytes = 64 * 1024;
        let repeated = |text: &str| text.repeat(bytes / text.len());
        let wide = format!("|{}\n|{}\n{}", "a|".repeat(2000), "-|".repeat(2000), "|b|\n".repeat(10_000));
        let long = format!("|a|b|\n|-|-|\n|{}|c|\n{}", "x".repeat(bytes / 2), "|d|e|\n".repeat(5000));
        let texts = [
            repeated(">"),
            repeated("- "),
            repeated("* a\n"),
            repeated("**"),
            repeated("*a _b "),
            repeated("["),
            repeated("[a]("),
            repeated("![a]("),
            repeated("`"),
            repeated("<a "),
            repeated("&#27;"),
            repeated("\n>"),
            repeated("1. - > "),
            wide,
            long,
            (0..300).map(|depth| format!("{}- x\n", "  ".repeat(depth))).collect(),
        ];
        for text in texts {
            let (began, start) = (Instant::now(), text.get(..12).unwrap().to_owned());
            let shown = rendered(&text);
            assert!(shown.len() < 64 * text.len() + 4096, "{start:?}: {} bytes of {}", shown.len(), text.len());
            assert!(began.elapsed() < Duration::from_secs(20), "{start:?} took {:?}", began.elapsed());
        }
    }
}
