//! Reads and extends the sections of `.lore/heartbeat.md`.

/// The path from `.lore/`.
pub(crate) const FILE: &str = "heartbeat.md";
/// The section whose entries are carried out.
pub(crate) const STANDING_ORDERS: &str = "Standing Orders";
/// The last section, which the original writes itself.
const RECENT_ACTIVITY: &str = "Recent Activity";
/// The prefix of a section's heading.
const HEADING: &str = "## ";

/// The initial file of a project.
const EMPTY: &str = "\
---
status: active
---
# Heartbeat

A tick of this project has the manager read this file, and commission what is due.

- Standing Orders: one order a line, each beginning with `- `. An order can say that you are to be asked first.
- Watch Items: what to keep in view. Nothing is commissioned for them alone.
- Context Notes: what the manager should know, such as priorities.

## Standing Orders

## Watch Items

## Context Notes

## Recent Activity
";

/// Whether a text other than headings follows the first section's heading.
pub(crate) fn has_content(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(HEADING)).map(str::trim);
    lines.any(|line| !line.is_empty() && !line.starts_with(HEADING))
}

/// The number of standing orders.
pub(crate) fn orders(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    section(&lines, STANDING_ORDERS).filter(|(_, line)| line.trim_start().starts_with("- ")).count()
}

/// The text with one more entry at the end of a section, and otherwise unchanged; `None` if the section has the entry.
/// The text of a missing file is empty.
pub(crate) fn with_entry(text: &str, name: &str, entry: &str) -> Option<String> {
    let text = if text.is_empty() { EMPTY } else { text };
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let entry = format!("- {entry}");
    let lines: Vec<&str> = text.lines().collect();
    if section(&lines, name).any(|(_, line)| line.trim() == entry) {
        return None;
    }
    let (at, added) = match heading_of(&lines, name) {
        Some(heading) => {
            let last = section(&lines, name).filter(|(_, line)| !line.trim().is_empty()).last();
            (last.map_or(heading, |(at, _)| at) + 1, format!("{entry}{line_end}"))
        }
        None => {
            let at = heading_of(&lines, RECENT_ACTIVITY).unwrap_or(lines.len());
            (at, format!("{HEADING}{name}{line_end}{entry}{line_end}{line_end}"))
        }
    };
    let mut before: String = text.split_inclusive('\n').take(at).collect();
    if !before.is_empty() && !before.ends_with('\n') {
        before.push_str(line_end);
    }
    Some(before + &added + &text.split_inclusive('\n').skip(at).collect::<String>())
}

/// The index of the heading of a section.
fn heading_of(lines: &[&str], name: &str) -> Option<usize> {
    lines.iter().position(|line| line.strip_prefix(HEADING).is_some_and(|title| title.trim() == name))
}

/// The lines below the heading of a section, with their indices.
fn section<'a>(lines: &'a [&str], name: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let from = heading_of(lines, name).map_or(lines.len(), |at| at + 1);
    let own = lines.iter().copied().enumerate().skip(from);
    own.take_while(|(_, line)| !line.starts_with(HEADING))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "# Heartbeat\n\n- no order\n\n## Standing Orders\n- Tidy up\n  - on Mondays\n\n## Context Notes\n\nFreeze.\n";

    #[test]
    fn orders_are_the_items_of_their_section() {
        assert_eq!([FILE, EMPTY, "", "## Standing Orders"].map(orders), [2, 0, 0, 0]);
        assert_eq!(
            [FILE, EMPTY, "", "Text\n- a\n", "## Other\nText"].map(has_content),
            [true, false, false, false, true]
        );
    }

    #[test]
    fn an_entry_goes_to_the_end_of_its_section_once() {
        let orders = with_entry(FILE, STANDING_ORDERS, "Review").unwrap();
        assert_eq!(orders, FILE.replace("on Mondays\n", "on Mondays\n- Review\n"));
        assert_eq!(with_entry(&orders, STANDING_ORDERS, "Review"), None);
        let notes = with_entry(FILE, "Context Notes", "Note").unwrap();
        assert_eq!(notes, format!("{FILE}- Note\n"));
        let watched = with_entry(FILE, "Watch Items", "Mail").unwrap();
        assert_eq!(watched, format!("{FILE}## Watch Items\n- Mail\n\n"));
        let new = with_entry("", "Watch Items", "Mail").unwrap();
        assert_eq!(new, EMPTY.replace("## Watch Items\n", "## Watch Items\n- Mail\n"));
        assert_eq!(
            with_entry("## Recent Activity\n- a\n", "Watch Items", "Mail").unwrap(),
            "## Watch Items\n- Mail\n\n## Recent Activity\n- a\n"
        );
    }

    #[test]
    fn an_entry_leaves_the_rest_of_the_file_as_it_is() {
        let windows = "\u{feff}# Mine\r\n## Standing Orders\r\n- a\r\n\r\n## Context Notes\r\nb  \nc";
        let orders = with_entry(windows, STANDING_ORDERS, "Review").unwrap();
        assert_eq!(orders, windows.replace("- a\r\n", "- a\r\n- Review\r\n"));
        assert_eq!(with_entry(windows, "Context Notes", "d").unwrap(), format!("{windows}\r\n- d\r\n"));
        assert_eq!(with_entry("## Context Notes", "Context Notes", "d").unwrap(), "## Context Notes\n- d\n");
    }
}
