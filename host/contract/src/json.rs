//! What a JSON text costs once it is read.

/// What a value takes of a list that has grown by doubling.
const VALUE: u64 = 64;
/// The least that a list with anything in it takes.
const LIST: u64 = 144;
/// The least that an object with anything in it takes: a whole node of its map.
const OBJECT: u64 = 656;
/// What one more field takes of nodes that are half full.
const FIELD: u64 = 160;
/// What a text takes besides its bytes.
const TEXT: u64 = 48;

/// How many bytes of memory a JSON text takes as a `serde_json::Value`, at most. It is up to 150 times the text's own
/// length, and can be known before the text is read. What is not JSON has some number, too.
pub fn parsed_bytes(text: &str) -> u64 {
    let (mut bytes, mut in_text, mut escaped, mut is_empty) = (VALUE, false, false, false);
    for byte in text.bytes() {
        let cost = match byte {
            _ if escaped => {
                escaped = false;
                1
            }
            b'\\' if in_text => {
                escaped = true;
                1
            }
            b'"' => {
                in_text = !in_text;
                if in_text { TEXT } else { 0 }
            }
            _ if in_text => 1,
            b'{' | b'}' => {
                is_empty = byte == b'{';
                0
            }
            // An empty object takes nothing.
            b':' if is_empty => {
                is_empty = false;
                OBJECT + FIELD
            }
            b':' => FIELD,
            b'[' => LIST,
            b',' => VALUE,
            _ => 0,
        };
        bytes = bytes.saturating_add(cost);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What a value takes, counted from what it is made of.
    fn taken(value: &Value) -> u64 {
        let own = match value {
            Value::String(text) => text.capacity() + 16,
            Value::Array(items) => items.capacity() * size_of::<Value>() + 16,
            // Half of each node of eleven is used at least, and one is there in any case.
            Value::Object(fields) => fields.len().div_ceil(5) * (11 * (size_of::<(String, Value)>()) + 32),
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
            let (counted, taken) = (parsed_bytes(&text), taken(&value));
            assert!(taken + 32 <= counted, "{}: {counted} counted, {taken} taken", text.get(..40).unwrap_or(&text));
            assert!(counted < 150 * text.len() as u64 + 1000, "{counted} counted for {} bytes", text.len());
        }
    }

    #[test]
    fn what_is_no_json_is_counted_all_the_same() {
        for text in ["", "\"", "\\", "[[[[", "\"\\"] {
            assert!(parsed_bytes(text) >= VALUE);
        }
    }
}
