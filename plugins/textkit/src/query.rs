//! `query_table`.

use std::{cmp::Ordering, collections::BTreeMap};

use guild_plugin_sdk::toolbox::ToolError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tabular::{Kind, Source, Table, number, row_of};

/// Characters of a cell that a note shows.
const SHOWN: usize = 80;

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The table.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// How the text holds it; found out where it is not set.
    #[serde(default)]
    format: Source,
    /// Conditions that a row has to meet, all of them.
    #[serde(default, rename = "where")]
    #[schemars(length(max = 20))]
    conditions: Vec<Condition>,
    /// Columns by whose values rows are put together, one row for each group. The result has these columns, then the
    /// aggregates.
    #[serde(default)]
    #[schemars(length(max = 20))]
    group_by: Vec<String>,
    /// What is worked out for each group, or for all rows where there is no `groupBy`.
    #[serde(default)]
    #[schemars(length(max = 20))]
    aggregate: Vec<Aggregate>,
    /// Columns of the result, by the names that they have after aggregating; all of them where it is not set.
    #[serde(default)]
    #[schemars(length(max = 200))]
    select: Vec<String>,
    /// Columns of the result to sort by, the weightiest first.
    #[serde(default)]
    #[schemars(length(max = 20))]
    sort: Vec<Sort>,
    /// Rows to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// Rows to answer with at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
}

fn hundred() -> usize {
    100
}

/// A condition.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Condition {
    /// The column.
    #[schemars(length(max = 1000))]
    column: String,
    /// How its cell is compared with the value: as numbers where both are, else as texts. `contains` does not tell capital
    /// from small letters; `empty` and `filled` take no value.
    op: Op,
    /// The value, as a text also where it is a number.
    #[serde(default)]
    #[schemars(length(max = 10_000))]
    value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Op {
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    Unequal,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    More,
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "contains")]
    Contains,
    #[serde(rename = "empty")]
    Empty,
    #[serde(rename = "filled")]
    Filled,
}

/// A figure over the rows of a group.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Aggregate {
    /// Which: `count` counts rows, or with a column its cells that are not empty; `distinct` counts different values;
    /// `min` and `max` are of numbers where the column has only those, else the first and the last text (so of ISO
    /// dates, too). `sum`, `mean` and `median` leave out cells that are no numbers, and `notes` says how many.
    function: Function,
    /// The column; only `count` goes without one.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    column: Option<String>,
    /// What the result's column is called; `sum_price`, say, where it is not set.
    #[serde(default, rename = "as")]
    #[schemars(length(min = 1, max = 1000))]
    name: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Function {
    Count,
    Distinct,
    Sum,
    Mean,
    Median,
    Min,
    Max,
}

/// A column to sort by.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sort {
    /// The column. Numbers go by size, everything else by characters; empty cells come last.
    #[schemars(length(max = 1000))]
    column: String,
    /// Whether the largest comes first.
    #[serde(default)]
    descending: bool,
}

/// The answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Columns of the answer, in order.
    columns: Vec<String>,
    /// How many rows the answer has in all, before `offset` and `limit`.
    total: usize,
    /// The rows. Numbers where a whole column is numbers; null for empty cells.
    rows: Vec<Map<String, Value>>,
    /// What a figure leaves out: cells that are no numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub(crate) fn query_table(input: Input) -> Result<Answer, ToolError> {
    let table = input.format.read(&input.text).map_err(ToolError::InvalidInput)?;
    let (answer, notes) = if input.group_by.is_empty() && input.aggregate.is_empty() {
        (filtered(&table, &input.conditions)?, Vec::new())
    } else {
        grouped(&table, &input)?
    };
    let rows = sorted(&answer, &input.sort)?;
    let columns = if input.select.is_empty() { answer.columns().to_vec() } else { input.select };
    let places = columns.iter().map(|name| place(&answer, "select", name)).collect::<Result<Vec<_>, _>>()?;
    let all = answer.kinds();
    let kinds: Vec<Kind> = places.iter().filter_map(|&place| all.get(place).copied()).collect();
    let shown = rows.iter().skip(input.offset).take(input.limit).map(|row| {
        let cells: Vec<String> = places.iter().filter_map(|&place| row.get(place).cloned()).collect();
        row_of(&columns, &kinds, &cells)
    });
    let rows = shown.collect();
    Ok(Answer { total: answer.rows().len(), columns, rows, notes })
}

/// A column, by a field of the input.
fn place(table: &Table, field: &str, name: &str) -> Result<usize, ToolError> {
    table.column(name).map_err(|e| ToolError::InvalidInput(format!("`{field}`: {e}")))
}

/// The rows that meet all conditions.
fn filtered(table: &Table, conditions: &[Condition]) -> Result<Table, ToolError> {
    let mut tests = Vec::new();
    for condition in conditions {
        let takes_value = !matches!(condition.op, Op::Empty | Op::Filled);
        if takes_value != condition.value.is_some() {
            let wanted = if takes_value { "needs a `value`" } else { "takes no `value`" };
            return Err(ToolError::InvalidInput(format!("`where`: the condition on {:?} {wanted}", condition.column)));
        }
        let value = condition.value.as_deref().unwrap_or_default();
        tests.push((place(table, "where", &condition.column)?, condition.op, value, value.to_lowercase()));
    }
    let meets = |row: &&Vec<String>| {
        tests.iter().all(|(place, op, value, small)| {
            let cell = row.get(*place).map(String::as_str).unwrap_or_default();
            match op {
                Op::Empty => cell.trim().is_empty(),
                Op::Filled => !cell.trim().is_empty(),
                Op::Contains => cell.to_lowercase().contains(small),
                Op::Equal => compared(cell, value) == Ordering::Equal,
                Op::Unequal => compared(cell, value) != Ordering::Equal,
                // What is not there is neither more nor less.
                _ if cell.trim().is_empty() => false,
                Op::Less => compared(cell, value).is_lt(),
                Op::AtMost => compared(cell, value).is_le(),
                Op::More => compared(cell, value).is_gt(),
                Op::AtLeast => compared(cell, value).is_ge(),
            }
        })
    };
    let rows = table.rows().iter().filter(meets).cloned().collect();
    Ok(Table::new(table.columns().to_vec(), rows)?)
}

/// As numbers where both are, else as texts.
fn compared(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.trim().cmp(b.trim()),
    }
}

fn sorted<'a>(table: &'a Table, by: &[Sort]) -> Result<Vec<&'a Vec<String>>, ToolError> {
    let by = by.iter().map(|sort| Ok((place(table, "sort", &sort.column)?, sort.descending)));
    let by = by.collect::<Result<Vec<_>, ToolError>>()?;
    let kinds = table.kinds();
    let cell = |row: &'a Vec<String>, place: usize| row.get(place).map_or("", |cell| cell.trim());
    let mut rows: Vec<&Vec<String>> = table.rows().iter().collect();
    rows.sort_by(|a, b| {
        let orders = by.iter().map(|&(place, descending)| {
            let (a, b) = (cell(a, place), cell(b, place));
            // Numbers and texts in one column have no order of both kinds, so such a column is texts.
            let numeric = kinds.get(place).is_some_and(|kind| kind.is_numeric());
            match (a.is_empty(), b.is_empty()) {
                (false, false) => {
                    let order = if numeric { compared(a, b) } else { a.cmp(b) };
                    if descending { order.reverse() } else { order }
                }
                (a, b) => a.cmp(&b),
            }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    });
    Ok(rows)
}

/// One row for each group, in the order of their first rows; and what their figures leave out.
fn grouped(table: &Table, input: &Input) -> Result<(Table, Vec<String>), ToolError> {
    let table = filtered(table, &input.conditions)?;
    let kinds = table.kinds();
    let by = input.group_by.iter().map(|name| place(&table, "groupBy", name)).collect::<Result<Vec<_>, _>>()?;
    let mut columns = input.group_by.clone();
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for aggregate in &input.aggregate {
        let of = aggregate.column.as_deref().map(|name| place(&table, "aggregate", name)).transpose()?;
        if of.is_none() && aggregate.function != Function::Count {
            return Err(ToolError::InvalidInput("`aggregate`: only `count` goes without a `column`".to_owned()));
        }
        let name = aggregate.name.clone().unwrap_or_else(|| match &aggregate.column {
            Some(column) => format!("{}_{column}", aggregate.function.name()),
            None => aggregate.function.name().to_owned(),
        });
        if columns.contains(&name) {
            return Err(ToolError::InvalidInput(format!(
                "`aggregate`: two columns would be called {name:?}; set `as` for one of them"
            )));
        }
        let averaged = matches!(aggregate.function, Function::Sum | Function::Mean | Function::Median);
        if let Some(place) = of.filter(|_| averaged) {
            let filled = table.cells(place).filter(|cell| !cell.trim().is_empty());
            let texts: Vec<&str> = filled.filter(|cell| number(cell).is_none()).collect();
            if let Some(first) = texts.first() {
                let shown: String = first.trim().chars().take(SHOWN).collect();
                notes.push(format!("{name:?} leaves out {} cells that are no numbers, such as {shown:?}", texts.len()));
            }
        }
        columns.push(name);
        let numeric = of.and_then(|place| kinds.get(place)).is_some_and(|kind| kind.is_numeric());
        figures.push((aggregate.function, of, numeric));
    }
    let mut places = BTreeMap::<Vec<&str>, usize>::new();
    let mut groups: Vec<(Vec<String>, Vec<&Vec<String>>)> = Vec::new();
    if by.is_empty() {
        // All rows are one group, also where there are none.
        places.insert(Vec::new(), 0);
        groups.push((Vec::new(), Vec::new()));
    }
    for row in table.rows() {
        let key: Vec<&str> = by.iter().filter_map(|&place| row.get(place).map(String::as_str)).collect();
        let next = groups.len();
        let place = *places.entry(key.clone()).or_insert(next);
        if place == next {
            groups.push((key.into_iter().map(str::to_owned).collect(), Vec::new()));
        }
        if let Some((_, rows)) = groups.get_mut(place) {
            rows.push(row);
        }
    }
    let rows = groups.into_iter().map(|(mut cells, rows)| {
        cells.extend(figures.iter().map(|(function, of, numeric)| function.of(&rows, *of, *numeric)));
        cells
    });
    Ok((Table::new(columns, rows.collect())?, notes))
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Distinct => "distinct",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// The figure as a cell; empty where there is none. `numeric` says whether the column has numbers only.
    fn of(self, rows: &[&Vec<String>], column: Option<usize>, numeric: bool) -> String {
        let cells = || {
            let cells = rows.iter().filter_map(|row| row.get(column?));
            cells.map(|cell| cell.trim()).filter(|cell| !cell.is_empty())
        };
        let mut numbers: Vec<f64> = cells().filter_map(number).collect();
        numbers.sort_by(f64::total_cmp);
        let sum = || numbers.iter().sum::<f64>();
        let middle = || {
            let middle = numbers.get((numbers.len() - 1) / 2..=numbers.len() / 2).unwrap_or_default();
            middle.iter().sum::<f64>() / middle.len() as f64
        };
        let figure = match self {
            Self::Count if column.is_none() => rows.len() as f64,
            Self::Count => cells().count() as f64,
            Self::Distinct => cells().collect::<std::collections::BTreeSet<_>>().len() as f64,
            Self::Min if !numeric => return cells().min().unwrap_or_default().to_owned(),
            Self::Max if !numeric => return cells().max().unwrap_or_default().to_owned(),
            _ if numbers.is_empty() => return String::new(),
            Self::Sum => sum(),
            Self::Mean => sum() / numbers.len() as f64,
            Self::Median => middle(),
            Self::Min => numbers.first().copied().unwrap_or_default(),
            Self::Max => numbers.last().copied().unwrap_or_default(),
        };
        figure.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::call;

    const SALES: &str = "region,product,price,sold\nnorth,tea,2.5,10\nsouth,tea,3,\nnorth,milk,1,7\neast,Green Tea,4,2\n\
                         north,tea,2.5,3\n";

    fn query(mut input: Value) -> Value {
        input["text"] = SALES.into();
        call("query_table", input).unwrap()
    }

    fn error(mut input: Value) -> String {
        input["text"] = SALES.into();
        call("query_table", input).unwrap_err()
    }

    #[test]
    fn rows_are_filtered_sorted_and_cut() {
        let answer = query(json!({
            "where": [{"column": "product", "op": "contains", "value": "TEA"}, {"column": "price", "op": "<", "value": "10"}],
            "sort": [{"column": "price", "descending": true}, {"column": "sold"}],
            "select": ["price", "sold", "region"], "offset": 1, "limit": 2
        }));
        let expected = json!({
            "columns": ["price", "sold", "region"], "total": 4,
            "rows": [{"price": 3.0, "sold": null, "region": "south"}, {"price": 2.5, "sold": 3, "region": "north"}]
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn every_condition_compares_as_it_says() {
        for (op, value, total) in [
            ("=", "7.0", 1),
            ("!=", "7", 4),
            ("<", "7", 2),
            ("<=", "7", 3),
            (">", "7", 1),
            (">=", "7", 2),
            ("contains", "1", 1),
        ] {
            let answer = query(json!({"where": [{"column": "sold", "op": op, "value": value}]}));
            assert_eq!(answer["total"], total, "{op}");
        }
        assert_eq!(query(json!({"where": [{"column": "sold", "op": "empty"}]}))["total"], 1);
        assert_eq!(query(json!({"where": [{"column": "sold", "op": "filled"}]}))["total"], 4);
    }

    #[test]
    fn groups_have_their_figures() {
        let answer = query(json!({
            "groupBy": ["region"],
            "aggregate": [
                {"function": "count"}, {"function": "sum", "column": "sold", "as": "sold"},
                {"function": "median", "column": "sold"}, {"function": "distinct", "column": "product"},
                {"function": "max", "column": "price"}
            ],
            "sort": [{"column": "sold", "descending": true}]
        }));
        let row = |region: &str, count: u32, sold: Value, median: Value, distinct: u32, max: f64| {
            json!({"region": region, "count": count, "sold": sold, "median_sold": median, "distinct_product": distinct,
                   "max_price": max})
        };
        let expected = json!([
            row("north", 3, json!(20), json!(7), 2, 2.5),
            row("east", 1, json!(2), json!(2), 1, 4.0),
            row("south", 1, json!(null), json!(null), 1, 3.0)
        ]);
        assert_eq!(answer["rows"], expected);
    }

    #[test]
    fn without_groups_all_rows_are_one() {
        let sums = json!([{"function": "sum", "column": "sold"}, {"function": "mean", "column": "price"}]);
        assert_eq!(query(json!({"aggregate": sums}))["rows"], json!([{"sum_sold": 22, "mean_price": 2.6}]));
        let none =
            json!({"where": [{"column": "region", "op": "=", "value": "west"}], "aggregate": [{"function": "count"}]});
        assert_eq!(query(none)["rows"], json!([{"count": 0}]));
    }

    #[test]
    fn a_figure_says_what_it_leaves_out_and_texts_have_a_first_and_a_last() {
        let call =
            |text: &str, aggregate: Value| call("query_table", json!({"text": text, "aggregate": aggregate})).unwrap();
        let sums = json!([{"function": "sum", "column": "n"}, {"function": "max", "column": "on"}]);
        let answer = call("n,on\n1,2026-01-02\n\"1,000\",2025-12-31\n,\n", sums);
        assert_eq!(answer["rows"], json!([{"sum_n": 1, "max_on": "2026-01-02"}]));
        assert_eq!(answer["notes"], json!(["\"sum_n\" leaves out 1 cells that are no numbers, such as \"1,000\""]));
        assert_eq!(call("n\n1\n", json!([{"function": "sum", "column": "n"}])).get("notes"), None);
    }

    #[test]
    fn what_cannot_be_answered_names_the_field_and_the_columns() {
        assert!(
            error(json!({"sort": [{"column": "Price"}]}))
                .contains("`sort`: there is no column \"Price\"; the columns are region, product")
        );
        assert!(error(json!({"select": ["x"]})).starts_with("`select`"));
        assert!(error(json!({"aggregate": [{"function": "sum"}]})).contains("only `count`"));
        assert!(error(json!({"aggregate": [{"function": "count"}, {"function": "count"}]})).contains("set `as`"));
        assert!(error(json!({"where": [{"column": "sold", "op": "="}]})).contains("needs a `value`"));
        assert!(error(json!({"where": [{"column": "sold", "op": "empty", "value": "x"}]})).contains("takes no"));
        assert!(error(json!({"where": [{"column": "sold", "op": "like", "value": "x"}]})).contains("like"));
    }
}
