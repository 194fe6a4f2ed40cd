//! Explains to a model why a value does not match its schema, and which value would.

use guild_contract::text::nearest::{choices, either};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

/// Bytes of a problem.
pub(super) const PROBLEM_BYTES: usize = 1536;
/// Bytes of the value that is shown, and of each thing that could stand in its place.
const VALUE_BYTES: usize = 120;
const CHOICE_BYTES: usize = 240;
/// How deep alternatives within alternatives are shown.
const DEPTH: usize = 2;

/// A whole value, and the schema that it was checked against.
#[derive(Clone, Copy)]
pub(super) struct Checked<'a> {
    pub(super) value: &'a Value,
    pub(super) schema: &'a Value,
}

/// The place of an error, and the error.
pub(super) fn explained(error: &ValidationError<'_>, checked: Checked<'_>) -> String {
    cut(placed(error, checked, 0), PROBLEM_BYTES)
}

fn placed(error: &ValidationError<'_>, checked: Checked<'_>, depth: usize) -> String {
    let (place, reason) = (error.instance_path().to_string(), reason(error, checked, depth));
    if place.is_empty() { reason } else { format!("at {place}: {reason}") }
}

fn reason(error: &ValidationError<'_>, checked: Checked<'_>, depth: usize) -> String {
    let value = short(error.instance());
    match error.kind() {
        Kind::Enum { options } => format!("{value} is not one of {}", choices(listed(options))),
        Kind::Constant { expected_value } => format!("{value} is not {}", short(expected_value)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } if depth < DEPTH => {
            let all = context.iter().flat_map(|errors| alternatives(error, errors, checked, depth));
            format!("{value} is none of: {}", choices(all))
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known: Vec<&str> = properties(error, checked.schema).collect();
            let unknown = unknown(unexpected.iter());
            match (unexpected.first(), known.as_slice()) {
                (Some(first), [_, ..]) => format!("{unknown}; {}", either(first, known.iter().copied())),
                _ => unknown,
            }
        }
        // The object knows no property. The error does not name those that it has.
        Kind::FalseSchema if error.schema_path().as_str().ends_with("/additionalProperties") => {
            let object = checked.value.pointer(error.instance_path().as_str()).and_then(Value::as_object);
            let unknown = object.map_or_else(|| "unknown properties".to_owned(), |object| unknown(object.keys()));
            format!("{unknown}; none is known here, write {{}}")
        }
        Kind::FalseSchema => format!("{value} may not stand here"),
        _ => error.masked_with(value).to_string(),
    }
}

/// Says that these properties are unknown.
fn unknown<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let what = if names.len() == 1 { "property" } else { "properties" };
    format!("unknown {what} {}", choices(names.map(|name| format!("{:?}", cut(name.clone(), VALUE_BYTES)))))
}

/// The values that an alternative accepts.
fn alternatives(
    error: &ValidationError<'_>,
    errors: &[ValidationError<'static>],
    checked: Checked<'_>,
    depth: usize,
) -> Vec<String> {
    let here = || errors.iter().filter(|other| other.instance_path() == error.instance_path());
    let values: Vec<String> = here()
        .flat_map(|other| match other.kind() {
            Kind::Enum { options } => listed(options).collect(),
            Kind::Constant { expected_value } => vec![short(expected_value)],
            _ => Vec::new(),
        })
        .collect();
    if !values.is_empty() {
        return values;
    }
    let types = here().find_map(|other| match other.kind() {
        Kind::Type { kind: TypeKind::Single(kind) } => Some(vec![format!("a value of type {kind}")]),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => {
            Some(kinds.iter().map(|kind| format!("a value of type {kind}")).collect())
        }
        _ => None,
    });
    let first = || errors.iter().map(|other| cut(placed(other, checked, depth + 1), CHOICE_BYTES));
    types.unwrap_or_else(|| first().take(1).map(|why| format!("another ({why})")).collect())
}

/// The values that `enum` lists.
fn listed(options: &Value) -> impl Iterator<Item = String> {
    options.as_array().into_iter().flatten().map(short)
}

/// The properties that are known where others were found.
fn properties<'a>(error: &ValidationError<'_>, schema: &'a Value) -> impl Iterator<Item = &'a str> {
    let keyword = error.schema_path().as_str();
    let around = keyword.rsplit_once('/').and_then(|(around, _)| schema.pointer(around));
    let known = around.and_then(|around| around.get("properties")).and_then(Value::as_object);
    known.into_iter().flat_map(|known| known.keys().map(String::as_str))
}

/// The beginning of a value's JSON.
fn short(value: &Value) -> String {
    cut(value.to_string(), VALUE_BYTES)
}

fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(schema: Value, value: Value) -> String {
        let validator = jsonschema::validator_for(&schema).unwrap();
        let problems: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| explained(&error, Checked { value: &value, schema: &schema }))
            .collect();
        problems.join("; ")
    }

    #[test]
    fn what_could_stand_there_is_listed_up_to_a_bound() {
        let eight = json!({"properties": {"by": {"enum": ["a", "b", "c", "d", "e", "f", "g", 8]}}});
        assert_eq!(why(eight, json!({"by": "x"})), r#"at /by: "x" is not one of "a", "b", "c", "d", "e", "f", "g", 8"#);
        let many: Vec<String> = (0..200).map(|n| format!("choice-{n}")).collect();
        let problem = why(json!({"enum": many}), json!("x".repeat(5000)));
        assert!(problem.contains("\"choice-0\", ") && problem.ends_with(" ... and 150 more"), "{problem}");
        assert!(problem.len() < PROBLEM_BYTES, "{problem}");
    }

    #[test]
    fn alternatives_are_told_and_not_only_that_none_fits() {
        // As schemars writes an enum whose variants are described.
        let described = json!({"oneOf": [
            {"const": "first", "description": "Keeps the first."}, {"type": "string", "const": "last"}, {"enum": ["all", "none"]},
        ]});
        assert_eq!(why(described.clone(), json!("frist")), r#""frist" is none of: "first", "last", "all", "none""#);
        assert_eq!(why(described, json!(1)), r#"1 is none of: "first", "last", "all", "none""#);
        let null = json!({"anyOf": [{"type": ["string", "integer"]}, {"type": "null"}]});
        let problem = why(null, json!([]));
        assert_eq!(problem, "[] is none of: a value of type integer, a value of type string, a value of type null");
        let tagged = json!({"anyOf": [
            {"properties": {"op": {"const": "eq"}}, "required": ["op"]}, {"properties": {"op": {"const": "lt"}}, "required": ["op"]},
        ]});
        let problem = why(tagged, json!({"op": "gt"}));
        assert!(
            problem.contains(r#"at /op: "gt" is not "eq""#) && problem.contains(r#""gt" is not "lt""#),
            "{problem}"
        );
    }

    #[test]
    fn an_unknown_property_is_answered_with_those_that_are_known() {
        let closed = |defs: Value| {
            json!({
                "properties": {"column": {}, "where": {"$ref": "#/$defs/w"}}, "additionalProperties": false, "$defs": defs,
            })
        };
        let schema = closed(json!({"w": {"properties": {"op": {}}, "additionalProperties": false}}));
        let problem = why(schema.clone(), json!({"colunm": 1}));
        assert_eq!(problem, r#"unknown property "colunm"; did you mean `column`? known are column, where"#);
        let problem = why(schema, json!({"where": {"oq": 1, "z": 2}}));
        assert!(problem.starts_with("at /where: unknown properties \"oq\", \"z\"; "), "{problem}");
        assert!(problem.ends_with("did you mean `op`? known are op"), "{problem}");
        let nothing = json!({"additionalProperties": false});
        assert_eq!(why(nothing.clone(), json!({"a": 1})), "unknown property \"a\"; none is known here, write {}");
        assert_eq!(
            why(nothing, json!({"a": 1, "b": 2})),
            "unknown properties \"a\", \"b\"; none is known here, write {}"
        );
        let inner = json!({"properties": {"a": {"anyOf": [{"additionalProperties": false}]}}});
        assert!(why(inner, json!({"a": {"b": 1}})).contains("unknown property \"b\""));
        let never = json!({"properties": {"a": false}});
        assert_eq!(why(never, json!({"a": 1})), "at /a: 1 may not stand here");
    }

    #[test]
    fn a_long_value_is_cut_so_that_what_is_wrong_is_told() {
        let problem = why(json!({"type": "array"}), json!("é".repeat(5000)));
        assert!(problem.ends_with("... is not of type \"array\"") && problem.len() < 200, "{problem}");
    }
}
