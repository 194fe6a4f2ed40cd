//! Condenses memories without a model: the newest first, each line once.

use std::collections::HashSet;

use guild_contract::text::cut;
use guild_session::activation::MemoryNote;

/// One text of at most `max_chars` characters: for each memory, newest first, a heading and its lines, as far as there is
/// room. The same memories give the same text.
pub(crate) fn condense(memories: &[MemoryNote], max_chars: usize) -> String {
    let mut memories: Vec<&MemoryNote> = memories.iter().collect();
    memories.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.key.cmp(&b.key)));
    let (mut said, mut text): (HashSet<&str>, String) = Default::default();
    for note in memories {
        let lines: Vec<&str> = note.content.lines().map(str::trim).filter(|line| said.insert(line)).collect();
        let lines = lines.join("\n");
        if lines.contains(char::is_alphanumeric) {
            let between = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!("{between}## {}\n{}", note.key, lines.trim()));
        }
    }
    let (kept, is_whole) = cut(&text, max_chars);
    // A line that does not fit is left out.
    let end = if is_whole { kept.len() } else { kept.rfind('\n').unwrap_or_default() };
    kept.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use guild_contract::manifest::Scope;

    use super::*;

    fn note(key: &str, content: &str, modified: &str) -> MemoryNote {
        MemoryNote {
            scope: Scope::Worker,
            key: key.to_owned(),
            content: content.to_owned(),
            modified: modified.to_owned(),
            origin: None,
        }
    }

    #[test]
    fn a_repeated_line_is_kept_once_and_the_newest_memory_comes_first() {
        let memories = [
            note("old", "The deploy key rotates every March.\nOld detail about Perl.", "2026-01-01T00:00:00Z"),
            note("new", "The deploy key rotates every March.\nThe staging host is gamma.", "2026-02-01T00:00:00Z"),
        ];
        let text = condense(&memories, 1000);
        assert_eq!(
            text,
            "## new\nThe deploy key rotates every March.\nThe staging host is gamma.\n\n## old\nOld detail about Perl."
        );
        let reversed: Vec<MemoryNote> = memories.iter().rev().cloned().collect();
        assert_eq!(condense(&reversed, 1000), text);
    }

    #[test]
    fn any_cap_holds() {
        let memories: Vec<MemoryNote> = (0..30)
            .map(|n| {
                note(
                    &format!("key-{n}"),
                    &format!("Fact number {n} is about subject{n} übrigens.\n").repeat(3),
                    "2026-01-01T00:00:00Z",
                )
            })
            .collect();
        for max in [0, 10, 60, 500, 100_000] {
            assert!(condense(&memories, max).chars().count() <= max, "{max}");
        }
        assert!(condense(&memories, 500).contains("## key-"));
    }
}
