//! Merges the declarations in the files of a member.

use serde_json::{Map, Value};

use super::{Lines, Manifest, ManifestError, Misread, Place, misread_at};
use crate::{
    json::misread::{self, OBJECT},
    text::one_line,
};

/// The version of a package without one, as private packages may be.
const NO_VERSION: &str = "0.0.0";
/// Characters of a value that an error shows.
const SHOWN_CHARS: usize = 80;

/// A declaration in the terms of `guild-member.json`, with only the values that its file has.
pub(super) struct Declared {
    pub(super) value: Value,
    pub(super) lines: Lines,
    /// The faults for which the member is refused.
    pub(super) faults: Vec<ManifestError>,
}

impl Declared {
    /// Merges two declarations.
    ///
    /// # Errors
    ///
    /// Returns the places of each value in which the declarations differ.
    pub(super) fn with(self, other: Self) -> Result<Self, ManifestError> {
        let Self { mut value, lines, mut faults } = self;
        let mut differences = Vec::new();
        merge(&mut value, other.value, "", &mut |path, own, others| {
            let place = other.lines.place(path);
            let said = |key: &str, value| format!("`{key}` is {}", shown(value));
            let own_place = lines.place(path);
            let text = format!("{}, and {place} says that {}", said(&own_place.key, own), said(&place.key, others));
            differences.push(ManifestError::at(&own_place, text));
        });
        if let [first, more @ ..] = differences.as_slice() {
            let more: String = more.iter().map(|difference| format!("; {difference}")).collect();
            let text = format!("{}{more}; write the same in both places, or leave one of them out", first.text);
            return Err(ManifestError { text, ..first.clone() });
        }
        faults.extend(other.faults);
        Ok(Self { value, lines: lines.or(other.lines), faults })
    }

    /// Makes the manifest of a package, which begins at `package`.
    ///
    /// # Errors
    ///
    /// Returns all faults for which the package is refused.
    pub(super) fn manifest(self, package: &Place) -> Result<Manifest, ManifestError> {
        let Self { mut value, lines, mut faults } = self;
        if let Some(keys) = value.as_object_mut() {
            keys.entry("version").or_insert_with(|| NO_VERSION.into());
        }
        let has = |path: &str| value.pointer(path).is_some();
        if !has("/component/file") {
            let text = "the package has no component, and this host runs nothing else; it lacks `guildHall.component` with \
                        `file` and `world`, or a guild-member.json beside it that has a `component`";
            faults.push(ManifestError::at(package, text));
        }
        let named = [("/displayName", "guildHall.identity.name"), ("/description", "guildHall.identity.description")];
        for (_, key) in named.into_iter().filter(|(path, _)| !has(path)) {
            faults.push(ManifestError::at(package, format!("missing field `{key}`")));
        }
        if let Some(ManifestError { file, line, .. }) = faults.first() {
            let all: Vec<_> = faults.iter().map(|fault| fault.text.as_str()).collect();
            return Err(ManifestError { file, line: *line, text: all.join("; besides, ") });
        }
        let manifest: Manifest = misread::read(OBJECT, value).map_err(|misread: Misread<_>| {
            let place = lines.place(&misread.path);
            misread_at(misread, |error| ManifestError::at(&place, error.to_string()))
        })?;
        Manifest { lines, ..manifest }.faultless(Manifest::check)
    }
}

/// Adds the values of `others` to `own`; `differ` is called for each value in which they differ.
fn merge(own: &mut Value, others: Value, path: &str, differ: &mut impl FnMut(&str, &Value, &Value)) {
    let is_one_fact = path == "component.configSchema" || path.starts_with("component.grants.");
    match (own, others) {
        (Value::Object(own), Value::Object(others)) if !is_one_fact => {
            for (key, others) in others {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match own.get_mut(&key) {
                    Some(own) => merge(own, others, &path, differ),
                    None => _ = own.insert(key, others),
                }
            }
        }
        (own @ Value::Null, others) => *own = others,
        (own, others) if others.is_null() || unordered(own) == unordered(&others) => {}
        (own, others) => differ(path, own, &others),
    }
}

/// Sorts the lists in a value for a comparison, in which their order has no meaning and `1` equals `1.0`.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<_> = list.iter().map(unordered).collect();
            list.sort_by_key(Value::to_string);
            list.dedup();
            list.into()
        }
        Value::Object(keys) => {
            keys.iter().map(|(key, value)| (key.clone(), unordered(value))).collect::<Map<_, _>>().into()
        }
        Value::Number(number) => number.as_f64().into(),
        other => other.clone(),
    }
}

fn shown(value: &Value) -> String {
    one_line(&value.to_string(), SHOWN_CHARS)
}
