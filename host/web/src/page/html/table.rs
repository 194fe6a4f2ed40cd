//! Expands table cells over several rows or columns, since Markdown requires equal columns in all rows.

use dom_query::NodeRef;

/// The maximum length of a cell's text that is repeated, in bytes.
const MAX_REPEATED_BYTES: usize = 100;

/// Gives all rows of a table the same columns. `room` is the number of bytes and cells that may still be added to the
/// page.
///
/// Returns false if the room is too small.
pub(super) fn align(table: &NodeRef<'_>, room: &mut usize) -> bool {
    let rows: Vec<NodeRef<'_>> = table.descendants_it().filter(|node| node.has_name("tr")).collect();
    // A cell may claim any number of columns, so no row gets more than the longest has cells.
    let widest = rows.iter().map(|row| cells(row).len()).max().unwrap_or(0);
    let mut columns: Vec<Column> = Vec::new();
    let mut widths = Vec::new();
    for row in &rows {
        let mut at = 0;
        for cell in cells(row) {
            while let Some(above) = columns.get_mut(at).filter(|column| column.rows > 0) {
                let Some(new) = repeated(&cell, &above.text, room) else { return false };
                cell.insert_before(&new);
                above.rows -= 1;
                at += 1;
            }
            let spans = |name| cell.attr(name).and_then(|count| count.trim().parse::<usize>().ok());
            let below = match spans("rowspan") {
                Some(0) => usize::MAX,
                count => count.map_or(0, |count| count - 1),
            };
            let width = spans("colspan").unwrap_or(1).clamp(1, widest.max(1));
            let text = if below > 0 || width > 1 { start_of(&cell) } else { String::new() };
            for beside in 0..width {
                if beside > 0 {
                    let Some(new) = repeated(&cell, &text, room) else { return false };
                    cell.insert_after(&new);
                }
                if columns.len() <= at {
                    columns.push(Column::default());
                }
                if let Some(column) = columns.get_mut(at) {
                    column.rows = below;
                    column.text.clone_from(&text);
                }
                at += 1;
            }
        }
        let Some(last) = cells(row).pop() else { continue };
        let end = columns.iter().rposition(|column| column.rows > 0).map_or(0, |last| last + 1);
        for column in columns.iter_mut().take(end).skip(at) {
            let text = if column.rows > 0 { column.text.as_str() } else { "" };
            let Some(new) = repeated(&last, text, room) else { return false };
            row.append_child(&new);
            column.rows = column.rows.saturating_sub(1);
        }
        widths.push((last, row, at.max(end)));
    }
    let most = widths.iter().map(|(.., width)| *width).max().unwrap_or(0);
    for (like, row, width) in widths {
        for _ in width..most {
            let Some(new) = repeated(&like, "", room) else { return false };
            row.append_child(&new);
        }
    }
    true
}

/// A cell above that extends down into a column.
#[derive(Default)]
struct Column {
    /// The number of further rows.
    rows: usize,
    text: String,
}

fn cells<'a>(row: &NodeRef<'a>) -> Vec<NodeRef<'a>> {
    row.children_it(false).filter(|node| node.has_name("td") || node.has_name("th")).collect()
}

/// The beginning of a cell's text, for repetition.
fn start_of(cell: &NodeRef<'_>) -> String {
    let mut text = String::new();
    for node in cell.descendants_it().filter(NodeRef::is_text) {
        text.push_str(&node.text());
        if text.len() > MAX_REPEATED_BYTES {
            text.truncate(text.floor_char_boundary(MAX_REPEATED_BYTES));
            text.push('…');
            break;
        }
    }
    text
}

/// A new cell of the same kind as `like`, if there is room for it.
fn repeated<'a>(like: &NodeRef<'a>, text: &str, room: &mut usize) -> Option<NodeRef<'a>> {
    *room = room.checked_sub(text.len() + 1)?;
    let cell = like.tree.new_element(if like.has_name("th") { "th" } else { "td" });
    cell.append_child(&like.tree.new_text(text));
    Some(cell)
}
