//! What was found, as a table, a note and a report.

use std::{collections::BTreeMap, fmt::Write};

/// Files, in the order in which they were found.
pub(crate) struct Survey {
    paths: Vec<String>,
}

impl Survey {
    pub(crate) fn of(paths: Vec<String>) -> Self {
        Self { paths }
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    /// Every file with its kind, as CSV with a header.
    pub(crate) fn csv(&self) -> String {
        let mut csv = "path,kind\n".to_owned();
        for path in &self.paths {
            let _ = writeln!(csv, "{},{}", field(path), field(kind(path)));
        }
        csv
    }

    /// The line to compare the next survey with.
    pub(crate) fn note(&self, glob: &str) -> String {
        format!("{glob} matched {} files", self.len())
    }

    /// The first files, one a line, for a prompt.
    pub(crate) fn sample(&self) -> String {
        self.paths.iter().take(100).map(|path| format!("- {path}\n")).collect()
    }

    /// The report: counts by kind, largest first, and what the last survey saw.
    pub(crate) fn report(&self, title: &str, glob: &str, last: Option<&str>) -> String {
        let mut report = format!("# {title}\n\n`{glob}` matches {} files.\n", self.len());
        if let Some(last) = last {
            let _ = writeln!(report, "The last survey: {last}.");
        }
        if self.len() == 0 {
            return report;
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        for path in &self.paths {
            *counts.entry(kind(path)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        report.push_str("\n| kind | files |\n|---|---|\n");
        for (kind, count) in counts {
            let kind = if kind.is_empty() { "(none)" } else { kind };
            let _ = writeln!(report, "| {} | {count} |", kind.replace('|', "\\|"));
        }
        report.push_str("\nEvery file is in `artifacts/files.csv`.\n");
        report
    }
}

/// A file's extension; empty where it has none.
fn kind(path: &str) -> &str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match name.rsplit_once('.') {
        Some((stem, kind)) if !stem.is_empty() => kind,
        _ => "",
    }
}

/// A CSV field (RFC 4180): quoted where it has to be.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        Survey::of(["docs/a.md", "docs/b,c.md", "docs/.hidden", "docs/v1.0/README"].map(str::to_owned).to_vec())
    }

    #[test]
    fn the_table_has_every_file_and_quotes_what_needs_it() {
        assert_eq!(survey().csv(), "path,kind\ndocs/a.md,md\n\"docs/b,c.md\",md\ndocs/.hidden,\ndocs/v1.0/README,\n");
    }

    #[test]
    fn the_report_counts_by_kind_and_compares_with_the_last_survey() {
        let report = survey().report("Docs", "**/*", Some("**/* matched 3 files"));
        assert!(report.starts_with("# Docs\n\n`**/*` matches 4 files.\nThe last survey: **/* matched 3 files.\n"));
        assert!(report.contains("| (none) | 2 |\n| md | 2 |"));
    }

    #[test]
    fn a_survey_of_nothing_has_no_table() {
        assert_eq!(Survey::of(Vec::new()).report("t", "*.x", None), "# t\n\n`*.x` matches 0 files.\n");
    }
}
