//! Checks JSON input beyond `serde_json`: bounds on depth and parsed size, and no duplicate keys.

use std::fmt;

use guild_contract::{Limits, json::measure};
use memchr::memchr2_iter;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A text of this many bytes takes little more than 64 KiB as values.
const SMALL: usize = 512;

/// Estimates, before parsing, the most bytes that the JSON of a request's body takes as values; 0 for a small text.
///
/// # Errors
///
/// Returns a text for the sender when the JSON nests deeper than `limits.json_depth`, or takes more than
/// `limits.parsed_bytes`.
pub(crate) fn check(text: &[u8], limits: &Limits) -> Result<u64, String> {
    let (levels, most) = (limits.json_depth, limits.parsed_bytes);
    // Most requests are small. Counting their brackets is much faster than measuring them.
    if text.len() <= SMALL && memchr2_iter(b'[', b'{', text).count() <= levels as usize {
        return Ok(0);
    }
    let measured = measure(text);
    if measured.depth > levels as usize {
        return Err(format!("JSON that nests deeper than {levels} levels"));
    }
    if measured.bytes > most {
        let (bytes, limit) = (measured.bytes, Limits::cited("parsed_bytes"));
        return Err(format!("JSON that takes some {bytes} bytes as values, more than {limit} = {most}"));
    }
    Ok(measured.bytes)
}

/// The length of a text as a JSON string, in bytes.
pub(crate) fn string_bytes(text: &str) -> u64 {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() as u64 + text.bytes().map(escaped).sum::<u64>()
}

/// Parses a JSON object without duplicate keys at any depth: two readers of `{"a": 1, "a": 2}` can see two different
/// values.
pub(crate) fn strict_members(text: &str) -> serde_json::Result<Vec<(String, Value)>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = deserializer.deserialize_map(StrictMembers)?;
    deserializer.end()?;
    Ok(members)
}

struct StrictMembers;

impl<'de> Visitor<'de> for StrictMembers {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = access.next_key()? {
            members.push((key, access.next_value_seed(Strict)?));
        }
        let mut keys: Vec<&String> = members.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        match keys.iter().zip(keys.iter().skip(1)).find(|(key, next)| key == next) {
            Some((key, _)) => Err(de::Error::custom(format_args!("the key {key:?} occurs twice"))),
            None => Ok(members),
        }
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(value) = access.next_element_seed(Strict)? {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        StrictMembers.visit_map(access).map(|members| Value::Object(members.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_beyond_a_limit_is_refused_by_its_name() {
        let limits = Limits { parsed_bytes: 100_000, json_depth: 2, ..Limits::default() };
        let check_of = |piece: &str, times: usize| check(format!("[{}0]", piece.repeat(times)).as_bytes(), &limits);
        assert!(check_of("[],", 500).is_ok());
        assert!(check_of("[],", 2000).unwrap_err().contains("the fixed limit parsed_bytes = 100000"));
        assert!(check_of("[[]],", 1).unwrap_err().contains("deeper than 2 levels"));
        assert_eq!(check_of("\"[[[[\\\"\",", 1).map(|bytes| bytes > 0), Ok(true));
        assert_eq!(check(b"{}", &limits), Ok(0));
    }

    #[test]
    fn a_string_has_as_many_bytes_as_it_is_written_with() {
        for text in ["plain", "\"\\/", "\n\r\t\u{8}\u{c}\u{1f}\u{7f}", "ä€"] {
            let written = serde_json::to_string(text).unwrap().len() as u64 - 2;
            assert!((written..=written + 8).contains(&string_bytes(text)), "{text:?}");
        }
    }

    #[test]
    fn a_key_that_occurs_twice_is_refused_at_any_depth() {
        let text = r#"{"a": [1, -2, 0.5, "x", null, true, {"b": {}}]}"#;
        let object = |text| strict_members(text).map(|members| Value::Object(members.into_iter().collect()));
        assert_eq!(object(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "\u0061": 2}]}"#] {
            assert!(object(twice).unwrap_err().to_string().contains("\"a\" occurs twice"));
        }
        assert!(object("[]").is_err());
        assert_eq!(object("{}").unwrap(), json!({}));
    }
}
