//! Makes texts of plugins and callers safe to show: names, errors and reports.

pub mod nearest;

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Characters of a caller's text that a log line repeats.
pub const LOGGED_CHARS: usize = 300;

/// Whether a character is invisible, steers a terminal, or changes the display of later text. A newline and a tab do
/// not.
pub fn is_steering(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Writes texts on one line: a line break, and each character that [`is_steering`], becomes a visible escape, such as
/// `\n` or `\u{202e}`.
pub struct OneLine<W>(pub W);

impl<W: Write> Write for OneLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_hidden = |c: char| c == '\n' || is_steering(c);
        for part in text.split_inclusive(is_hidden) {
            match part.char_indices().next_back().filter(|(_, last)| is_hidden(*last)) {
                Some((at, last)) => write!(self.0, "{}{}", part.get(..at).unwrap_or_default(), last.escape_default())?,
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// A text as [`OneLine`] writes it.
pub fn visible(text: impl fmt::Display) -> String {
    let mut line = OneLine(String::new());
    // Only the text's own `Display` could fail; the text written before that stays.
    let _ = write!(line, "{text}");
    line.0
}

/// Replaces each character that [`is_steering`] with U+FFFD.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(is_steering) { Cow::Owned(text.replace(is_steering, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The first `chars` characters of a text, and whether they are the whole text.
pub fn cut(text: &str, chars: usize) -> (&str, bool) {
    match text.char_indices().nth(chars) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    }
}

/// Makes a [`harmless`] text of one line, with one space for each gap, cut after `chars` characters.
pub fn one_line(text: &str, chars: usize) -> String {
    let line = harmless(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(chars) {
        None => line,
        Some(_) => line.chars().take(chars.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Rewrites JSON so that each character that [`is_steering`] is an escape, such as `\u202e`. The value stays the same.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_steering) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // The character stands between values: in a string of JSON it is an escape already.
            '\r' => escaped.push(' '),
            c if is_steering(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
            }
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of this name among all values of a type.
pub fn named<T: Copy + Into<&'static str>>(all: &[T], name: &str) -> Option<T> {
    all.iter().copied().find(|value| (*value).into() == name)
}

/// The names of values, as an error lists them.
pub fn names<T: Copy + Into<&'static str>>(all: &[T]) -> String {
    all.iter().map(|value| (*value).into()).collect::<Vec<_>>().join(", ")
}

/// A size in the largest unit that fits.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        #[allow(clippy::cast_precision_loss, reason = "it is shown with one decimal place")]
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
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
    fn what_nobody_sees_becomes_visible_on_one_line() {
        assert_eq!(visible("a\nb\r\u{1b}[2J\u{9b}\u{202e}\tü"), "a\\nb\\r\\u{1b}[2J\\u{9b}\\u{202e}\tü");
        assert_eq!(visible("\0\u{2028}\u{2066}\u{200b}\u{e0041}"), "\\u{0}\\u{2028}\\u{2066}\\u{200b}\\u{e0041}");
        assert_eq!(visible("plain"), "plain");
    }

    #[test]
    fn json_with_escapes_steers_no_terminal_and_has_the_same_value() {
        let raw = "{\"a\":\r\n\t\"\u{9b}31m \u{202e}\u{200b}\u{7f}\u{e0041} ä\\u001b\"}";
        let escaped = escaped_json(raw);
        assert_eq!(escaped, "{\"a\": \n\t\"\\u009b31m \\u202e\\u200b\\u007f\\udb40\\udc41 ä\\u001b\"}");
        let [raw, escaped] = [raw, &*escaped].map(|json| serde_json::from_str::<serde_json::Value>(json).unwrap());
        assert_eq!(raw, escaped);
        assert!(matches!(escaped_json("{\"a\": \"ä\"}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_line_is_cut_at_a_character() {
        assert_eq!(one_line("a\n b", 9), "a b");
        assert_eq!(one_line("größer", 4), "grö…");
        assert_eq!(one_line("größe", 5), "größe");
    }
}
