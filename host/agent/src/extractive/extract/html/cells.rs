//! Cells of a table that reach down over several rows: each of those rows is quoted by itself, so it has the cell's
//! text.

use html5ever::tokenizer::Tag;

/// The text of such a cell is repeated up to so many bytes.
const MAX_TEXT_BYTES: usize = 100;
/// Columns beyond these are not followed.
const MAX_COLUMNS: usize = 256;

/// The cells that are open in a table, or reach down into its next row.
pub(super) struct Cells {
    columns: Vec<Column>,
    /// The column of the next cell of the row.
    next: usize,
    open: Option<Open>,
    /// Bytes that may still be repeated on this page.
    room: usize,
}

/// What reaches down into a column.
#[derive(Clone, Default)]
struct Column {
    /// Over how many more rows.
    rows: u32,
    /// Its text; empty in all columns of the cell but the first.
    text: String,
}

struct Open {
    columns: usize,
    rows: u32,
    text: String,
}

impl Cells {
    /// For a page of so many bytes: no more than that is repeated.
    pub(super) fn new(room: usize) -> Self {
        Self { columns: Vec::new(), next: 0, open: None, room }
    }

    /// A table begins or ends.
    pub(super) fn clear(&mut self) {
        self.columns.clear();
        self.next = 0;
    }

    /// A row begins.
    pub(super) fn row(&mut self) {
        self.next = 0;
    }

    /// The next text that reaches down into the row, where the next cell would stand.
    pub(super) fn above(&mut self) -> Option<String> {
        loop {
            let column = self.columns.get_mut(self.next).filter(|column| column.rows > 0)?;
            column.rows -= 1;
            self.next += 1;
            if let Some(room) = self.room.checked_sub(column.text.len()).filter(|_| !column.text.is_empty()) {
                self.room = room;
                return Some(column.text.clone());
            }
        }
    }

    /// The next text that reaches down into the row behind its last cell.
    pub(super) fn above_behind(&mut self) -> Option<String> {
        let rest = self.columns.get(self.next..)?;
        self.next += rest.iter().position(|column| column.rows > 0)?;
        self.above()
    }

    /// A cell begins.
    pub(super) fn begin(&mut self, tag: &Tag) {
        let attribute = |name: &str| {
            let found = tag.attrs.iter().find(|attribute| &*attribute.name.local == name);
            found.and_then(|attribute| attribute.value.trim().parse::<u32>().ok())
        };
        let columns = attribute("colspan").map_or(1, |columns| columns.clamp(1, MAX_COLUMNS as u32) as usize);
        // None means: down to the last row.
        let rows = attribute("rowspan").map_or(0, |rows| rows.checked_sub(1).unwrap_or(u32::MAX));
        self.open = Some(Open { columns, rows, text: String::new() });
    }

    /// Text of the page, which may be that of a cell.
    pub(super) fn text(&mut self, text: &str) {
        let Some(open) = self.open.as_mut().filter(|open| open.rows > 0) else { return };
        let room = MAX_TEXT_BYTES.saturating_sub(open.text.len());
        open.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
    }

    /// The open cell ends, if there is one.
    pub(super) fn end(&mut self) {
        let Some(Open { columns, rows, text }) = self.open.take() else { return };
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for at in self.next..(self.next + columns).min(MAX_COLUMNS) {
            if self.columns.len() <= at {
                self.columns.resize_with(at + 1, Column::default);
            }
            if let Some(column) = self.columns.get_mut(at) {
                *column = Column { rows, text: std::mem::take(&mut text) };
            }
        }
        self.next += columns;
    }
}
