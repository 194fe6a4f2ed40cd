//! Reports on a terminal: Markdown, with styles in place of its markup.
//!
//! What is written here comes from workers, who may mean harm. No text reaches the terminal with its control characters,
//! those that an entity (`&#27;`) stands for among them; a link shows where it leads; HTML is shown as it stands. What is
//! written is bounded by what came in, however deep that is nested.

use std::io::{self, Write};

use anstyle::{AnsiColor, Effects, Style};
use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::output::{LABEL, harmless, stdout_width, write_whole};

const CODE: Style = AnsiColor::Cyan.on_default();
const HEADING: Style = Style::new().effects(Effects::BOLD);
const TITLE: Style = AnsiColor::Magenta.on_default().effects(Effects::BOLD);
/// How deep lists and quotations are indented at most.
const DEPTH: usize = 12;
/// The longest lines of prose, where the terminal has room for more.
const PROSE_CHARS: usize = 100;
/// How many columns of a table are aligned at most, and how wide each is at most.
const COLUMNS: usize = 16;
const CELL_CHARS: usize = 40;

/// The largest report that is rendered.
const RENDERED_BYTES: usize = 1024 * 1024;

/// Prints a worker's report: rendered on a terminal that shows styles, as far as it is no larger than this host renders;
/// without control characters on any other; as it is into a file or a pipe.
pub(crate) fn print_report(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shows_styles = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
    match stdout_width() {
        Some(width) if shows_styles && report.len() <= RENDERED_BYTES => write(&mut out, report, width)?,
        width => write_whole(&mut out, report, width.is_some())?,
    }
    out.flush()
}

/// Writes a text of Markdown for a terminal of so many characters a line.
pub(crate) fn write(out: &mut dyn Write, text: &str, width: usize) -> io::Result<()> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page::new(out, width.min(PROSE_CHARS));
    // Events are read from a stack of their own: depth costs no recursion.
    Parser::new_ext(text, options).try_for_each(|event| page.event(event))?;
    page.end_line()
}

/// What indents lines.
enum Block {
    Quote,
    /// An item of a list, by what stands before its first line, until that is written.
    Item {
        marker: String,
        is_written: bool,
    },
}

/// A link or an image that is being read.
struct Link {
    target: String,
    /// Its text so far.
    text: String,
}

/// A table that is being read.
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Fragment>>,
    row: Vec<Fragment>,
}

/// A styled text, and how many characters it shows.
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
}

struct Page<'a> {
    out: &'a mut dyn Write,
    width: usize,
    blocks: Vec<Block>,
    /// The next number of each list that is open; `None` where it has none.
    lists: Vec<Option<u64>>,
    styles: Vec<Style>,
    links: Vec<Link>,
    table: Option<Table>,
    is_code: bool,
    /// The line, and the word at its end, which may not fit on it.
    line: Fragment,
    word: Fragment,
    /// Whether an empty line is due before the next block.
    is_gap: bool,
}

impl<'a> Page<'a> {
    fn new(out: &'a mut dyn Write, width: usize) -> Self {
        Self {
            out,
            width,
            blocks: Vec::new(),
            lists: Vec::new(),
            styles: Vec::new(),
            links: Vec::new(),
            table: None,
            is_code: false,
            line: Fragment::default(),
            word: Fragment::default(),
            is_gap: false,
        }
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
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
                self.start_block()?;
                self.line.push(&"─".repeat(self.width), LABEL);
                self.end_block()
            }
            Event::TaskListMarker(is_done) => self.text(if is_done { "[x] " } else { "[ ] " }, self.style()),
            // Of extensions that are not read.
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text, self.style())
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) -> io::Result<()> {
        match tag {
            Tag::Heading { level, .. } => {
                self.styles.push(if level == HeadingLevel::H1 { TITLE } else { HEADING });
                self.start_block()
            }
            Tag::BlockQuote(_) => {
                self.start_block()?;
                self.blocks.push(Block::Quote);
                Ok(())
            }
            Tag::CodeBlock(_) => {
                self.start_block()?;
                self.is_code = true;
                Ok(())
            }
            Tag::List(first) => {
                // One within an item follows its text at once.
                if !self.lists.is_empty() {
                    self.end_line()?;
                    self.is_gap = false;
                }
                self.start_block()?;
                self.lists.push(first);
                Ok(())
            }
            Tag::Item => {
                self.start_block()?;
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    _ => "• ".to_owned(),
                };
                self.blocks.push(Block::Item { marker, is_written: false });
                Ok(())
            }
            Tag::Table(alignments) => {
                self.start_block()?;
                self.table = Some(Table { alignments, rows: Vec::new(), row: Vec::new() });
                Ok(())
            }
            Tag::Emphasis => self.style_with(Effects::ITALIC),
            Tag::Strong => self.style_with(Effects::BOLD),
            Tag::Strikethrough => self.style_with(Effects::STRIKETHROUGH),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(Link { target: dest_url.into_string(), text: String::new() });
                Ok(())
            }
            Tag::Paragraph | Tag::HtmlBlock => self.start_block(),
            _ => Ok(()),
        }
    }

    fn end(&mut self, tag: TagEnd) -> io::Result<()> {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block()
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.end_block()
            }
            TagEnd::BlockQuote(_) => {
                self.end_line()?;
                self.blocks.pop();
                self.is_gap = true;
                Ok(())
            }
            TagEnd::Item => {
                self.end_line()?;
                // An item without a text is one, too.
                if matches!(self.blocks.last(), Some(Block::Item { is_written: false, .. })) {
                    self.write_line()?;
                }
                self.blocks.pop();
                Ok(())
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_gap |= self.lists.is_empty();
                Ok(())
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.word);
                if let Some(table) = &mut self.table {
                    table.row.push(cell);
                }
                Ok(())
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(std::mem::take(&mut table.row));
                }
                Ok(())
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
                Ok(())
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => Ok(()),
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn style_with(&mut self, effects: Effects) -> io::Result<()> {
        let style = self.style();
        self.styles.push(style.effects(style.get_effects().insert(effects)));
        Ok(())
    }

    /// Text of a paragraph, a heading, an item or a cell: its words go on the line for which they have room.
    fn text(&mut self, text: &str, style: Style) -> io::Result<()> {
        if let Some(link) = self.links.last_mut() {
            link.text.push_str(text);
        }
        if self.table.is_some() {
            self.word.push(&harmless(text).replace('\n', " "), style);
            return Ok(());
        }
        for part in harmless(text).split_inclusive(char::is_whitespace) {
            let word = part.trim_end_matches(char::is_whitespace);
            if !word.is_empty() {
                self.word.push(word, style);
            }
            if word.len() < part.len() {
                self.end_word()?;
            }
        }
        Ok(())
    }

    fn code(&mut self, text: &str) -> io::Result<()> {
        for part in harmless(text).split_inclusive('\n') {
            let line = part.strip_suffix('\n');
            if self.line.chars == 0 {
                self.line.push("  ", Style::new());
            }
            self.line.push(line.unwrap_or(part), CODE);
            if line.is_some() {
                self.write_line()?;
            }
        }
        Ok(())
    }

    /// Says where a link leads, unless its text is just that.
    fn end_link(&mut self) -> io::Result<()> {
        let Some(Link { target, text }) = self.links.pop() else { return Ok(()) };
        if target.is_empty() || target == text || target.strip_prefix("mailto:") == Some(text.as_str()) {
            return Ok(());
        }
        self.text(&format!(" ({target})"), LABEL)
    }

    fn end_word(&mut self) -> io::Result<()> {
        if self.word.chars == 0 {
            return Ok(());
        }
        let indent: usize = self.blocks.iter().take(DEPTH).map(Block::chars).sum();
        if self.line.chars > 0 {
            match indent + self.line.chars + 1 + self.word.chars > self.width {
                true => self.write_line()?,
                false => self.line.push(" ", Style::new()),
            }
        }
        let word = std::mem::take(&mut self.word);
        self.line.text.push_str(&word.text);
        self.line.chars += word.chars;
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.end_word()?;
        if self.line.chars == 0 { Ok(()) } else { self.write_line() }
    }

    fn start_block(&mut self) -> io::Result<()> {
        self.end_line()?;
        if std::mem::take(&mut self.is_gap) {
            // What a quotation has on its left goes through it.
            let quotes = self.blocks.iter().take(DEPTH).take_while(|block| matches!(block, Block::Quote)).count();
            match quotes {
                0 => writeln!(self.out)?,
                _ => writeln!(self.out, "{LABEL}{}{LABEL:#}", "│ ".repeat(quotes).trim_end())?,
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        self.end_line()?;
        self.is_gap = true;
        Ok(())
    }

    /// Writes the line, after what indents it.
    fn write_line(&mut self) -> io::Result<()> {
        for block in self.blocks.iter_mut().take(DEPTH) {
            match block {
                Block::Quote => write!(self.out, "{LABEL}│ {LABEL:#}")?,
                Block::Item { is_written: true, .. } => write!(self.out, "{:width$}", "", width = block.chars())?,
                Block::Item { marker, is_written } => {
                    *is_written = true;
                    write!(self.out, "{marker}")?;
                }
            }
        }
        // The marker of a deeper one is not shown.
        if let Some(Block::Item { is_written, .. }) = self.blocks.last_mut() {
            *is_written = true;
        }
        let line = std::mem::take(&mut self.line);
        writeln!(self.out, "{}", line.text)
    }

    fn end_table(&mut self) -> io::Result<()> {
        let Some(Table { alignments, rows, .. }) = self.table.take() else { return Ok(()) };
        let is_aligned = alignments.len() <= COLUMNS;
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars);
            cells.max().unwrap_or(0).min(CELL_CHARS)
        };
        let widths: Vec<usize> = (0..alignments.len()).map(|at| if is_aligned { width(at) } else { 0 }).collect();
        for (at, mut row) in rows.into_iter().enumerate() {
            // The parser gives each row all columns, whatever it has.
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
                self.line.text.push_str(&cell.text);
                self.line.chars += cell.chars;
                self.line.push(&" ".repeat(room - before), Style::new());
            }
            self.write_line()?;
            if at == 0 && is_aligned {
                let rules: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.line.push(&rules.join("─┼─"), LABEL);
                self.write_line()?;
            }
        }
        self.is_gap = true;
        Ok(())
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
        let mut out = Vec::new();
        write(&mut out, text, 40).unwrap();
        String::from_utf8(out).unwrap()
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
    fn nothing_that_a_worker_wrote_steers_the_terminal() {
        let report = "\u{1b}[2J&#27;[31m&#x9b;1m <b onclick=x>\u{202e}bold</b> [safe](https://evil.example/&#27;]8;;x)\n\n```\n\u{1b}]0;title\u{7}\n```\n\
                      | &#27;[2J |\n|-|\n| \u{1b}c |\n";
        let shown = plain(report);
        assert!(shown.contains("<b onclick=x>") && shown.contains("(https://evil.example/\u{fffd}]8;;x)"), "{shown}");
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n') && !shown.contains('\u{202e}'), "{shown:?}");
        // What is left of escapes are the styles of this module.
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
