//! Texts out of tables.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Kind, Table, number};

/// The form in which a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Cells parted by commas, quoted where they need it.
    Csv,
    /// Cells parted by tabs.
    Tsv,
    /// A Markdown table.
    Markdown,
    /// An array of objects: numbers where a whole column is numbers, null for empty cells.
    Json,
}

impl Target {
    /// The table as a text.
    ///
    /// # Errors
    /// None that a table can cause; what the libraries that write may answer.
    pub fn write(self, table: &Table) -> Result<String, String> {
        match self {
            Self::Csv => delimited(table, b','),
            Self::Tsv => delimited(table, b'\t'),
            Self::Markdown => Ok(markdown(table)),
            Self::Json => json(table),
        }
    }
}

fn delimited(table: &Table, delimiter: u8) -> Result<String, String> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    writer.write_record(table.columns()).map_err(|e| e.to_string())?;
    for row in table.rows() {
        writer.write_record(row).map_err(|e| e.to_string())?;
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

fn markdown(table: &Table) -> String {
    let mut text = String::new();
    line(&mut text, table.columns().iter().map(|name| cell(name)));
    // Numbers are read by their last digits.
    line(&mut text, table.kinds().into_iter().map(|kind| if kind.is_numeric() { "---:" } else { "---" }.to_owned()));
    for row in table.rows() {
        line(&mut text, row.iter().map(|text| cell(text)));
    }
    text
}

fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    for cell in cells {
        text.push_str("| ");
        text.push_str(&cell);
        text.push(' ');
    }
    text.push_str("|\n");
}

fn cell(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines.join("<br>").replace('|', "\\|")
}

fn json(table: &Table) -> Result<String, String> {
    let kinds = table.kinds();
    let rows: Vec<_> = table.rows().iter().map(|row| row_of(table.columns(), &kinds, row)).collect();
    serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())
}

/// A row as a JSON object. Cells are what their columns are; an empty one is null.
pub fn row_of(columns: &[String], kinds: &[Kind], row: &[String]) -> Map<String, Value> {
    let cells = columns.iter().zip(kinds).zip(row);
    cells.map(|((column, kind), cell)| (column.clone(), value(*kind, cell))).collect()
}

fn value(kind: Kind, cell: &str) -> Value {
    let plain = cell.trim();
    if plain.is_empty() {
        return Value::Null;
    }
    match kind {
        // `+3` is a number, though not one that JSON would take.
        Kind::Integer => plain.parse::<i64>().map_or_else(|_| cell.into(), Value::from),
        Kind::Number => number(plain).map_or_else(|| cell.into(), Value::from),
        Kind::Boolean => plain.eq_ignore_ascii_case("true").into(),
        Kind::Date | Kind::Text | Kind::Empty => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Source;

    fn table() -> Table {
        Source::Csv.read("id,name,share,ok\n007,\"a|b\nc\",+3,TRUE\n008,\"d, e\",,false\n").unwrap()
    }

    #[test]
    fn a_table_is_written_in_each_form() {
        assert_eq!(
            Target::Csv.write(&table()).unwrap(),
            "id,name,share,ok\n007,\"a|b\nc\",+3,TRUE\n008,\"d, e\",,false\n"
        );
        assert_eq!(
            Target::Tsv.write(&table()).unwrap(),
            "id\tname\tshare\tok\n007\t\"a|b\nc\"\t+3\tTRUE\n008\td, e\t\tfalse\n"
        );
        assert_eq!(
            Target::Markdown.write(&table()).unwrap(),
            "| id | name | share | ok |\n| --- | --- | ---: | --- |\n\
             | 007 | a\\|b<br>c | +3 | TRUE |\n| 008 | d, e |  | false |\n"
        );
        let rows: Value = serde_json::from_str(&Target::Json.write(&table()).unwrap()).unwrap();
        let expected = json!([
            {"id": "007", "name": "a|b\nc", "share": 3, "ok": true},
            {"id": "008", "name": "d, e", "share": null, "ok": false}
        ]);
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_was_written_is_read_again() {
        for (target, source) in [(Target::Csv, Source::Csv), (Target::Tsv, Source::Tsv), (Target::Json, Source::Json)] {
            let again = source.read(&target.write(&table()).unwrap()).unwrap();
            assert_eq!((again.columns(), again.rows().len()), (table().columns(), 2), "{target:?}");
        }
    }
}
