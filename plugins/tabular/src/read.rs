//! Tables out of texts.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{MAX_CELLS, Table};

/// How a text holds a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Whichever of the others it looks like.
    #[default]
    Auto,
    /// Cells parted by commas, or by semicolons where the first line has more of those. The first line is the header.
    Csv,
    /// Cells parted by tabs. The first line is the header.
    Tsv,
    /// The first table of a Markdown text.
    Markdown,
    /// An array of objects, one for each row.
    Json,
}

impl Source {
    /// The table that a text holds.
    ///
    /// # Errors
    /// Where there is none in this form, and what [`Table::new`] refuses.
    pub fn read(self, text: &str) -> Result<Table, String> {
        match self {
            Self::Auto => Self::guess(text).read(text),
            Self::Csv => {
                let first = first_line(text);
                let (commas, semicolons) = (first.matches(',').count(), first.matches(';').count());
                delimited(text, if semicolons > commas { b';' } else { b',' })
            }
            Self::Tsv => delimited(text, b'\t'),
            Self::Markdown => markdown(text),
            Self::Json => json(text),
        }
    }

    fn guess(text: &str) -> Self {
        let first = first_line(text);
        let is_object = |text| matches!(objects(text).next(), Some(Ok(_)));
        if first.trim_start().starts_with('[') || (first.trim_start().starts_with('{') && is_object(text)) {
            Self::Json
        } else if first.contains('\t') {
            Self::Tsv
        } else if text.lines().any(is_rule) {
            Self::Markdown
        } else {
            Self::Csv
        }
    }
}

/// The line between the header and the rows of a table in Markdown.
fn is_rule(line: &str) -> bool {
    line.contains('|') && line.contains("--") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// CSV as RFC 4180 has it, of this delimiter.
fn delimited(text: &str, delimiter: u8) -> Result<Table, String> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
    let (mut rows, mut cells) = (Vec::new(), 0);
    for record in reader.records() {
        let record = record.map_err(|e| e.to_string())?;
        cells += record.len();
        if cells > MAX_CELLS {
            return Err(format!("the table has more than {MAX_CELLS} cells"));
        }
        rows.push(record.iter().map(str::to_owned).collect());
    }
    headed(rows)
}

fn markdown(text: &str) -> Result<Table, String> {
    let (mut rows, mut row): (Vec<Vec<String>>, _) = (Vec::new(), Vec::new());
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            // As it is written, with what is emphasised or linked in it.
            Event::Start(Tag::TableCell) => {
                row.push(text.get(range).unwrap_or_default().trim().trim_matches('|').trim().replace("\\|", "|"));
            }
            Event::End(TagEnd::TableHead | TagEnd::TableRow) => rows.push(std::mem::take(&mut row)),
            Event::End(TagEnd::Table) => break,
            _ => {}
        }
    }
    if rows.is_empty() {
        return Err(
            "there is no Markdown table in it: a header, below it a line such as |---|---|, and rows".to_owned()
        );
    }
    headed(rows)
}

fn headed(mut rows: Vec<Vec<String>>) -> Result<Table, String> {
    let header = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
    Table::new(header, rows)
}

/// JSON objects, one after the other.
fn objects(text: &str) -> impl Iterator<Item = serde_json::Result<Map<String, Value>>> {
    serde_json::Deserializer::from_str(text).into_iter()
}

/// An array of objects, or objects one after the other, as in JSON Lines.
fn json(text: &str) -> Result<Table, String> {
    let objects: serde_json::Result<Vec<Map<String, Value>>> =
        if text.trim_start().starts_with('{') { objects(text).collect() } else { serde_json::from_str(text) };
    let objects = objects.map_err(|e| {
        format!("it is neither a JSON array of objects, as [{{\"name\": \"ann\"}}], nor JSON objects one a line: {e}")
    })?;
    let mut columns: Vec<String> = Vec::new();
    let mut known = std::collections::BTreeMap::new();
    for key in objects.iter().flat_map(Map::keys) {
        if !known.contains_key(key) {
            known.insert(key.clone(), columns.len());
            columns.push(key.clone());
        }
    }
    if columns.len().saturating_mul(objects.len()) > MAX_CELLS {
        return Err(format!("the table has more than {MAX_CELLS} cells"));
    }
    let row = |object: Map<String, Value>| {
        let mut object = object;
        columns.iter().map(|column| object.remove(column).map_or_else(String::new, cell)).collect()
    };
    let rows = objects.into_iter().map(row).collect();
    Table::new(columns, rows)
}

/// A value as a cell; what has parts is written as JSON.
fn cell(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
        let table = Source::Auto.read(text).unwrap();
        (table.columns().to_vec(), table.rows().to_vec())
    }

    #[test]
    fn each_form_gives_the_same_table_and_is_recognised() {
        for text in [
            "name,says\nann,\"a|b, c\"\nbob,\n",
            "\u{feff}name;says\r\nann;a|b, c\r\n\r\nbob;\r\n",
            "name\tsays\nann\ta|b, c\nbob\t\n",
            "Two of them:\n\n| name | says |\n|:---|---|\n| ann | a\\|b, c |\n| bob | |\n\nNo more.\n",
            r#" [{"name": "ann", "says": "a|b, c"}, {"name": "bob", "says": null}]"#,
            "{\"name\": \"ann\", \"says\": \"a|b, c\"}\n{\"name\": \"bob\", \"says\": null}\n",
        ] {
            let (columns, rows) = read(text);
            assert_eq!(columns, ["name", "says"], "{text}");
            assert_eq!(rows, [["ann", "a|b, c"], ["bob", ""]], "{text}");
        }
    }

    #[test]
    fn a_markdown_cell_stays_as_it_is_written() {
        assert_eq!(read("| a |\n|---|\n| **b** `c` |\n").1, [["**b** `c`"]]);
    }

    #[test]
    fn objects_need_not_have_the_same_keys() {
        let (columns, rows) = read(r#"[{"b": 1, "a": [1, {"x": 2}]}, {"c": true}]"#);
        assert_eq!(columns, ["b", "a", "c"]);
        assert_eq!(rows, [["1", r#"[1,{"x":2}]"#, ""], ["", "", "true"]]);
    }

    #[test]
    fn what_holds_no_table_says_what_is_missing() {
        for (source, text, part) in [
            (Source::Csv, "", "not even a header"),
            (Source::Markdown, "a, b", "no Markdown table"),
            (Source::Json, "{}", "not even a header"),
            (Source::Json, "7", "neither a JSON array of objects"),
            (Source::Json, "[]", "not even a header"),
        ] {
            let error = source.read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let error = Source::Auto.read(&",".repeat(MAX_CELLS)).unwrap_err();
        assert!(error.contains("more than 250000 cells"), "{error}");
    }
}
