//! JSON texts from outside: what one costs once it is read, and the lone surrogates that JavaScript writes.

use std::{borrow::Cow, slice::Iter};

use serde_json::Value;

/// What a value is; it depends on whether objects keep the order of their fields, which some crate may ask for.
const SIZE: u64 = size_of::<Value>() as u64;
/// What a value takes of a list that has grown by doubling.
const VALUE: u64 = 2 * SIZE;
/// The least that a list with anything in it takes: four places.
const LIST: u64 = 4 * SIZE + 16;
/// The least that an object with anything in it takes: four places and a table, or a whole node of a tree.
const OBJECT: u64 = if SIZE > 32 { 4 * (SIZE + 32) + 96 } else { 11 * (SIZE + 24) + 40 };
/// What one more field takes besides its value: its name, and of a table or of nodes that are half full.
const FIELD: u64 = 96;
/// What a text takes besides its bytes.
const TEXT: u64 = 48;

/// How many bytes of memory a JSON text takes as a [`Value`], at most, the text's own among them. It is up to 150 times the
/// text's length, and can be known before the text is read. What is not JSON has some number, too.
pub fn parsed_bytes(text: &[u8]) -> u64 {
    let mut taken = (text.len() as u64).saturating_add(VALUE);
    // The list or object that has just begun: an empty one takes nothing.
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
        begun = if matches!(byte, b'[' | b'{') { *byte } else { 0 };
        taken = taken.saturating_add(first + own);
    }
    taken
}

/// What comes after a text, whose opening quote has been read.
fn after_text(mut bytes: Iter<'_, u8>) -> Iter<'_, u8> {
    while let Some(byte) = bytes.find(|byte| matches!(byte, b'"' | b'\\')) {
        if *byte == b'"' {
            break;
        }
        bytes.next();
    }
    bytes
}

/// A JSON text whose lone surrogates are replaced, so that a strict parser reads it. JavaScript writes half of a surrogate
/// pair as an escape where a text was cut within a character; Rust's strings cannot hold one. `replace` is given the half,
/// from 0xD800 to 0xDFFF. Pairs, and all other text, stay as they are.
pub fn replace_lone_surrogates(json: &str, replace: impl Fn(u16) -> char) -> Cow<'_, str> {
    let half_at = |at: usize| {
        let digits = json.get(at..at.saturating_add(6))?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|half| (0xD800..=0xDFFF).contains(half))
    };
    let (mut replaced, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + found;
        match half_at(escape) {
            None => at = escape + 2,
            Some(0xD800..=0xDBFF) if matches!(half_at(escape + 6), Some(0xDC00..)) => at = escape + 12,
            Some(half) => {
                replaced.push_str(json.get(copied..escape).unwrap_or_default());
                replaced.push(replace(half));
                at = escape + 6;
                copied = at;
            }
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    replaced.push_str(json.get(copied..).unwrap_or_default());
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        let replaced = |json: &'static str| replace_lone_surrogates(json, |_| char::REPLACEMENT_CHARACTER);
        for whole in [r#"{"a":"\ud83d\ude00 \u00e9 \\ud83d"}"#, r#""\\\\ud83d""#, "", "\\", "\\u", "\\\u{1f600}"] {
            assert!(matches!(replaced(whole), Cow::Borrowed(same) if same == whole), "{whole}");
        }
        assert_eq!(replaced(r#""cut \ud83d""#), "\"cut \u{fffd}\"");
        assert_eq!(replaced(r#""\uDE00\ud83d\ud83d\uDE00x""#), "\"\u{fffd}\u{fffd}\\ud83d\\uDE00x\"");
        assert_eq!(replaced(r#""\ud83d\u0041""#), "\"\u{fffd}\\u0041\"");
    }

    /// What a value takes, counted from what it is made of.
    fn taken(value: &Value) -> u64 {
        let own = match value {
            Value::String(text) => text.capacity() + 16,
            Value::Array(items) => items.capacity() * size_of::<Value>() + 16,
            Value::Object(fields) if fields.is_empty() => 0,
            // Seven eighths of a table are used at most; or half of each node of eleven is at least.
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
    fn what_is_no_json_is_counted_all_the_same() {
        for text in ["", "\"", "\\", "[[[[", "\"\\"] {
            assert!(parsed_bytes(text.as_bytes()) >= VALUE);
        }
    }
}
