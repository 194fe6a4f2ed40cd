//! Prints tables: aligned columns under a header on a terminal, tab-separated fields in a pipe.
//!
//! On a terminal, times are shown as ages, digits are grouped, and a long text is cut at the end of the line. In a
//! pipe, the output is for scripts: no header, full texts, times as RFC 3339, plain digits, and `-` for a missing
//! value. Every row has the same fields in the same order.

use std::io::{self, Write};

use anstyle::Style;
use jiff::Timestamp;

use super::{LABEL, count, one_line, print, stdout_width};
use crate::age;

/// The gap between two columns.
const GAP: &str = "  ";
/// The minimum width of a cut column.
const MIN_WIDTH: usize = 12;
/// The placeholder for a missing value.
const MISSING: &str = "-";

/// A column.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    /// Left-aligned texts.
    Left(&'static str),
    /// Right-aligned numbers.
    Right(&'static str),
    /// The last column, with texts that are cut at the width of the terminal.
    Rest(&'static str),
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Self::Left(head) | Self::Right(head) | Self::Rest(head) => head,
        }
    }
}

/// A field of a row.
pub(crate) struct Cell {
    /// The text on a terminal.
    shown: String,
    /// The text in a pipe.
    raw: String,
    style: Style,
}

impl Cell {
    /// A text, which may be untrusted.
    pub(crate) fn text(text: &str) -> Self {
        let text = one_line(text, usize::MAX);
        Self::both(text.clone(), text)
    }

    /// A number.
    pub(crate) fn number(number: u64) -> Self {
        Self::both(count(number), number.to_string())
    }

    /// A time: its age on a terminal, RFC 3339 in a pipe.
    pub(crate) fn age(moment: Option<Timestamp>, now: Timestamp) -> Self {
        let raw = moment.map(|moment| format!("{moment:.3}")).unwrap_or_default();
        Self::both(age::ago(&raw, now).unwrap_or_default(), raw)
    }

    /// Different texts on a terminal and in a pipe.
    pub(crate) fn both(shown: String, raw: String) -> Self {
        let or_placeholder = |text: String| if text.is_empty() { MISSING.to_owned() } else { text };
        Self { shown: or_placeholder(shown), raw: or_placeholder(raw), style: Style::new() }
    }

    pub(crate) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// A table.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<Cell>,
    note: Option<String>,
}

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds [`Column::Rest`].
    pub(crate) fn rest(mut self, head: &'static str) -> Self {
        self.columns.push(Column::Rest(head));
        self
    }

    /// Adds a row, with a cell for each column. A note is shown below the row, indented; in a pipe it is one more
    /// field.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>, note: Option<String>) {
        self.rows.push(Row { cells: cells.into(), note });
    }

    /// Prints it on stdout.
    pub(crate) fn print(&self) -> io::Result<()> {
        print(|out| self.write(out, stdout_width()))
    }

    /// Writes it for a terminal of that width, or for a pipe if there is none.
    pub(crate) fn write(&self, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        match width {
            Some(width) => self.write_aligned(out, width),
            None => self.rows.iter().try_for_each(|row| {
                let fields = row.cells.iter().map(|cell| cell.raw.clone());
                let note = row.note.iter().map(|note| one_line(note, usize::MAX));
                writeln!(out, "{}", fields.chain(note).collect::<Vec<_>>().join("\t"))
            }),
        }
    }

    fn write_aligned(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let widest = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(at)).map(|cell| cell.shown.chars().count());
            cells.chain([column.head().len()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(widest).collect();
        if let (Some(Column::Rest(_)), Some((last, before))) = (self.columns.last(), widths.split_last_mut()) {
            let taken: usize = before.iter().map(|width| width + GAP.len()).sum();
            *last = (*last).min(width.saturating_sub(taken).max(MIN_WIDTH));
        }
        let heads = self.columns.iter().map(|column| (column.head().to_owned(), LABEL));
        write_line(out, &self.columns, &widths, heads)?;
        for row in &self.rows {
            write_line(out, &self.columns, &widths, row.cells.iter().map(|cell| (cell.shown.clone(), cell.style)))?;
            for line in row.note.iter().flat_map(|note| note.lines()) {
                writeln!(out, "{GAP}{line}")?;
            }
        }
        Ok(())
    }
}

fn write_line(
    out: &mut dyn Write,
    columns: &[Column],
    widths: &[usize],
    cells: impl Iterator<Item = (String, Style)>,
) -> io::Result<()> {
    let last = columns.len().saturating_sub(1);
    for (at, ((column, width), (text, style))) in columns.iter().zip(widths).zip(cells).enumerate() {
        let text = one_line(&text, *width);
        let room = " ".repeat(width.saturating_sub(text.chars().count()));
        match column {
            Column::Right(_) => write!(out, "{room}{style}{text}{style:#}")?,
            _ if at == last => write!(out, "{style}{text}{style:#}")?,
            _ => write!(out, "{style}{text}{style:#}{room}")?,
        }
        if at != last {
            out.write_all(GAP.as_bytes())?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([Column::Left("JOB"), Column::Right("TURNS"), Column::Left("AGE")]).rest("WHAT");
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        let then = Some("2026-01-01T00:00:00Z".parse().unwrap());
        table.row(
            [Cell::text("a"), Cell::number(1234), Cell::age(then, now), Cell::text("a long\ttext that\nis cut")],
            Some("more\nof it".to_owned()),
        );
        table.row([Cell::text("job-b"), Cell::number(7), Cell::age(None, now), Cell::text("\u{1b}[2J")], None);
        table
    }

    fn written(width: Option<usize>) -> String {
        let mut out = Vec::new();
        table().write(&mut out, width).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn a_terminal_gets_aligned_columns_under_a_header_that_fit_it() {
        let expected = "JOB    TURNS  AGE      WHAT\n\
                        a      1,234  3 h ago  a long text t…\n  more\n  of it\n\
                        job-b      7  -        \u{fffd}[2J\n";
        assert_eq!(written(Some(37)), expected);
    }

    #[test]
    fn a_pipe_gets_one_line_of_whole_fields_for_each_row() {
        let expected = "a\t1234\t2026-01-01T00:00:00.000Z\ta long text that is cut\tmore of it\n\
                        job-b\t7\t-\t\u{fffd}[2J\n";
        assert_eq!(written(None), expected);
    }
}
