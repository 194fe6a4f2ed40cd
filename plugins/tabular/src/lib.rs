//! Tables as texts hold them: CSV, TSV, Markdown and JSON, read and written, and what their columns hold.
//!
//! Every cell is a text, and stays as it was written. What it means is worked out for a column as a whole ([`Kind`]).

mod kind;
mod profile;
mod read;
mod write;

pub use kind::{Kind, number};
pub use profile::{ColumnProfile, Frequency, Profile};
pub use read::Source;
pub use write::{Target, row_of};

/// Cells that a table has at most, so that it fits a component's memory.
pub const MAX_CELLS: usize = 250_000;

/// A table: named columns, and rows of as many cells.
#[derive(Debug, PartialEq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    uneven: usize,
}

impl Table {
    /// A table of these columns and rows. Each row is filled up with empty cells; where rows are longer than the header
    /// the table has columns for what is in them. A column without a name is `column_3`, by its place, and one whose
    /// name was there before is `name_2`.
    ///
    /// # Errors
    /// For more than [`MAX_CELLS`], and for no columns at all.
    pub fn new(header: Vec<String>, mut rows: Vec<Vec<String>>) -> Result<Self, String> {
        let named = header.len();
        let width = rows.iter().map(Vec::len).fold(named, usize::max);
        if width == 0 {
            return Err("there is no table in it: not even a header".to_owned());
        }
        if width.saturating_mul(rows.len()) > MAX_CELLS {
            return Err(format!(
                "the table has {} rows of {width} cells; more than {MAX_CELLS} cells are not taken",
                rows.len()
            ));
        }
        let uneven = rows.iter().filter(|row| row.len() != named).count();
        for row in &mut rows {
            row.resize(width, String::new());
        }
        Ok(Self { columns: unique(header, width), rows, uneven })
    }

    /// The names of its columns, each there once.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Its rows, each with a cell for every column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// How many rows had more or fewer cells than the header.
    pub fn uneven_rows(&self) -> usize {
        self.uneven
    }

    /// The place of a column.
    ///
    /// # Errors
    /// Where there is no such column; the text names those that there are.
    pub fn column(&self, name: &str) -> Result<usize, String> {
        self.columns
            .iter()
            .position(|column| column == name)
            .ok_or_else(|| format!("there is no column {name:?}; the columns are {}", self.columns.join(", ")))
    }

    /// The cells of one column, from the first row to the last.
    pub fn cells(&self, column: usize) -> impl Iterator<Item = &str> + Clone {
        self.rows.iter().filter_map(move |row| row.get(column).map(String::as_str))
    }

    /// What each column holds.
    pub fn kinds(&self) -> Vec<Kind> {
        (0..self.columns.len()).map(|column| Kind::of(self.cells(column))).collect()
    }
}

/// As many names as there are columns, each there once.
fn unique(header: Vec<String>, width: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(width);
    let mut taken = std::collections::BTreeSet::new();
    let given = header.into_iter().map(Some).chain(std::iter::repeat(None)).take(width);
    for (place, name) in given.enumerate() {
        let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| format!("column_{}", place + 1));
        let mut free = name.clone();
        for n in 2.. {
            if taken.insert(free.clone()) {
                break;
            }
            free = format!("{name}_{n}");
        }
        names.push(free);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    #[test]
    fn rows_are_even_and_names_are_there_once() {
        let table = Table::new(row(&["a", " a ", ""]), vec![row(&["1"]), row(&["1", "2", "3", "4"])]).unwrap();
        assert_eq!(table.columns(), ["a", "a_2", "column_3", "column_4"]);
        assert_eq!(table.rows(), [row(&["1", "", "", ""]), row(&["1", "2", "3", "4"])]);
        assert_eq!(table.uneven_rows(), 2);
        assert_eq!(table.column("a_2"), Ok(1));
        assert!(table.column("b").unwrap_err().ends_with("the columns are a, a_2, column_3, column_4"));
    }

    #[test]
    fn what_is_no_table_or_too_large_is_refused() {
        assert!(Table::new(Vec::new(), Vec::new()).unwrap_err().contains("not even a header"));
        // One long row among many short ones would be a large table.
        let mut rows = vec![row(&["1"]); 1000];
        rows.push(vec![String::new(); 1000]);
        assert!(Table::new(row(&["a"]), rows).unwrap_err().contains("more than 250000 cells"));
    }
}
