//! Makes inputs of tools from their JSON Schemas, in several variants: small and large, and texts of several kinds.

use serde_json::{Map, Value, json};

/// The depth to which objects and lists within one another are made.
const DEPTH: usize = 6;
/// The calls of each tool: each variant of its input, and more calls than most counters count.
pub(crate) const VARIANTS: usize = 12;
/// A day.
const DATE: &str = "2026-03-10";
/// Bytes of a value by which a refusal is known to quote it.
const QUOTED: usize = 24;
/// The most bytes of a choice that a text names.
const CHOICE: usize = 40;
/// Items of a list, and lines of a text.
const SIZES: [usize; 5] = [1, 3, 5, 50, 200];

/// The values of fields that have to be those of the host.
pub(crate) struct Words<'a> {
    /// The token of the caller, which stands in each text.
    pub(crate) token: &'a str,
    /// Values by the names of fields.
    pub(crate) named: &'a dyn Fn(&str) -> Option<Value>,
    /// The text of each field that is free text, instead of that of the variant.
    pub(crate) text: Option<&'a str>,
}

/// The input of a variant.
pub(crate) fn make(schema: &Value, variant: usize, words: &Words<'_>) -> Value {
    let made = value(schema, schema, "", variant, 0, words);
    if made.is_object() { made } else { json!({}) }
}

fn value(root: &Value, schema: &Value, name: &str, variant: usize, depth: usize, words: &Words<'_>) -> Value {
    if let Some(value) = (words.named)(name) {
        return value;
    }
    if depth > DEPTH {
        return Value::Null;
    }
    let next = |schema: &Value| value(root, schema, name, variant, depth + 1, words);
    if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
        let found = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return found.map_or(Value::Null, next);
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    if let Some(choice) = schema.get("enum").and_then(Value::as_array).filter(|all| !all.is_empty()) {
        return choice.get(variant % choice.len()).cloned().unwrap_or_default();
    }
    for either in ["anyOf", "oneOf"] {
        if let Some(all) = schema.get(either).and_then(Value::as_array).filter(|all| !all.is_empty()) {
            let real: Vec<&Value> = all.iter().filter(|one| one.get("type") != Some(&json!("null"))).collect();
            return real.get(variant % real.len().max(1)).map_or(Value::Null, |one| next(one));
        }
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        let mut whole = schema.as_object().cloned().unwrap_or_default();
        whole.remove("allOf");
        for part in parts.iter().filter_map(Value::as_object) {
            whole.extend(part.clone());
        }
        return next(&Value::Object(whole));
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|kind| **kind != "null").and_then(Value::as_str),
        Some(kind) => kind.as_str(),
        None if schema.get("properties").is_some() => Some("object"),
        None => None,
    };
    match kind {
        Some("object") => object(root, schema, variant, depth, words),
        Some("array") => {
            let least = bound(schema, "minItems").unwrap_or(0.0);
            let most = bound(schema, "maxItems").unwrap_or(f64::MAX);
            let wanted = SIZES.get(variant % SIZES.len()).copied().unwrap_or(1);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let wanted = (wanted as f64).max(least).min(most).clamp(0.0, 256.0) as usize;
            let item = schema.get("items").unwrap_or(&Value::Null);
            (0..wanted).map(|_| value(root, item, name, variant, depth + 1, words)).collect()
        }
        Some("integer") => json!(number(schema, variant)),
        #[expect(clippy::cast_precision_loss)]
        Some("number") => json!(number(schema, variant) as f64),
        Some("boolean") => json!(variant % 2 == 1),
        Some("null") => Value::Null,
        _ => Value::String(text(schema, name, variant, words)),
    }
}

/// An object: of three variants, one has the required fields only, one has all, and one has one other.
fn object(root: &Value, schema: &Value, variant: usize, depth: usize, words: &Words<'_>) -> Value {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let (needed, other): (Vec<_>, Vec<_>) = properties.partition(|(name, _)| required.contains(&name.as_str()));
    let one = variant / 3 % other.len().max(1);
    let other = other.into_iter().enumerate().filter(|(at, _)| variant % 3 == 1 || (variant % 3 == 2 && *at == one));
    let wanted = needed.into_iter().chain(other.map(|(_, field)| field));
    let made: Map<String, Value> = wanted
        .map(|(name, schema)| (name.clone(), value(root, schema, name, variant, depth + 1, words)))
        .filter(|(name, value)| !value.is_null() || required.contains(&name.as_str()))
        .collect();
    Value::Object(made)
}

fn bound(schema: &Value, name: &str) -> Option<f64> {
    schema.get(name).and_then(Value::as_f64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn number(schema: &Value, variant: usize) -> i64 {
    let least = bound(schema, "minimum").or_else(|| Some(bound(schema, "exclusiveMinimum")? + 1.0)).unwrap_or(1.0);
    let most = bound(schema, "maximum").or_else(|| Some(bound(schema, "exclusiveMaximum")? - 1.0)).unwrap_or(1e6);
    (least + (variant % 4) as f64).min(most) as i64
}

/// A value that a refusal names, and the field for it: one whose text it refused. Without a hint in the refusal which
/// field it is about, all texts are taken in turn, with each `attempt`.
pub(crate) fn correction(input: &Value, refusal: &str, attempt: usize) -> Option<(String, Value)> {
    let values = match choices(refusal) {
        none if none.is_empty() && speaks_of_dates(refusal) => vec![DATE.to_owned()],
        choices => choices,
    };
    let value = values.get(attempt % values.len().max(1))?;
    let texts = input.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let mut texts: Vec<_> =
        texts.filter(|(_, text)| *text != DATE && !values.iter().any(|value| value == text)).collect();
    let quoted = |text: &str| text.get(..text.floor_char_boundary(QUOTED)).is_some_and(|text| refusal.contains(text));
    let is_meant = |(name, text): &(&String, &str)| refusal.contains(name.as_str()) || quoted(text);
    if texts.iter().any(is_meant) {
        texts.retain(is_meant);
    }
    let (name, _) = texts.get(attempt % texts.len().max(1))?;
    Some(((*name).clone(), Value::String(value.clone())))
}

/// The values that a text names as choices: those after "one of", else those in backticks.
fn choices(text: &str) -> Vec<String> {
    let listed = text.split_once("one of").map(|(_, rest)| {
        let rest = rest.split(['.', ';', '\n', ')']).next().unwrap_or_default();
        rest.split([',', ':', '|']).flat_map(|part| part.split(" or ")).collect::<Vec<_>>()
    });
    let named = listed.unwrap_or_else(|| text.split('`').skip(1).step_by(2).collect());
    let bare = |value: &str| value.trim_matches(|c: char| c.is_whitespace() || "`'\"[]{}(".contains(c)).to_owned();
    named.into_iter().map(bare).filter(|value| (1..=CHOICE).contains(&value.len())).collect()
}

fn speaks_of_dates(text: &str) -> bool {
    ["YYYY-MM-DD", "date", "Date", "ISO 8601"].iter().any(|word| text.contains(word))
}

/// A text of the kind that the variant takes, unless the schema says which.
fn text(schema: &Value, name: &str, variant: usize, words: &Words<'_>) -> String {
    let token = words.token;
    match schema.get("format").and_then(Value::as_str) {
        Some("date") => return DATE.to_owned(),
        Some("date-time") => return "2026-03-10T09:00:00Z".to_owned(),
        Some("uri" | "url") => return "https://probe.example/page".to_owned(),
        Some("email") => return "ann@probe.example".to_owned(),
        _ => {}
    }
    let lower = name.to_ascii_lowercase();
    if lower.contains("url") || lower == "link" {
        return "https://probe.example/page".to_owned();
    }
    if lower.contains("path") || lower == "file" {
        return "handbook/accounts.csv".to_owned();
    }
    if ["pattern", "regex", "glob"].iter().any(|part| lower.contains(part)) {
        return ["a", "e.*", "[0-9]+"].get(variant % 3).copied().unwrap_or("a").to_owned();
    }
    if ["column", "field", "key"].iter().any(|part| lower.contains(part)) {
        return "amount".to_owned();
    }
    let rows = |count: usize, row: &dyn Fn(usize) -> String| (1..=count).map(row).collect::<Vec<_>>().join("\n");
    let made = match variant % 6 {
        _ if words.text.is_some() => words.text.unwrap_or_default().to_owned(),
        0 => format!("A short text about harbours and tides, reference {token}."),
        1 => rows(3, &|n| format!("- item {n}: the {n}. tide, {token}")),
        2 => format!("name,amount\n{}", rows(5, &|n| format!("harbour {n} {token},{}", n * 7))),
        3 => rows(if variant % 12 == 9 { 200 } else { 50 }, &|n| format!("line {n} of a longer text about {token}")),
        4 => json!([{"name": format!("harbour {token}"), "amount": 3}, {"name": "quay", "amount": 5}]).to_string(),
        _ => format!(
            "# Tides\n\nThe **harbour** is shallow; see {token}.\n\n| name | amount |\n|---|---|\n| quay | 5 |\n"
        ),
    };
    match schema.get("maxLength").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok()) {
        Some(most) if made.chars().count() > most => made.chars().take(most).collect(),
        _ => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_what_schemas_take() {
        let schema = json!({
            "type": "object",
            "required": ["items", "mode", "place"],
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 2},
                "mode": {"enum": ["fast", "slow"]},
                "place": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 10}]},
                "count": {"type": ["integer", "null"], "minimum": 3, "maximum": 4},
            },
            "$defs": {"item": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
        });
        for variant in 0..VARIANTS {
            let made = make(&schema, variant, &Words { token: "token", named: &|_| None, text: None });
            is_sound(&made);
        }
        let named = |name: &str| (name == "place").then(|| json!("here"));
        let made = make(&schema, 0, &Words { token: "token", named: &named, text: None });
        assert_eq!(made["place"], "here");
        assert!(made["items"][0]["name"].as_str().unwrap().contains("token"));
    }

    #[test]
    fn a_refusal_is_followed_where_it_names_values() {
        let corrected = |refusal: &str, attempt| {
            let input = json!({"country": "a short text about harbours", "year": 3, "from": "quay"});
            correction(&input, refusal, attempt)
        };
        let takes = |name: &str, value: &str| Some((name.to_owned(), json!(value)));
        let refusal = "\"a short text about harbours\" is not one of DE, FR, SE or US";
        assert_eq!(corrected(refusal, 0), takes("country", "DE"));
        assert_eq!(corrected(refusal, 3), takes("country", "US"));
        assert_eq!(corrected("unknown country, take `fr` or `de`", 0), takes("country", "fr"));
        assert_eq!(corrected("from: not a date (YYYY-MM-DD)", 0), takes("from", DATE));
        assert_eq!(corrected("no", 0), None);
        // Where the refusal does not say which text it is about, each has its turn.
        let refusal = "one of x, y";
        assert_eq!(corrected(refusal, 0), takes("country", "x"));
        assert_eq!(corrected(refusal, 1), takes("from", "y"));
    }

    fn is_sound(made: &Value) {
        assert!(made["items"].as_array().unwrap().len() >= 2, "{made}");
        assert!(["fast", "slow"].contains(&made["mode"].as_str().unwrap()), "{made}");
        assert!(made["place"].as_str().unwrap().chars().count() <= 10, "{made}");
        assert!(made.get("count").is_none_or(|count| (3..=4).contains(&count.as_i64().unwrap())), "{made}");
    }
}
