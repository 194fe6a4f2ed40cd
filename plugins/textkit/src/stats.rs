//! `text_stats`.

use guild_plugin_sdk::toolbox::ToolError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of a line that are shown.
const SHOWN: usize = 200;

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The text.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// How many of the longest lines to tell.
    #[serde(default = "three")]
    #[schemars(range(max = 50))]
    longest_lines: usize,
}

fn three() -> usize {
    3
}

/// The counts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    /// Characters: Unicode scalar values, line ends among them.
    characters: usize,
    /// Bytes in UTF-8.
    bytes: usize,
    /// Words: what white space parts.
    words: usize,
    /// Lines, blank ones among them.
    lines: usize,
    /// Lines of nothing but white space.
    blank_lines: usize,
    /// Blocks of lines between blank ones.
    paragraphs: usize,
    /// The longest lines, the longest first.
    longest: Vec<Line>,
}

/// A line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Line {
    /// Its number, from 1.
    line: usize,
    /// Its characters.
    characters: usize,
    /// Its first 200 characters.
    text: String,
}

pub(crate) fn text_stats(input: Input) -> Result<Stats, ToolError> {
    let text = input.text.as_str();
    let blank = |line: &str| line.trim().is_empty();
    let mut longest: Vec<_> = text.lines().map(|line| line.chars().count()).zip(text.lines()).zip(1..).collect();
    // Of those that are as long, the first comes first.
    longest.sort_by_key(|((characters, _), _)| std::cmp::Reverse(*characters));
    let longest = longest.into_iter().take(input.longest_lines).map(|((characters, text), line)| Line {
        line,
        characters,
        text: text.chars().take(SHOWN).collect(),
    });
    let before = std::iter::once("").chain(text.lines());
    Ok(Stats {
        characters: text.chars().count(),
        bytes: text.len(),
        words: text.split_whitespace().count(),
        lines: text.lines().count(),
        blank_lines: text.lines().filter(|line| blank(line)).count(),
        paragraphs: before.zip(text.lines()).filter(|(before, line)| blank(before) && !blank(line)).count(),
        longest: longest.collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::call;

    #[test]
    fn a_text_is_counted() {
        let stats = call("text_stats", json!({"text": "Grüße an\nalle!\n \n\nbis bald", "longestLines": 2})).unwrap();
        let expected = json!({
            "characters": 26, "bytes": 28, "words": 5, "lines": 5, "blankLines": 2, "paragraphs": 2,
            "longest": [{"line": 1, "characters": 8, "text": "Grüße an"}, {"line": 5, "characters": 8, "text": "bis bald"}]
        });
        assert_eq!(stats, expected);
    }

    #[test]
    fn nothing_is_counted_in_an_empty_text() {
        let stats = call("text_stats", json!({"text": ""})).unwrap();
        assert_eq!((&stats["lines"], &stats["paragraphs"], &stats["longest"]), (&json!(0), &json!(0), &json!([])));
    }
}
