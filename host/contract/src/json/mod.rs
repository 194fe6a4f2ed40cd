//! Measures untrusted JSON texts before they are parsed, and replaces the lone surrogates that JavaScript writes.

pub mod misread;
pub mod schema;

use std::{borrow::Cow, slice::Iter};

use serde_json::Value;

/// The size of a value. It depends on whether objects keep the order of their fields, a feature that any crate may turn
/// on.
const SIZE: u64 = size_of::<Value>() as u64;
/// The bytes of a value in a list that has grown by doubling.
const VALUE: u64 = 2 * SIZE;
/// The least bytes of a list that is not empty: four slots.
const LIST: u64 = 4 * SIZE + 16;
/// The least bytes of an object that is not empty: four slots and a table, or a whole node of a tree.
const OBJECT: u64 = if SIZE > 32 { 4 * (SIZE + 32) + 96 } else { 11 * (SIZE + 24) + 40 };
/// The bytes of each further field besides its value: its name, and its slot in a table or in nodes that are half full.
const FIELD: u64 = 96;
/// The overhead of a text.
const TEXT: u64 = 48;

/// The measures of a JSON text before it is parsed. A text that is not JSON has measures, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The most bytes of memory that the text takes as a [`Value`], including the text itself: up to 150 times its
    /// length.
    pub bytes: u64,
    /// The levels of nested arrays and objects.
    pub depth: usize,
}

/// The measure [`Measure::bytes`] of a text.
pub fn parsed_bytes(text: &[u8]) -> u64 {
    measure(text).bytes
}

/// Measures a JSON text in one pass.
pub fn measure(text: &[u8]) -> Measure {
    let mut taken = (text.len() as u64).saturating_add(VALUE);
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    // The least bytes of the list or object that has just begun, since an empty one takes none.
    let mut begun = 0;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let first = match (begun, byte) {
            (_, b' ' | b'\n' | b'\r' | b'\t') => continue,
            (b'[', b']') | (b'{', b'}') => 0,
            (b'[', _) => LIST,
            (b'{', _) => OBJECT,
            _ => 0,
        };
        let own = match byte {
            b'"' => {
                bytes = after_text(bytes);
                TEXT
            }
            b':' => FIELD,
            b',' => VALUE,
            _ => 0,
        };
        begun = 0;
        match byte {
            b'[' | b'{' => {
                begun = *byte;
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        taken = taken.saturating_add(first + own);
    }
    Measure { bytes: taken, depth: deepest }
}

/// The bytes after a text whose opening quote has been read.
fn after_text(mut bytes: Iter<'_, u8>) -> Iter<'_, u8> {
    while let Some(byte) = bytes.find(|byte| matches!(byte, b'"' | b'\\')) {
        if *byte == b'"' {
            break;
        }
        bytes.next();
    }
    bytes
}

/// Replaces each lone half of a surrogate pair in a JSON text, such as `\ud83d`, with U+FFFD. JavaScript writes such a
/// half for a text that was cut within a pair, and a Rust string cannot hold it. The length stays the same. Returns
/// whether the text had any.
pub fn repair_surrogates(text: &mut [u8]) -> bool {
    let (mut at, mut repaired) = (0, false);
    while let Some(half) = next_lone_surrogate(text, at) {
        if let Some(unit) = text.get_mut(half..half + ESCAPE) {
            unit.copy_from_slice(br"\ufffd");
        }
        (at, repaired) = (half + ESCAPE, true);
    }
    repaired
}

/// Replaces each lone half of a surrogate pair in a JSON text, from 0xD800 to 0xDFFF, by a character of the caller's
/// choice.
pub fn replace_lone_surrogates(json: &str, replace: impl Fn(u16) -> char) -> Cow<'_, str> {
    let (mut replaced, mut copied) = (String::new(), 0);
    while let Some(at) = next_lone_surrogate(json.as_bytes(), copied) {
        replaced.push_str(json.get(copied..at).unwrap_or_default());
        replaced.push(utf16_unit(json.as_bytes(), at).map_or(char::REPLACEMENT_CHARACTER, &replace));
        copied = at + ESCAPE;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    replaced.push_str(json.get(copied..).unwrap_or_default());
    Cow::Owned(replaced)
}

/// Whether a JSON text has a lone half of a surrogate pair.
pub fn has_lone_surrogate(text: &[u8]) -> bool {
    next_lone_surrogate(text, 0).is_some()
}

/// The bytes of an escape like `\ud83d`.
const ESCAPE: usize = 6;

/// The offset of the next lone half at or after `at`, which is not within an escape.
fn next_lone_surrogate(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte == b'\\')?;
        at += match utf16_unit(text, at) {
            Some(0xd800..0xdc00) if matches!(utf16_unit(text, at + ESCAPE), Some(0xdc00..0xe000)) => 2 * ESCAPE,
            Some(0xd800..0xe000) => return Some(at),
            // The byte after a backslash does not begin an escape.
            _ => 2,
        };
    }
}

/// The UTF-16 unit of an escape `\uXXXX` at an offset.
fn utf16_unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix(br"\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_half_of_a_surrogate_pair_is_replaced_and_nothing_else() {
        for (text, repaired) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDE00\uD83D""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\n\u00e4""#, r#""\ufffd\n\u00e4""#),
            (r#""\\ud83d \\\ud83d""#, r#""\\ud83d \\\ufffd""#),
            (r#""\ud83d\ude00\ud83""#, r#""\ud83d\ude00\ud83""#),
            (r#"\"#, r#"\"#),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            assert_eq!(has_lone_surrogate(&bytes), text != repaired, "{text}");
            let replaced = replace_lone_surrogates(text, |_| '\u{fffd}');
            assert_eq!(replaced, repaired.replace(r"\ufffd", "\u{fffd}"), "{text}");
            assert_eq!(repair_surrogates(&mut bytes), text != repaired, "{text}");
            assert_eq!(String::from_utf8(bytes).unwrap(), repaired);
        }
    }

    /// The bytes of a value, counted from its parts.
    fn taken(value: &Value) -> u64 {
        let own = match value {
            Value::String(text) => text.capacity() + 16,
            Value::Array(items) => items.capacity() * size_of::<Value>() + 16,
            Value::Object(fields) if fields.is_empty() => 0,
            // At most seven eighths of a table are used, or at least half of each node of eleven.
            Value::Object(fields) if SIZE > 32 => {
                (fields.len() * 8).div_ceil(7).next_power_of_two().max(4) * (size_of::<(String, Value)>() + 8 + 9)
            }
            Value::Object(fields) => fields.len().div_ceil(5) * (11 * size_of::<(String, Value)>() + 32),
            _ => 0,
        };
        let inner: u64 = match value {
            Value::Array(items) => items.iter().map(taken).sum(),
            Value::Object(fields) => fields.iter().map(|(key, value)| key.capacity() as u64 + 16 + taken(value)).sum(),
            _ => 0,
        };
        own as u64 + inner
    }

    #[test]
    fn no_value_takes_more_than_was_counted_for_its_text() {
        let many = |item: &str| format!("[{}]", vec![item; 10_000].join(","));
        let fields: Vec<String> = (0..10_000).map(|n| format!("\"{n}\":0")).collect();
        let mut texts: Vec<String> = ["0", "[]", "{}", "[[]]", "\"\"", r#"{"a":0}"#, r#"[0]"#, r#"["a","b"]"#]
            .into_iter()
            .flat_map(|item| [many(item), item.to_owned()])
            .collect();
        texts.push(format!("{{{}}}", fields.join(",")));
        texts.push(r#"{"type": "object", "properties": {"a\"b{": {"type": "string"}}}"#.to_owned());
        for text in texts {
            let value: Value = serde_json::from_str(&text).unwrap();
            let (counted, taken) = (parsed_bytes(text.as_bytes()), taken(&value));
            assert!(taken + 32 <= counted, "{}: {counted} counted, {taken} taken", text.get(..40).unwrap_or(&text));
            assert!(counted < 150 * text.len() as u64 + 1000, "{counted} counted for {} bytes", text.len());
        }
    }

    #[test]
    fn brackets_in_texts_do_not_nest() {
        let deep = "[".repeat(100_000);
        for (text, depth) in [
            (r#"{"a": "[[[\"[[[\\"}"#, 1),
            ("[[{}], []]", 3),
            ("[][][]", 1),
            ("[ [\n{ } ]]", 3),
            ("1", 0),
            (deep.as_str(), 100_000),
        ] {
            assert_eq!(measure(text.as_bytes()).depth, depth, "{}", text.get(..20).unwrap_or(text));
        }
    }

    #[test]
    fn what_is_no_json_is_counted_all_the_same() {
        for text in ["", "\"", "\\", "[[[[", "\"\\"] {
            assert!(parsed_bytes(text.as_bytes()) >= VALUE);
        }
    }
}
