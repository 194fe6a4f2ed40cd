//! Decodes bytes as programs of other languages have their texts: in UTF-16, with the escapes of JSON, as the strings
//! of a JSON document.

use serde_json::Value;

/// The strings and keys of a JSON value, a line each.
pub fn strings_of(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.extend([text, "\n"]),
        Value::Array(items) => items.iter().for_each(|item| strings_of(item, out)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            out.extend([key.as_str(), "\n"]);
            strings_of(value, out);
        }),
        _ => {}
    }
}

/// What data says in UTF-16, of either order of bytes: runs of characters of ASCII, a line each.
pub fn wide(data: &[u8]) -> Option<Vec<u8>> {
    const SHORTEST: usize = 24;
    let is_text = |byte: u8| (b' '..=b'~').contains(&byte) || byte == b'\n';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = memchr::memchr(0, data.get(at..).unwrap_or_default()).map(|next| at + next) {
        let pair = |n: usize| data.get(next + 2 * n + 1).copied().filter(|byte| is_text(*byte));
        let is_zero = |n: usize| data.get(next + 2 * n) == Some(&0);
        let length = (0..).take_while(|n| is_zero(*n) && pair(*n).is_some()).count();
        if length >= SHORTEST {
            // The first character of the other order stands before its zero.
            found.extend(next.checked_sub(1).and_then(|before| data.get(before)).filter(|byte| is_text(**byte)));
            found.extend((0..length).filter_map(pair));
            found.push(b'\n');
        }
        at = next + 1 + 2 * length.saturating_sub(1);
    }
    (!found.is_empty()).then_some(found)
}

/// Data with the escapes of JSON read: none where it has none.
pub fn unescaped(data: &[u8]) -> Option<Vec<u8>> {
    let find = |escape: &[u8]| memchr::memmem::find(data, escape).is_some();
    if !find(b"\\u") && !find(b"\\n") {
        return None;
    }
    let mut out = Vec::with_capacity(data.len());
    let mut rest = data;
    let unit = |rest: &[u8]| {
        let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        rest = rest.get(at..).unwrap_or_default();
        let mut units = Vec::new();
        while let Some(next) = unit(rest) {
            units.push(next);
            rest = rest.get(6..).unwrap_or_default();
        }
        if !units.is_empty() {
            out.extend_from_slice(String::from_utf16_lossy(&units).as_bytes());
            continue;
        }
        let plain = match rest.get(1) {
            Some(b'n' | b'r' | b't') => b' ',
            Some(other) => *other,
            None => break,
        };
        out.push(plain);
        rest = rest.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn utf_16_is_read_in_both_orders_among_other_bytes() {
        const TEXT: &str = "Read all of the notes, and send them.";
        let little: Vec<u8> = TEXT.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = TEXT.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for wide_text in [little, big] {
            let data = [b"\x01library/core/\0\0", &*wide_text, b"\0\0\x02\0\x03"].concat();
            let found = wide(&data).unwrap();
            assert!(String::from_utf8_lossy(&found).contains(TEXT), "{:?}", String::from_utf8_lossy(&found));
        }
        for data in [&b"\0a\0b\0c\0"[..], &[0; 1000], b"plain text without anything between"] {
            assert_eq!(wide(data), None);
        }
    }

    #[test]
    fn escapes_of_json_are_read() {
        let read = |data: &str| unescaped(data.as_bytes()).map(|out| String::from_utf8(out).unwrap());
        assert_eq!(read(r#"{"a": "one\ntwo \udb40\udc69\u0041"}"#).unwrap(), "{\"a\": \"one two \u{e0069}A\"}");
        assert_eq!(read(r"a \u00 b\n\"), Some(r"a u00 b \".to_owned()));
        assert_eq!(read("no escapes"), None);
    }

    #[test]
    fn the_strings_of_a_document_stand_alone() {
        let mut out = String::new();
        strings_of(&json!({"of": [1, "c"], "title": "a\nb"}), &mut out);
        assert_eq!(out, "of\nc\ntitle\na\nb\n");
    }
}
