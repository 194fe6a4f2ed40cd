//! Renders a table that a job wrote.

use maud::{Markup, html};

use crate::{
    frame::page,
    parts::{Viewer, encoded, job_path, number, text},
};

/// A table of a job's files.
#[derive(Debug)]
pub struct Table {
    /// The member's key.
    pub member: String,
    /// The job's id.
    pub job: String,
    /// The path, as `artifacts/NAME`.
    pub path: String,
    /// The first rows; the first of all has the names of the columns.
    pub rows: Vec<Vec<String>>,
    /// Whether there are more rows.
    pub more: bool,
}

/// The whole page.
pub fn table(viewer: &Viewer, table: &Table) -> String {
    let job = job_path(&table.member, &table.job);
    let (names, rows) = table.rows.split_first().map_or((&[][..], &[][..]), |(names, rows)| (names.as_slice(), rows));
    let body = html! {
        p.quiet { a href=(job) { "The job" } }
        h1 id="file" { (text(&table.path)) }
        p { a href={ (job) "?raw&file=" (encoded(&table.path)) } { "As text" } }
        div.scroll tabindex="0" role="region" aria-labelledby="file" { table {
            thead { tr { @for name in names { th scope="col" { (text(name)) } } } }
            tbody { @for row in rows { tr { @for cell in row { (of_cell(cell)) } } } }
        } }
        @if table.more { p.quiet { "These are the first " (number(rows.len() as u64)) " rows." } }
    };
    page(&table.path, Some(viewer), &body)
}

fn of_cell(cell: &str) -> Markup {
    let is_number = cell.parse::<f64>().is_ok();
    html! { td class=[is_number.then_some("number")] { (text(cell)) } }
}
