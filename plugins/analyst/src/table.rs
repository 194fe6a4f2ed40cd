//! Tables out of files, and their figures as a session reads them.

use std::fmt::Write;

use guild_plugin_sdk::{explain, files};
use tabular::{ColumnProfile, Profile, Source};

/// Bytes of a file that are read.
pub(crate) const MAX_BYTES: usize = 1_000_000;
/// What the host puts after the part of a line that it shows.
const CUT: &str = " (cut)";
/// Columns whose figures a prompt has.
const MAX_COLUMNS: usize = 50;
/// Files that are named, of those that were left out.
const NAMED: usize = 20;

/// A table's text, and whether that is all of its file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) text: String,
    pub(crate) whole: bool,
}

/// Reads a file: all of it, or its first [`MAX_BYTES`], and no part of a line.
pub(crate) fn read(path: &str) -> Result<Content, String> {
    let mut content = Content::default();
    let mut next = Some(1);
    while let Some(line) = next.take_if(|_| content.text.len() <= MAX_BYTES) {
        next = content.add(&files::read(path, line, u32::MAX).map_err(explain)?)?;
    }
    content.whole = next.is_none();
    Ok(content)
}

impl Content {
    /// Takes what `files::read` answered: lines with their numbers before them. Where it stopped for their size, the
    /// number of the next.
    fn add(&mut self, numbered: &str) -> Result<Option<u32>, String> {
        let mut number = 0;
        for line in numbered.lines() {
            let Some((before, line)) = line.split_once('\t') else { return Ok(Some(number + 1)) };
            number = before.trim().parse().map_err(|_| "the host numbers no lines".to_owned())?;
            if line.ends_with(CUT) {
                return Err(format!("line {number} is too long to be read whole"));
            }
            self.text.push_str(line);
            self.text.push('\n');
        }
        Ok(None)
    }
}

/// The figures of the table in a file, and whether they are of all of it; else why there are none.
pub(crate) fn of_file(path: &str) -> Result<(Profile, bool), String> {
    let content = read(path)?;
    Ok((Profile::of(&Source::Auto.read(&content.text)?), content.whole))
}

/// A table's part of the prompt.
pub(crate) fn section(path: &str, figures: &Result<(Profile, bool), String>) -> String {
    let mut text = format!("## `{path}`\n\n");
    match figures {
        Ok((profile, whole)) => write_figures(&mut text, profile, *whole),
        Err(reason) => {
            let _ = write!(text, "There are no figures of this table: {reason}");
        }
    }
    text
}

fn write_figures(text: &mut String, profile: &Profile, whole: bool) {
    let of = if whole {
        String::new()
    } else {
        " in the beginning of the file, which is longer than what is read".to_owned()
    };
    let _ = write!(
        text,
        "{} rows{of}. {} of them are duplicates, and {} have another number of cells than the header.\n\n\
         | column | type | missing | distinct | min | max | sum | mean | median | most frequent |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        profile.rows, profile.duplicate_rows, profile.uneven_rows
    );
    for column in profile.columns.iter().take(MAX_COLUMNS) {
        let _ = write!(text, "\n{}", row(column));
    }
    if profile.columns.len() > MAX_COLUMNS {
        let _ = write!(text, "\n\nThere are {} more columns.", profile.columns.len() - MAX_COLUMNS);
    }
}

fn row(column: &ColumnProfile) -> String {
    let figure = |figure: Option<f64>| figure.map_or_else(String::new, |figure| figure.to_string());
    let frequent = column.frequent.iter().map(|value| format!("{} ({})", value.value, value.count));
    let cells = [
        column.name.clone(),
        format!("{:?}", column.kind).to_lowercase(),
        column.missing.to_string(),
        column.distinct.to_string(),
        column.min.clone().unwrap_or_default(),
        column.max.clone().unwrap_or_default(),
        figure(column.sum),
        figure(column.mean),
        figure(column.median),
        frequent.collect::<Vec<_>>().join("; "),
    ];
    // A cell cannot end its row, nor begin a line of its own.
    let cells = cells.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"));
    format!("| {} |", cells.join(" | "))
}

/// What a session is told of files that match, too, and whose figures it does not have.
pub(crate) fn left_out(paths: &[String]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let named = paths.iter().take(NAMED).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let more = if paths.len() > NAMED { format!(" and {} more", paths.len() - NAMED) } else { String::new() };
    format!("\n\nThere are other tables, without figures here: {named}{more}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(csv: &str, whole: bool) -> String {
        section("data/a.csv", &Ok((Profile::of(&Source::Csv.read(csv).unwrap()), whole)))
    }

    #[test]
    fn a_section_has_the_figures_and_no_cell_leaves_its_place() {
        let text = figures("n,\"a|b\nIgnore this\"\n1,x\n2,x\n", true);
        assert!(text.starts_with("## `data/a.csv`\n\n2 rows. 0 of them are duplicates"), "{text}");
        assert!(text.contains("\n| n | integer | 0 | 2 | 1 | 2 | 3 | 1.5 | 1.5 |  |\n"), "{text}");
        assert!(text.ends_with("\n| a\\|b Ignore this | text | 0 | 1 | x | x |  |  |  | x (2) |"), "{text}");
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(figures("a\n1\n", false).contains("1 rows in the beginning of the file, which is longer"));
        assert!(section("a", &Err("it is too large".into())).ends_with("no figures of this table: it is too large"));
        let wide = (0..60).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
        assert!(figures(&format!("{wide}\n"), true).ends_with("There are 10 more columns."));
        assert_eq!(left_out(&[]), "");
        let many: Vec<String> = (0..22).map(|n| n.to_string()).collect();
        assert!(left_out(&many).ends_with("`19` and 2 more."));
    }

    #[test]
    fn lines_lose_their_numbers_and_keep_their_tabs() {
        let mut content = Content::default();
        assert_eq!(content.add("     1\ta\tb\n     2\t\n(cut here: go on with offset 3)\n"), Ok(Some(3)));
        assert_eq!(content.add("     3\tc\n"), Ok(None));
        assert_eq!(content.text, "a\tb\n\nc\n");
        assert!(content.add("     4\tsome of it (cut)\n").unwrap_err().starts_with("line 4 is too long"));
    }
}
