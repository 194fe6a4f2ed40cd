//! Reads structs from objects only.
//!
//! serde's derived `Deserialize` also accepts a list of values for a struct, in the order of its fields, and JSON and
//! TOML pass the list on: `"grants": [{}, {}]` would grant two interfaces without naming them. [`Objects`] wraps any
//! format's deserializer and refuses the list, at every depth. It does not reach below `flatten` and tagged enums,
//! which serde buffers first.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use serde_path_to_error::Segment;

use crate::text::one_line;

/// The noun of JSON for the form of a struct.
pub const OBJECT: &str = "an object";

/// A deserializer from which a struct accepts only an object.
#[derive(Clone, Copy, Debug)]
pub struct Objects<D> {
    inner: D,
    /// The format's noun for an object, for errors.
    noun: &'static str,
}

impl<D> Objects<D> {
    /// Wraps the deserializer of a format that calls an object `noun`, with its article: `a table`.
    pub fn called(noun: &'static str, inner: D) -> Self {
        Self { inner, noun }
    }
}

/// Reads a whole JSON text.
///
/// # Errors
///
/// Returns an error with the line and the column if the text is not JSON or not a `T`.
pub fn from_json<'de, T: Deserialize<'de>>(text: &'de [u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = T::deserialize(Objects::called(OBJECT, &mut deserializer))?;
    deserializer.end()?;
    Ok(read)
}

/// The noun of TOML for the form of a struct.
pub const TABLE: &str = "a table";

/// The error about a text that is not a `T`, in the words of its format.
#[derive(Debug)]
pub struct Misread<E> {
    /// The value of the wrong type, and the expected type; `None` if the format's own error has them.
    pub text: Option<String>,
    /// The keys to the value, as `component.tools[0]`.
    pub path: String,
    /// The format's own error, with its place.
    pub error: E,
}

/// The mark that some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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

/// Reads a `T` as [`Objects`] does. An error names the invalid value by the path of keys to it.
///
/// # Errors
///
/// Returns an error if the value is not a `T`.
pub fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    noun: &'static str,
    from: D,
) -> Result<T, Misread<D::Error>> {
    serde_path_to_error::deserialize(Objects::called(noun, from)).map_err(|error| {
        let path = path(error.path());
        let error = error.into_inner();
        Misread { text: explained(&path, &error.to_string(), noun), path, error }
    })
}

/// The keys to a value, as `component.tools[0]`.
fn path(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            // Names that begin with `$` are an internal convention between a type and its format, as for
            // `toml::Spanned`.
            Segment::Map { key } if key.starts_with('$') => {}
            Segment::Map { key: name } | Segment::Enum { variant: name } => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(name);
            }
            Segment::Unknown => {}
        }
    }
    text
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
        other => other.to_owned(),
    };
    let name = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
    Some(format!("{name} is {found}; it must be {wanted}"))
}

/// Characters of a value that an error shows.
const SHOWN_CHARS: usize = 80;

/// Reads a JSON value.
///
/// # Errors
///
/// Returns an error if the value is not a `T`.
pub fn from_value<'de, T: Deserialize<'de>>(value: serde_json::Value) -> serde_json::Result<T> {
    T::deserialize(Objects::called(OBJECT, value))
}

/// Wraps visitors, seeds and accesses, so that the rule applies at every depth.
struct Wrapped<T> {
    inner: T,
    noun: &'static str,
}

impl<D> Objects<D> {
    fn wrap<T>(&self, inner: T) -> Wrapped<T> {
        Wrapped { inner, noun: self.noun }
    }
}

impl<T> Wrapped<T> {
    fn wrap<U>(&self, inner: U) -> Wrapped<U> {
        Wrapped { inner, noun: self.noun }
    }
}

macro_rules! forward {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.wrap(visitor);
            self.inner.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        // Names that begin with `$` are an internal convention between a type and its format: `toml::Spanned` is not a
        // table of the file.
        if name.starts_with('$') {
            let visitor = self.wrap(visitor);
            return self.inner.deserialize_struct(name, fields, visitor);
        }
        let visitor = Object(self.wrap(visitor));
        self.inner.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The visitor of a struct. It accepts a map, and the default of every other method is an error.
struct Object<V>(Wrapped<V>);

impl<'de, V: Visitor<'de>> Visitor<'de> for Object<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Expected(&self.0.inner).to_string();
        // serde's default text is the name of a Rust type.
        f.write_str(if said.starts_with("struct ") { self.0.noun } else { &said })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }
}

/// A visitor's expectation, as a text.
struct Expected<'a, V>(&'a V);

impl<'de, V: Visitor<'de>> fmt::Display for Expected<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
}

macro_rules! visit {
    ($($method:ident: $value:ty,)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $value) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Wrapped<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32, visit_f64: f64,
        visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Objects { inner, noun: self.noun })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Objects { inner, noun: self.noun })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        let seq = self.wrap(seq);
        self.inner.visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let map = self.wrap(map);
        self.inner.visit_map(map)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.wrap(variant);
        self.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Wrapped<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Objects { inner, noun: self.noun })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Wrapped<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Wrapped<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Wrapped<A> {
    type Error = A::Error;
    type Variant = Wrapped<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (noun, seed) = (self.noun, self.wrap(seed));
        let (value, inner) = self.inner.variant_seed(seed)?;
        Ok((value, Wrapped { inner, noun }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Wrapped<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.wrap(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Object(self.wrap(visitor));
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Pair {
        a: u8,
        b: Option<Box<Pair>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Newtype(Pair);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Either {
        Unit,
        New(Pair),
        Fields { a: u8 },
        Tuple(u8, Pair),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Whole {
        pair: Pair,
        new: Newtype,
        list: Vec<Pair>,
        map: BTreeMap<String, Pair>,
        tuple: (u8, Pair),
        each: Vec<Either>,
        any: Value,
    }

    fn whole() -> Value {
        json!({
            "pair": {"a": 1, "b": {"a": 2, "b": null}}, "new": {"a": 3}, "list": [{"a": 4}], "map": {"x": {"a": 5}},
            "tuple": [6, {"a": 7}],
            "each": ["unit", {"new": {"a": 8}}, {"fields": {"a": 9}}, {"tuple": [1, {"a": 2}]}],
            "any": [[1, {"a": [2]}]],
        })
    }

    /// The pointers of all objects in a value that are read as structs.
    const STRUCTS: [&str; 10] = [
        "",
        "/pair",
        "/pair/b",
        "/new",
        "/list/0",
        "/map/x",
        "/tuple/1",
        "/each/1/new",
        "/each/2/fields",
        "/each/3/tuple/1",
    ];

    #[test]
    fn what_is_written_as_objects_is_read_as_without_it() {
        let plain: Whole = serde_json::from_value(whole()).unwrap();
        assert_eq!(from_value::<Whole>(whole()).unwrap(), plain);
        assert_eq!(from_json::<Whole>(whole().to_string().as_bytes()).unwrap(), plain);
        assert!(from_json::<Pair>(b"{\"a\": 1} x").is_err());
    }

    #[test]
    fn a_list_stands_for_a_struct_nowhere() {
        for pointer in STRUCTS {
            let mut value = whole();
            let place = value.pointer_mut(pointer).unwrap();
            *place = place.as_object().unwrap().values().cloned().collect();
            // serde by itself accepts it, except for a struct that lacks a field.
            let text = value.to_string();
            for error in [from_value::<Whole>(value).unwrap_err(), from_json::<Whole>(text.as_bytes()).unwrap_err()] {
                let error = error.to_string();
                assert!(error.starts_with("invalid type: sequence, expected "), "{pointer}: {error}");
            }
        }
        assert_eq!(serde_json::from_str::<Pair>("[1, null]").unwrap(), Pair { a: 1, b: None });
    }

    #[test]
    fn an_error_is_where_the_list_begins() {
        let error = from_json::<Whole>(b"{\n\"pair\":\n[\n1\n]}").unwrap_err();
        assert_eq!(error.line(), 3, "{error}");
    }
}
