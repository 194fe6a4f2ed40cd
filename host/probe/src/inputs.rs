//! Makes inputs of tools from their JSON Schemas, in several variants: small and large, and texts of several kinds.

use serde_json::{Map, Value, json};

/// The depth to which objects and lists within one another are made.
const DEPTH: usize = 6;
/// The calls of each tool: each variant of its input, and more calls than most counters count.
pub(crate) const VARIANTS: usize = 12;
/// Items of a list, and lines of a text.
const SIZES: [usize; 4] = [1, 3, 5, 50];

/// The values of fields that have to be those of the host.
pub(crate) struct Words<'a> {
    /// The token of the caller, which stands in each text.
    pub(crate) token: &'a str,
    /// Values by the names of fields.
    pub(crate) named: &'a dyn Fn(&str) -> Option<Value>,
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
            let wanted = (wanted as f64).max(least).min(most).clamp(0.0, 64.0) as usize;
            let item = schema.get("items").unwrap_or(&Value::Null);
            (0..wanted).map(|_| value(root, item, name, variant, depth + 1, words)).collect()
        }
        Some("integer") => json!(number(schema, variant)),
        #[expect(clippy::cast_precision_loss)]
        Some("number") => json!(number(schema, variant) as f64),
        Some("boolean") => json!(variant % 2 == 1),
        Some("null") => Value::Null,
        _ => Value::String(text(schema, name, variant, words.token)),
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

/// A text of the kind that the variant takes, unless the schema says which.
fn text(schema: &Value, name: &str, variant: usize, token: &str) -> String {
    match schema.get("format").and_then(Value::as_str) {
        Some("date") => return "2026-03-10".to_owned(),
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
        0 => format!("A short text about harbours and tides, reference {token}."),
        1 => rows(3, &|n| format!("- item {n}: the {n}. tide, {token}")),
        2 => format!("name,amount\n{}", rows(5, &|n| format!("harbour {n} {token},{}", n * 7))),
        3 => rows(50, &|n| format!("line {n} of a longer text about {token}")),
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
            let made = make(&schema, variant, &Words { token: "token", named: &|_| None });
            is_sound(&made);
        }
        let named = |name: &str| (name == "place").then(|| json!("here"));
        let made = make(&schema, 0, &Words { token: "token", named: &named });
        assert_eq!(made["place"], "here");
        assert!(made["items"][0]["name"].as_str().unwrap().contains("token"));
    }

    fn is_sound(made: &Value) {
        assert!(made["items"].as_array().unwrap().len() >= 2, "{made}");
        assert!(["fast", "slow"].contains(&made["mode"].as_str().unwrap()), "{made}");
        assert!(made["place"].as_str().unwrap().chars().count() <= 10, "{made}");
        assert!(made.get("count").is_none_or(|count| (3..=4).contains(&count.as_i64().unwrap())), "{made}");
    }
}
