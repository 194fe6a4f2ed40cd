//! Reads the figures that a worker computed from tables from its session's prompt.
//!
//! The built-in runtime follows no instructions. It takes only those sections of a prompt whose heading is a path in the
//! read roots, in backticks, and which have a table.

/// The most bytes of all sections together that are kept.
const MAX_BYTES: usize = 128 << 10;

/// The figures of one file.
pub(crate) struct Figures {
    /// The file, as the read roots spell it.
    pub(crate) path: String,
    /// Lines on the file and a table, as Markdown.
    pub(crate) text: String,
}

/// The figures in a prompt of files under these read roots.
pub(crate) fn figures(prompt: &str, roots: &[String]) -> Vec<Figures> {
    let mut found: Vec<Figures> = Vec::new();
    let (mut open, mut bytes) = (false, 0);
    for line in prompt.lines() {
        if line.starts_with('#') {
            let path = line.trim_start_matches('#').trim().strip_prefix('`').and_then(|path| path.strip_suffix('`'));
            let path =
                path.filter(|path| path.split_once('/').is_some_and(|(root, _)| roots.iter().any(|name| name == root)));
            open = path.is_some();
            found.extend(path.map(|path| Figures { path: path.to_owned(), text: String::new() }));
        } else if let Some(last) = found.last_mut().filter(|_| open) {
            bytes += line.len() + 1;
            if bytes > MAX_BYTES {
                break;
            }
            last.text.push_str(&plain(line));
            last.text.push('\n');
        }
    }
    found.retain(|figures| !figures.text.trim().is_empty());
    // Without any table the headings are of something else. A section without a table among others says why.
    let has_table = |figures: &Figures| figures.text.lines().any(|line| line.starts_with('|'));
    if found.iter().any(has_table) { found } else { Vec::new() }
}

/// Escapes tags and pictures in a line: its cells come from a table that anybody may have written. A backslash would not
/// do for a tag, since a cell may have one before it.
fn plain(line: &str) -> String {
    line.replace('<', "&lt;").replace("![", "!\\[")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = "You are exact.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n# The tables\n\n## `data/sales.csv`\n\n2 rows.\n\n\
        | column | type | mean |\n|---|---|---|\n| price <b> | number | 9.75 |\n| who | text |  |\n\n## `other/x.csv`\n\n\
        | c |\n|---|\n| 1 |\n";

    #[test]
    fn figures_stand_under_the_path_of_a_file() {
        let found = figures(PROMPT, &["data".to_owned()]);
        assert_eq!(found.iter().map(|figures| figures.path.as_str()).collect::<Vec<_>>(), ["data/sales.csv"]);
        assert!(found[0].text.contains("2 rows.") && found[0].text.contains("price &lt;b> | number"));
    }
}
