//! What a table holds, in figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Kind, Table, number};

/// Most frequent values of a column that are told.
const FREQUENT: usize = 5;
/// Characters of a value that are told.
const VALUE_CHARS: usize = 80;

/// A table in figures.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Rows, without the header.
    pub rows: usize,
    /// Rows that are the same as one before them.
    pub duplicate_rows: usize,
    /// Rows with more or fewer cells than the header.
    pub uneven_rows: usize,
    /// Each column, in the table's order.
    pub columns: Vec<ColumnProfile>,
}

/// A column in figures.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ColumnProfile {
    /// Its name.
    pub name: String,
    /// What all of its cells are that are not empty.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Empty cells.
    pub missing: usize,
    /// Different values, without the empty one.
    pub distinct: usize,
    /// The smallest value, as it stands in the table: of numbers by size, else in the order of characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<String>,
    /// The largest value, as `min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The sum, of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<f64>,
    /// The mean, of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The median, of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// The five values that are there most often; none where every value is there once.
    pub frequent: Vec<Frequency>,
}

/// A value, and how often it is there.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Frequency {
    /// The value; its first 80 characters.
    pub value: String,
    /// In how many rows.
    pub count: usize,
}

impl Profile {
    /// The figures of a table.
    pub fn of(table: &Table) -> Self {
        let mut rows: Vec<_> = table.rows().iter().collect();
        rows.sort_unstable();
        rows.dedup();
        let columns = table.columns().iter().enumerate();
        Self {
            rows: table.rows().len(),
            duplicate_rows: table.rows().len() - rows.len(),
            uneven_rows: table.uneven_rows(),
            columns: columns.map(|(place, name)| ColumnProfile::of(name, table.cells(place))).collect(),
        }
    }
}

impl ColumnProfile {
    fn of<'a>(name: &str, cells: impl Iterator<Item = &'a str> + Clone) -> Self {
        let kind = Kind::of(cells.clone());
        let (mut counts, mut missing) = (BTreeMap::<&str, usize>::new(), 0);
        for cell in cells.clone().map(str::trim) {
            if cell.is_empty() {
                missing += 1;
            } else {
                *counts.entry(cell).or_default() += 1;
            }
        }
        let mut numbers: Vec<(f64, &str)> = Vec::new();
        if kind.is_numeric() {
            numbers.extend(cells.filter_map(|cell| Some((number(cell)?, cell.trim()))));
            numbers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        }
        let (first, last) = if kind.is_numeric() {
            (numbers.first().map(|(_, cell)| *cell), numbers.last().map(|(_, cell)| *cell))
        } else {
            (counts.keys().next().copied(), counts.keys().next_back().copied())
        };
        let sum = kind.is_numeric().then(|| numbers.iter().map(|(number, _)| number).sum::<f64>());
        let median = |numbers: &[(f64, &str)]| {
            let middle = numbers.len().checked_sub(1)? / 2;
            let two = numbers.get(middle..=numbers.len() / 2)?;
            Some(two.iter().map(|(number, _)| number).sum::<f64>() / two.len() as f64)
        };
        let distinct = counts.len();
        let mut frequent: Vec<_> = counts.into_iter().collect();
        // The order of characters decides between those that are there as often.
        frequent.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        if frequent.first().is_none_or(|&(_, most)| most == 1) {
            frequent.clear();
        }
        let frequent = frequent.into_iter().take(FREQUENT);
        Self {
            name: name.to_owned(),
            kind,
            missing,
            distinct,
            min: first.map(shortened),
            max: last.map(shortened),
            sum,
            mean: sum.map(|sum| sum / numbers.len() as f64),
            median: median(&numbers),
            frequent: frequent.map(|(value, count)| Frequency { value: shortened(value), count }).collect(),
        }
    }
}

fn shortened(value: &str) -> String {
    value.chars().take(VALUE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Source;

    #[test]
    fn a_profile_has_the_figures_of_each_column() {
        let table = Source::Csv
            .read("id,who,price,on\n01,ann,9,2026-01-02\n02,bob,10.5,2025-12-31\n03,ann,,2026-01-01\n03,ann,,2026-01-01\n04\n")
            .unwrap();
        let profile = serde_json::to_value(Profile::of(&table)).unwrap();
        let expected = json!({
            "rows": 5, "duplicateRows": 1, "unevenRows": 1,
            "columns": [
                {"name": "id", "type": "text", "missing": 0, "distinct": 4, "min": "01", "max": "04",
                 "frequent": [{"value": "03", "count": 2}, {"value": "01", "count": 1}, {"value": "02", "count": 1},
                              {"value": "04", "count": 1}]},
                {"name": "who", "type": "text", "missing": 1, "distinct": 2, "min": "ann", "max": "bob",
                 "frequent": [{"value": "ann", "count": 3}, {"value": "bob", "count": 1}]},
                {"name": "price", "type": "number", "missing": 3, "distinct": 2, "min": "9", "max": "10.5",
                 "sum": 19.5, "mean": 9.75, "median": 9.75, "frequent": []},
                {"name": "on", "type": "date", "missing": 1, "distinct": 3, "min": "2025-12-31", "max": "2026-01-02",
                 "frequent": [{"value": "2026-01-01", "count": 2}, {"value": "2025-12-31", "count": 1},
                              {"value": "2026-01-02", "count": 1}]}
            ]
        });
        assert_eq!(profile, expected);
    }

    #[test]
    fn medians_are_of_one_or_of_two_in_the_middle() {
        for (cells, median) in [("1", 1.0), ("3\n1\n2", 2.0), ("1\n2\n3\n10", 2.5)] {
            let table = Source::Csv.read(&format!("n\n{cells}\n")).unwrap();
            assert_eq!(Profile::of(&table).columns[0].median, Some(median), "{cells}");
        }
    }

    #[test]
    fn an_empty_table_has_a_profile() {
        let profile = Profile::of(&Source::Csv.read("a,b\n").unwrap());
        assert_eq!((profile.rows, profile.columns.len(), profile.columns[0].kind), (0, 2, Kind::Empty));
    }
}
