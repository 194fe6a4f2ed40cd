//! What is handed over: a file for each summary, and the report.

use std::fmt::Write;

/// Characters that the summaries in a report have together, where they are long; each of them has at least
/// [`LEAST_CHARS`], and is whole in its own file.
const ALL_CHARS: usize = 200_000;
const LEAST_CHARS: usize = 1500;
const MOST_CHARS: usize = 8000;

/// One file, and what became of it.
pub(crate) struct Part {
    /// As `files` spells it.
    pub(crate) path: String,
    /// The summary, or why there is none.
    pub(crate) summary: Result<String, String>,
}

/// All that a report says.
pub(crate) struct Report<'a> {
    /// What the job is called.
    pub(crate) title: &'a str,
    /// Which files were looked for.
    pub(crate) glob: &'a str,
    /// What was concentrated on.
    pub(crate) focus: Option<&'a str>,
    /// Every file that was summarised or should have been, in order.
    pub(crate) parts: &'a [Part],
    /// Files that were left out.
    pub(crate) left_out: &'a [String],
    /// The summaries merged into one, or why they are not; none while that is still to be seen.
    pub(crate) whole: Option<&'a Result<String, String>>,
}

impl Report<'_> {
    /// The report, as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let done: Vec<(usize, &str, &str)> = (1..)
            .zip(self.parts)
            .filter_map(|(n, part)| Some((n, part.path.as_str(), part.summary.as_ref().ok()?.as_str())))
            .collect();
        let failed: Vec<(&str, &str)> = self
            .parts
            .iter()
            .filter_map(|part| Some((part.path.as_str(), part.summary.as_ref().err()?.as_str())))
            .collect();

        let mut report = format!("# {}\n\n", self.title.split_whitespace().collect::<Vec<_>>().join(" "));
        let _ = write!(report, "A digest of {} that match `{}`", count(done.len(), "file"), self.glob);
        if let Some(focus) = self.focus {
            let _ = write!(report, ", with a focus on {focus}");
        }
        report.push_str(".\n");
        match self.whole {
            Some(Ok(whole)) => {
                let _ = write!(report, "\n## Overall\n\n{}\n", nested(whole, 2));
            }
            Some(Err(why)) => {
                let _ = write!(report, "\nThe summaries stand side by side, not merged: {why}.\n");
            }
            None => {}
        }
        report.push_str("\n## File by file\n");
        let most = (ALL_CHARS / done.len().max(1)).clamp(LEAST_CHARS, MOST_CHARS);
        for (n, path, summary) in done {
            let _ = write!(report, "\n### `{path}`\n\n{}\n", nested(&shortened(summary, most), 3));
            if summary.chars().nth(most).is_some() {
                let _ = write!(
                    report,
                    "\n(Shortened; the whole is in `artifacts/{}`.)\n",
                    artifact(n, self.parts.len(), path)
                );
            }
        }
        if !failed.is_empty() {
            report.push_str("\n## Not summarised\n\n");
            for (path, why) in failed {
                let _ = writeln!(report, "- `{path}`: {}", why.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        if !self.left_out.is_empty() {
            report.push_str("\n## Left out\n\n");
            self.left_out.iter().for_each(|path| report.push_str(&format!("- `{path}`\n")));
        }
        report
    }
}

/// A number of things.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Where the summary of the `n`th file of so many goes, under the job's artifacts.
pub(crate) fn artifact(n: usize, of: usize, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem });
    let plain: String = stem.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let plain: String = plain.trim_start_matches('.').chars().take(60).collect();
    format!("summaries/{n:0width$}-{plain}.md", width = of.to_string().len())
}

/// A text whose headings stand below a heading of this level.
fn nested(text: &str, below: usize) -> String {
    let mut fenced = false;
    let lines: Vec<(usize, &str)> = text
        .trim()
        .lines()
        .map(|line| {
            fenced ^= line.trim_start().starts_with("```");
            (if fenced { 0 } else { level(line) }, line)
        })
        .collect();
    let top = lines.iter().map(|(level, _)| *level).filter(|level| *level > 0).min().unwrap_or(1);
    let nested = lines.into_iter().map(|(level, line)| {
        let wanted = if level == 0 { 0 } else { (level + below + 1 - top).min(6) };
        format!("{}{line}", "#".repeat(wanted.saturating_sub(level)))
    });
    nested.collect::<Vec<_>>().join("\n")
}

/// The level of a heading of Markdown's, from 1; 0 for what is none.
pub(crate) fn level(line: &str) -> usize {
    let marks = line.chars().take_while(|c| *c == '#').count();
    if marks <= 6 && line.chars().nth(marks) == Some(' ') { marks } else { 0 }
}

/// The paragraphs of a text that fit into so many characters; the first is cut if it alone does not.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(most) else { return text.to_owned() };
    let start = text.get(..end).unwrap_or_default();
    let whole = start.rfind("\n\n").and_then(|end| start.get(..end)).filter(|whole| !whole.is_empty());
    let mut short = whole.unwrap_or(start).trim_end().to_owned();
    // A listing that is cut ends before what follows it.
    if short.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1 {
        short.push_str("\n```");
    }
    short.push_str("\n\n[…]");
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(path: &str, summary: Result<&str, &str>) -> Part {
        Part { path: path.into(), summary: summary.map(Into::into).map_err(Into::into) }
    }

    fn report(parts: &[Part], whole: Option<Result<&str, &str>>) -> String {
        let whole = whole.map(|whole| whole.map(String::from).map_err(String::from));
        let left_out = ["docs/z.md".to_owned()];
        Report { title: "Owls", glob: "*.md", focus: Some("eyes"), parts, left_out: &left_out, whole: whole.as_ref() }
            .markdown()
    }

    #[test]
    fn the_report_has_the_whole_each_file_and_what_is_missing() {
        let parts = [part("docs/a.md", Ok("# A\n\nIs first.")), part("docs/b.md", Err("it is\nempty"))];
        assert_eq!(
            report(&parts, Some(Ok("## All\n\nOwls."))),
            "# Owls\n\nA digest of 1 file that match `*.md`, with a focus on eyes.\n\n## Overall\n\n### All\n\nOwls.\n\n\
             ## File by file\n\n### `docs/a.md`\n\n#### A\n\nIs first.\n\n## Not summarised\n\n- `docs/b.md`: it is empty\n\n\
             ## Left out\n\n- `docs/z.md`\n"
        );
    }

    #[test]
    fn parts_that_were_not_merged_say_why() {
        let parts = [part("a", Ok("A.")), part("b", Ok("B."))];
        let text = report(&parts, Some(Err("the job's turns are used up")));
        assert!(
            text.contains("The summaries stand side by side, not merged: the job's turns are used up.\n"),
            "{text}"
        );
        assert!(!report(&parts, None).contains("side by side"));
    }

    #[test]
    fn long_summaries_are_shortened_and_say_where_the_whole_is() {
        let long = format!("First.\n\n```\n{}", "line\n\n".repeat(3000));
        let text = report(&[part("docs/a b.md", Ok(&long))], None);
        assert!(text.len() < MOST_CHARS + 500 && text.contains("```\n\n[…]\n"), "{text}");
        assert!(text.contains("(Shortened; the whole is in `artifacts/summaries/1-a-b.md`.)"), "{text}");
        assert_eq!(shortened(&"é".repeat(20), 10), format!("{}\n\n[…]", "é".repeat(10)));
    }

    #[test]
    fn artifacts_sort_as_the_files_do_and_have_plain_names() {
        assert_eq!(artifact(3, 12, "docs/sub/The guide.md"), "summaries/03-The-guide.md");
        assert_eq!(artifact(1, 9, "docs/../x/.hidden"), "summaries/1-hidden.md");
        assert_eq!(artifact(100, 200, "LICENSE"), "summaries/100-LICENSE.md");
    }

    #[test]
    fn headings_go_below_and_listings_stay_as_they_are() {
        assert_eq!(
            nested("## A\n```\n# b\n```\n### C\n##### D\n#tag\n", 3),
            "#### A\n```\n# b\n```\n##### C\n###### D\n#tag"
        );
    }
}
