//! Memories condensed without a model: the most informative sentences, newer ones preferred, each once.

use std::collections::{HashMap, HashSet};

use guild_session::activation::MemoryNote;

use super::terms::{sentences, similarity, stems};

/// Two lines whose stems are at least this similar say the same.
const SAME: f32 = 0.8;

/// A sentence or line of a memory.
struct Sentence<'a> {
    memory: usize,
    text: &'a str,
    stems: HashSet<String>,
}

/// One text of at most `max_chars` characters: for each memory of which something is kept, newest first, a heading and
/// the lines that are kept, in their order. The same memories give the same text.
pub(crate) fn condense(memories: &[MemoryNote], max_chars: usize) -> String {
    let mut memories: Vec<&MemoryNote> = memories.iter().collect();
    memories.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.key.cmp(&b.key)));
    let mut lines: Vec<Sentence<'_>> = Vec::new();
    for (memory, note) in memories.iter().enumerate() {
        for line in note.content.lines().map(str::trim) {
            let parts = if line.len() > 300 { sentences(line).collect() } else { vec![line] };
            let parts = parts.into_iter().filter(|text| text.contains(char::is_alphanumeric));
            lines.extend(parts.map(|text| Sentence { memory, text, stems: stems(text) }));
        }
    }
    let mut having: HashMap<&str, f32> = HashMap::new();
    for line in &lines {
        line.stems.iter().for_each(|stem| *having.entry(stem).or_default() += 1.0);
    }
    let all = lines.len() as f32;
    let mut order: Vec<(f32, usize, &Sentence<'_>)> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            // Summed in a fixed order: floats do not add up the same in every order.
            let mut rare: Vec<f32> =
                line.stems.iter().filter_map(|stem| having.get(stem.as_str())).map(|n| (1.0 + all / n).ln()).collect();
            rare.sort_by(f32::total_cmp);
            let informative: f32 = rare.iter().sum();
            let recent = 1.0 / (1.0 + 0.15 * line.memory as f32);
            let worth = informative / (line.text.chars().count() as f32).sqrt().max(4.0) * recent;
            (worth, at, line)
        })
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));

    let heading = |memory: usize| memories.get(memory).map_or(0, |note| note.key.chars().count() + "## \n\n".len());
    let (mut kept, mut headed, mut used): (Vec<(usize, &Sentence<'_>)>, HashSet<usize>, usize) = Default::default();
    for (_, at, line) in order {
        let alike = |other: &Sentence<'_>| similarity(&line.stems, &other.stems).is_some_and(|share| share >= SAME);
        let said = kept.iter().any(|(_, other)| alike(other));
        let cost = line.text.chars().count() + 1 + if headed.contains(&line.memory) { 0 } else { heading(line.memory) };
        if !said && used + cost <= max_chars {
            used += cost;
            headed.insert(line.memory);
            kept.push((at, line));
        }
    }
    kept.sort_unstable_by_key(|(at, _)| *at);
    let mut text = String::new();
    let mut under = None;
    for (_, line) in kept {
        if under != Some(line.memory) {
            let key = memories.get(line.memory).map_or("", |note| note.key.as_str());
            text.push_str(&format!("{}## {key}\n", if text.is_empty() { "" } else { "\n" }));
            under = Some(line.memory);
        }
        text.push_str(line.text);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
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
    fn what_is_said_twice_is_kept_once_and_the_newest_comes_first() {
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
    fn the_cap_holds_whatever_it_is() {
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
