//! Checks a member's file by the JSON Schema of its type.
//!
//! serde's derived `Deserialize` also accepts a list of values for a struct, in the order of its fields:
//! `"grants": [{}, {}]` would grant two interfaces without naming them. The schema accepts only an object.

use schemars::JsonSchema;
use serde_json::Value;

use crate::{
    json::misread::{OBJECT, SHOWN_CHARS, wrong_type},
    json::schema,
    text::one_line,
};

/// The schema of a file. The `$comment` of an object is the remedy for a value of another type.
pub(super) struct Shape(Value);

impl Shape {
    pub(super) fn of<T: JsonSchema>() -> Self {
        Self(schema::input::<T>())
    }

    /// Refuses a value that is not an object where the schema requires one. It accepts null, which serde refuses unless
    /// the field is optional, and leaves all other errors to serde.
    ///
    /// # Errors
    ///
    /// Returns the path of the value, and the text of the error.
    pub(super) fn check(&self, value: &Value) -> Result<(), (String, String)> {
        let Some(Stray { path, schema, value }) = stray(&self.0, value) else { return Ok(()) };
        let path = path.join(".");
        let remedy = schema.get("$comment").and_then(Value::as_str);
        let wanted = remedy.map_or(OBJECT.to_owned(), |remedy| format!("{OBJECT}: {remedy}"));
        Err((path.clone(), wrong_type(&path, &found(value), &wanted)))
    }
}

/// A value that is neither an object nor null where its schema requires an object.
struct Stray<'a> {
    path: Vec<String>,
    schema: &'a Value,
    value: &'a Value,
}

/// The first such value. A schema that [`schema::input`] made says all in these keywords, and a validator of any schema
/// would take an eighth of the start of a host.
fn stray<'a>(schema: &'a Value, value: &'a Value) -> Option<Stray<'a>> {
    let inner = |key: String, schema: Option<&'a Value>, value| {
        let found = stray(schema?, value)?;
        Some(Stray { path: std::iter::once(key).chain(found.path).collect(), ..found })
    };
    match value {
        Value::Null => None,
        Value::Object(fields) => fields.iter().find_map(|(key, field)| {
            let named = schema.get("properties").and_then(|named| named.get(key));
            inner(key.clone(), named.or_else(|| schema.get("additionalProperties")), field)
        }),
        _ if schema.get("type").is_some_and(|kind| kind == "object") => Some(Stray { path: Vec::new(), schema, value }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(number, item)| inner(number.to_string(), schema.get("items"), item))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("the text {}", one_line(&format!("{text:?}"), SHOWN_CHARS)),
        Value::Number(number) => format!("the number `{number}`"),
        other => format!("`{other}`"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Manifest;

    /// The error for a manifest with this component, whose `file` is in line 4.
    fn error(component: &str) -> String {
        let text = format!(
            "{{\"name\": \"a\", \"displayName\": \"A\", \"description\": \"d\", \"version\": \"1\",\n\
             \"transport\": \"http\", \"mcp\": {{\"command\": \"guild\", \"args\": []}},\n\
             \"component\": {{\n\"file\": \"a.wasm\", \"world\": \"worker\",\n{component}\n}}}}"
        );
        Manifest::parse(text.as_bytes()).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_is_no_object_is_refused_where_it_begins_and_with_what_to_write() {
        for (component, expected) in [
            ("\"grants\":\n[{}, {}]", ":6: `component.grants` is a list; it must be an object"),
            ("\"grants\": {\"log\":\n[]}", ":6: `component.grants.log` is a list; it must be an object: write {} to"),
            (
                "\"grants\": {\"lore\": true}",
                ":5: `component.grants.lore` is `true`; it must be an object: write {\"write\": true} to",
            ),
            (
                "\"grants\": {\"web\": \"x\"}",
                "`component.grants.web` is the text \"x\"; it must be an object: write {\"",
            ),
            ("\"grants\": {\"artifacts\": 5}", "`component.grants.artifacts` is the number `5`; it must be an object"),
            ("\"resources\": [9]", ":5: `component.resources` is a list; it must be an object"),
            ("\"resources\": null", ":5: `component.resources` is null; it must be an object"),
            // The last of two values is the one that the schema sees.
            ("\"grants\": [{}], \"grants\": {}", ":5: duplicate field `grants`"),
        ] {
            let error = error(component);
            assert!(error.contains(expected), "{component}: {error}");
        }
        assert_eq!(error("\"grants\": {\"log\": null}"), "");
        assert!(Manifest::parse(b"[]").unwrap_err().text.starts_with("the file is a list; it must be an object"));
    }

    #[test]
    fn the_schema_says_of_each_struct_that_it_is_an_object() {
        let schema = Shape::of::<Manifest>().0.to_string();
        // The check follows none of these.
        let others = ["anyOf\"", "oneOf\"", "allOf\"", "$ref\"", "patternProperties\"", "prefixItems\"", "type\":["];
        assert!(others.iter().all(|word| !schema.contains(word)), "{schema}");
    }

    #[test]
    fn a_list_stands_for_an_object_nowhere_in_a_package() {
        let package = json!({"name": "a", "guildHall": {
            "type": "worker", "identity": {"name": "A", "description": "d"}, "resourceDefaults": {"maxTurns": 9},
            "component": {
                "file": "a.wasm", "world": "worker", "resources": {"maxTurns": 9},
                "grants": {"files": {"roots": ["docs"]}}
            },
        }});
        let of = |package: &Value| Manifest::of(None, Some(package.to_string().as_bytes()));
        of(&package).unwrap();
        for place in
            ["", "/identity", "/resourceDefaults", "/component", "/component/resources", "/component/grants/files"]
        {
            let mut changed = package.clone();
            let object = changed.pointer_mut(&format!("/guildHall{place}")).unwrap();
            *object = object.as_object().unwrap().values().cloned().collect();
            let why = of(&changed).unwrap_err();
            let path = format!("guildHall{place}").replace('/', ".");
            assert!(why.text.starts_with(&format!("`{path}` is a list; it must be an object")), "{why}");
        }
    }
}
