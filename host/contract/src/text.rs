//! Texts of others where people read them: names, errors and reports that came with a plugin.

use std::borrow::Cow;

/// Whether nobody sees a character, or it steers a terminal, or changes how what follows is shown. A newline and a tab do
/// not.
pub fn is_steering(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
        || matches!(c, '\u{61c}' | '\u{e0000}'..='\u{e007f}')
}

/// A text with U+FFFD for each character that [`is_steering`].
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(is_steering) { Cow::Owned(text.replace(is_steering, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// A [`harmless`] text on one line, with one space for each gap, cut after `chars` characters.
pub fn one_line(text: &str, chars: usize) -> String {
    let line = harmless(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(chars) {
        None => line,
        Some(_) => line.chars().take(chars.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_cannot_steer_a_terminal() {
        assert_eq!(harmless("plain\n\ttext"), "plain\n\ttext");
        assert_eq!(harmless("\u{1b}[2Jgone\r"), "\u{fffd}[2Jgone\u{fffd}");
        assert_eq!(harmless("a\u{202e}b\u{9b}1m"), "a\u{fffd}b\u{fffd}1m");
        assert_eq!(harmless("in\u{200b}visible\u{e0041}"), "in\u{fffd}visible\u{fffd}");
    }

    #[test]
    fn a_line_is_cut_at_a_character() {
        assert_eq!(one_line("a\n b", 9), "a b");
        assert_eq!(one_line("größer", 4), "grö…");
        assert_eq!(one_line("größe", 5), "größe");
    }
}
