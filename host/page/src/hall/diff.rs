//! Renders a patch: its files, and their lines by kind.

use maud::{Markup, html};

use crate::parts::text;

/// The most lines that are shown.
const LINES: usize = 5000;

/// The directory of the hall's records, which the page shows in its own way.
const RECORDS: &str = ".lore/work/commissions/";

/// The changes of one file, or the notes at the end of a patch.
#[derive(Default)]
struct File<'a> {
    name: &'a str,
    lines: Vec<(&'static str, &'a str)>,
}

impl File<'_> {
    fn count(&self, kind: &str) -> usize {
        self.lines.iter().filter(|(of, _)| *of == kind).count()
    }
}

/// A patch as a list of files that unfold.
pub(super) fn diff(patch: &str) -> Markup {
    let all = patch.lines().count();
    html! {
        @for file in files(patch) {
            @if file.name.is_empty() {
                @for (_, line) in &file.lines { p.quiet { (text(line)) } }
            } @else {
                details open[!file.name.starts_with(RECORDS)] {
                    summary {
                        code { (text(file.name)) }
                        " " span.added { "+" (file.count("added")) } " " span.removed { "−" (file.count("removed")) }
                    }
                    pre.diff tabindex="0" { @for (kind, line) in &file.lines { span class=(kind) { (text(line)) } "\n" } }
                }
            }
        }
        @if all > LINES { p.quiet { "The first " (LINES) " of " (all) " lines are shown." } }
    }
}

/// The files of a patch. A line of a file's content begins with a space, `+`, `-` or `\`, so it is never taken for the
/// beginning of a file or a note.
fn files(patch: &str) -> Vec<File<'_>> {
    let mut files: Vec<File<'_>> = Vec::new();
    let mut in_hunk = false;
    for line in patch.lines().take(LINES) {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let name = names.rsplit_once(" b/").map_or(names, |(_, name)| name);
            files.push(File { name, lines: Vec::new() });
            in_hunk = false;
            continue;
        }
        let kind = match line.chars().next() {
            Some('[') => {
                files.push(File { name: "", lines: vec![("note", line)] });
                continue;
            }
            Some('@') => {
                in_hunk = true;
                "hunk"
            }
            Some('+') if in_hunk => "added",
            Some('-') if in_hunk => "removed",
            _ if in_hunk => "context",
            _ => "head",
        };
        if let Some(file) = files.last_mut() {
            file.lines.push((kind, line));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_kinds_and_are_escaped() {
        let patch = "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n\
            @@ -1,2 +1,2 @@\n one\n--- two\n+<script>\u{202e}\ndiff --git a/new b/new\n@@ -0,0 +1 @@\n+[x]\n\
            [1 generated files left out: Cargo.lock]\n";
        let html = diff(patch).into_string();
        for shown in [
            "<code>src/a.rs</code> <span class=\"added\">+1</span> <span class=\"removed\">−1</span>",
            "<span class=\"head\">+++ b/src/a.rs</span>",
            "<span class=\"removed\">--- two</span>",
            "<span class=\"added\">+&lt;script&gt;\u{fffd}</span>",
            "<span class=\"added\">+[x]</span>",
            "<p class=\"quiet\">[1 generated files left out: Cargo.lock]</p>",
        ] {
            assert!(html.contains(shown), "{shown} is not in {html}");
        }
    }
}
