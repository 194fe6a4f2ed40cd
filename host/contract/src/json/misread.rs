//! Reads values of JSON and TOML; an error names the value of the wrong type in the words of the format.

use std::fmt;

use serde::{Deserialize, de::Deserializer};

use crate::text::one_line;

/// The noun of JSON for the form of a struct.
pub const OBJECT: &str = "an object";
/// The noun of TOML for the form of a struct.
pub const TABLE: &str = "a table";
/// The mark that some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Characters of a value that an error shows.
pub(crate) const SHOWN_CHARS: usize = 80;

/// The error about a value that is not a `T`, in the words of its format.
#[derive(Debug)]
pub struct Misread<E> {
    /// The value of the wrong type, and the expected type; `None` if the format's own error has them.
    pub text: Option<String>,
    /// The keys to the value, as `component.tools[0]`.
    pub path: String,
    /// The format's own error, with its place.
    pub error: E,
}

/// Refuses a text that begins with a byte order mark, since Guild Hall cannot read such a manifest.
///
/// # Errors
///
/// Returns the remedy.
pub fn check_begin(text: &[u8]) -> Result<(), &'static str> {
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err("the file begins with a byte order mark (the bytes EF BB BF); save it as UTF-8 without one");
    }
    Ok(())
}

/// Reads a `T` from a format that calls an object `noun`. An error names the invalid value by the path of keys to it.
///
/// serde's derived `Deserialize` also accepts a list of values for a struct. The caller has to refuse the list before.
///
/// # Errors
///
/// Returns an error if the value is not a `T`.
pub fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    noun: &'static str,
    from: D,
) -> Result<T, Misread<D::Error>> {
    serde_path_to_error::deserialize(from).map_err(|error| {
        // Names that begin with `$` are an internal convention between a type and its format, as for `toml::Spanned`.
        let keys = error.path().iter().map(ToString::to_string).filter(|key| !key.starts_with('$'));
        let path = keys.collect::<Vec<_>>().join(".").replace(".[", "[");
        let error = error.into_inner();
        Misread { text: explained(&path, &error.to_string(), noun), path, error }
    })
}

/// serde's text about a value of the wrong type, in the words of the format with the `noun` for an object; `None` for
/// another error.
fn explained(path: &str, text: &str, noun: &str) -> Option<String> {
    let (found, wanted) = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|what| text.strip_prefix(what))?
        .split_once(", expected ")?;
    // serde_json appends the place.
    let wanted = wanted.rsplit_once(" at line ").map_or(wanted, |(wanted, _)| wanted);
    // toml appends the key on a line of its own.
    let wanted = wanted.lines().next().unwrap_or_default();
    let value = |kind: &str| Some(one_line(found.strip_prefix(kind)?, SHOWN_CHARS));
    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => noun.to_owned(),
        "unit value" | "Option value" => "null".to_owned(),
        _ => value("boolean ")
            .or_else(|| Some(format!("the number {}", value("integer ").or_else(|| value("floating point "))?)))
            .or_else(|| Some(format!("the text {}", value("string ")?)))
            .unwrap_or_else(|| one_line(found, SHOWN_CHARS)),
    };
    let whole = |min: &dyn fmt::Display, max: &dyn fmt::Display| format!("a whole number from {min} to {max}");
    let wanted = match wanted {
        "u8" => whole(&0, &u8::MAX),
        "u16" => whole(&0, &u16::MAX),
        "u32" => whole(&0, &u32::MAX),
        "u64" | "usize" => whole(&0, &u64::MAX),
        "i64" => whole(&i64::MIN, &i64::MAX),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "str" | "path string" | "string or map" | "wanted string or table" => {
            "a text in quotation marks".to_owned()
        }
        "a sequence" => "a list in [ ]".to_owned(),
        "a map" => noun.to_owned(),
        // serde's default text for a struct is the name of its type.
        name if name.starts_with("struct ") => noun.to_owned(),
        other => other.to_owned(),
    };
    Some(wrong_type(path, &found, &wanted))
}

/// Makes the error about a value of the wrong type at `path`.
pub(crate) fn wrong_type(path: &str, found: &str, wanted: &str) -> String {
    let name = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
    format!("{name} is {found}; it must be {wanted}")
}
