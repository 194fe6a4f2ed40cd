//! Generates JSON Schemas of the types on the wire and of the inputs of tools.

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::Value;

/// The self-contained schema of a type as it is serialized, in draft 2020-12: a field that is always present is
/// required, even if it may be null.
pub fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().into()
}

/// The schema of a tool's input, for a model: optional fields are not required, descriptions are the doc comments, and
/// all types are inline. Titles, formats, defaults, and `null` beside the type of an optional field are left out, since
/// a model does not need them.
pub fn input<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.with_transform(RecursiveTransform(lean)).into_generator().into_root_schema_for::<T>().into()
}

fn lean(schema: &mut Schema) {
    for key in ["title", "format", "default"] {
        schema.remove(key);
    }
    // An optional field of a named type, and the choices of an enum.
    if let Some(Value::Array(any)) = schema.get("anyOf")
        && let [Value::Object(one), null] = any.as_slice()
        && null.get("type").is_some_and(|kind| kind == "null")
    {
        let one = one.clone();
        schema.remove("anyOf");
        for (key, value) in one {
            if schema.get(&key).is_none() {
                schema.insert(key, value);
            }
        }
    }
    if let Some(Value::Array(choices)) = schema.get("oneOf")
        && let Some(choices) = choices.iter().map(|one| one.get("const").cloned()).collect::<Option<Vec<_>>>()
    {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), choices.into());
    }
    if let Some(Value::Array(types)) = schema.get("type")
        && let [one, null] = types.as_slice()
        && null == "null"
    {
        let one = one.clone();
        schema.insert("type".to_owned(), one);
    }
    if let Some(Value::String(description)) = schema.get("description") {
        let line = description.replace('\n', " ");
        schema.insert("description".to_owned(), line.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rpc::{Listed, StatusView};

    #[test]
    fn an_optional_choice_is_a_list_of_words() {
        assert_eq!(
            input::<crate::rpc::ListParams>()["properties"]["detail"],
            json!({
                "description": "The amount of detail for each job; `simple` by default.",
                "type": "string",
                "enum": ["simple", "detailed"],
            })
        );
    }

    #[test]
    fn what_is_always_written_is_required() {
        let mut required: Vec<String> = serde_json::from_value(of::<StatusView>()["required"].take()).unwrap();
        required.sort_unstable();
        let nine = [
            "completedAt",
            "decisions",
            "description",
            "error",
            "jobId",
            "questions",
            "startedAt",
            "status",
            "summary",
        ];
        assert_eq!(required, nine);
        assert_eq!(of::<Listed>()["required"], json!(["jobId", "status"]));
    }
}
