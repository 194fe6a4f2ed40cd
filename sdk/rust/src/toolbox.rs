//! Tools that agent sessions and callers can use (`guild:worker/toolbox`).
//!
//! A tool is a function from an input to a result, both types of the plugin's own. Their JSON Schemas are made from the
//! types, so what a model reads about a tool is what its function takes:
//!
//! ```
//! use guild_plugin_sdk::{
//!     export_toolbox,
//!     toolbox::{Tool, Toolbox},
//! };
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Input {
//!     /// The text to count in.
//!     #[schemars(length(max = 100_000))]
//!     text: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Counts {
//!     /// Words, as white space parts them.
//!     words: usize,
//! }
//!
//! fn count(input: Input) -> Result<Counts, String> {
//!     Ok(Counts { words: input.text.split_whitespace().count() })
//! }
//!
//! struct Words;
//!
//! impl Toolbox for Words {
//!     fn tools() -> Vec<Tool> {
//!         vec![Tool::new("count", "Counts the words of a text.", count).title("Count words").read_only()]
//!     }
//! }
//!
//! export_toolbox!(Words);
//! ```

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use crate::bindings::tools::exports::guild::worker::toolbox::ToolError;
use crate::{HostError, ToolDefinition, explain};

/// The tools of a component, which are always the same.
pub trait Toolbox {
    /// The tools, in the order in which they are offered. The list is made for each call, so making it must be cheap.
    fn tools() -> Vec<Tool>;
}

/// One tool: its description for a model, and its function.
pub struct Tool {
    name: &'static str,
    title: Option<&'static str>,
    description: &'static str,
    read_only: bool,
    input_schema: fn() -> String,
    output_schema: fn() -> Option<String>,
    run: Box<Run>,
}

/// A function from one JSON document to another.
type Run = dyn Fn(&str) -> Result<String, ToolError>;

impl Tool {
    /// A tool of this name (`[A-Za-z0-9_-]`, short: sessions know it as `member__name`). The description is for the
    /// model: what the tool does, and when to use it.
    ///
    /// Derive `Deserialize` and `JsonSchema` for the input, with `#[serde(deny_unknown_fields)]`: a field's doc comment
    /// is its description, and `#[schemars(length(..), range(..))]` its bounds. The host checks the schema before it
    /// calls. A field that may be left out has `#[serde(default)]`.
    ///
    /// An output that is an object is structured, and has a schema too; a `String` is a text.
    ///
    /// An error says what the one who called should do otherwise. A text is [`ToolError::Failed`].
    pub fn new<I, O, E>(
        name: &'static str,
        description: &'static str,
        run: impl Fn(I) -> Result<O, E> + 'static,
    ) -> Self
    where
        I: DeserializeOwned + JsonSchema,
        O: Serialize + JsonSchema,
        ToolError: From<E>,
    {
        Self {
            name,
            title: None,
            description,
            read_only: false,
            input_schema: || input_schema::<I>().to_value().to_string(),
            output_schema: || output_schema::<O>().map(|schema| schema.to_value().to_string()),
            run: Box::new(move |input| {
                let input = read(input).map_err(|e| ToolError::InvalidInput(e.to_string()))?;
                serde_json::to_string(&run(input)?).map_err(|e| ToolError::Failed(format!("no JSON: {e}")))
            }),
        }
    }

    /// Sets a name for people.
    #[must_use]
    pub fn title(self, title: &'static str) -> Self {
        Self { title: Some(title), ..self }
    }

    /// Marks the tool as changing nothing, so that calls may run in parallel.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.to_owned(),
            title: self.title.map(str::to_owned),
            description: self.description.to_owned(),
            input_schema: (self.input_schema)(),
            output_schema: (self.output_schema)(),
            read_only: self.read_only,
        }
    }
}

/// The definitions of a toolbox's tools, for `list-tools`.
pub fn list<T: Toolbox>() -> Vec<ToolDefinition> {
    T::tools().iter().map(Tool::definition).collect()
}

/// Calls a tool with a JSON document, for `call-tool`. In tests, which run natively, it first checks the input against
/// the tool's schema, as the host does before it calls a component.
///
/// # Errors
///
/// Returns `UnknownTool`, `InvalidInput` for an input that does not match the tool's schema, or the tool's own error.
pub fn call<T: Toolbox>(name: &str, input: &str) -> Result<String, ToolError> {
    let tools = T::tools();
    let tool = tools.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| ToolError::UnknownTool(name.to_owned()))?;
    #[cfg(not(target_family = "wasm"))]
    check(&(tool.input_schema)(), input)?;
    (tool.run)(input)
}

/// Checks an input against a tool's schema, as the host does.
#[cfg(not(target_family = "wasm"))]
fn check(schema: &str, input: &str) -> Result<(), ToolError> {
    let read = |text: &str| serde_json::from_str(text).map_err(|e| ToolError::InvalidInput(e.to_string()));
    let patterns = jsonschema::PatternOptions::regex();
    let validator = jsonschema::options().with_pattern_options(patterns).build(&read(schema)?);
    let validator = validator.map_err(|e| ToolError::Failed(format!("a host refuses the tool's schema: {e}")))?;
    let input = read(input)?;
    let problems = validator.iter_errors(&input).map(|error| match error.instance_path().to_string() {
        place if place.is_empty() => error.to_string(),
        place => format!("at {place}: {error}"),
    });
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(ToolError::InvalidInput(problems.join("; "))) }
}

/// Reads an input. 3.0 is an integer too, as in JSON Schema, although a field of an integer takes no such number.
fn read<I: DeserializeOwned>(input: &str) -> serde_json::Result<I> {
    serde_json::from_str(input).or_else(|e| {
        let mut value = serde_json::from_str(input)?;
        write_integers(&mut value);
        serde_json::from_value(value).map_err(|_| e)
    })
}

/// Writes the numbers without a fraction as integers.
fn write_integers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_integers),
        Value::Object(fields) => fields.values_mut().for_each(write_integers),
        Value::Number(number) => {
            // Larger numbers are not exact.
            let exact = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() <= 2_f64.powi(53));
            if let Some(n) = exact {
                *value = (n as i64).into();
            }
        }
        _ => {}
    }
}

impl From<String> for ToolError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<&str> for ToolError {
    fn from(text: &str) -> Self {
        Self::Failed(text.to_owned())
    }
}

impl From<HostError> for ToolError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::InvalidInput(text) => Self::InvalidInput(text),
            error => Self::Failed(explain(error)),
        }
    }
}

/// Makes a schema like [`plain`], without null: optional fields are left out instead.
fn input_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = plain::<T>(settings);
    RecursiveTransform(without_null).transform(&mut schema);
    schema
}

/// The schema of an output; `None` if it is not an object: clients accept only objects as structured content.
fn output_schema<T: JsonSchema>() -> Option<Schema> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    Some(plain::<T>(settings)).filter(|schema| schema.get("type").is_some_and(|kind| kind == "object"))
}

/// Makes a self-contained schema with only features that every client supports.
fn plain<T: JsonSchema>(mut settings: SchemaSettings) -> Schema {
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    // The tool has a separate description; this one belongs to the Rust type.
    schema.remove("description");
    RecursiveTransform(without_widths).transform(&mut schema);
    RecursiveTransform(unwrapped).transform(&mut schema);
    schema
}

/// Removes line breaks from a description's paragraphs and list items: a doc comment is wrapped for readers of its
/// source.
fn unwrapped(schema: &mut Schema) {
    let Some(Value::String(text)) = schema.get_mut("description") else { return };
    let mut whole = String::with_capacity(text.len());
    for line in text.lines() {
        let begins = line.is_empty() || line.starts_with("- ") || whole.is_empty() || whole.ends_with('\n');
        whole.push_str(if whole.is_empty() {
            ""
        } else if begins {
            "\n"
        } else {
            " "
        });
        whole.push_str(line);
    }
    *text = whole;
}

/// Removes the formats of Rust's numbers (`uint32`), which some clients refuse.
fn without_widths(schema: &mut Schema) {
    let is_number = |kind: &Value| kind == "integer" || kind == "number";
    let of_number = schema.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(is_number),
        kind => is_number(kind),
    });
    if of_number {
        schema.remove("format");
    }
}

fn without_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            schema.insert("type".to_owned(), kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// This is for those who read the code.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Input {
        /// What
        /// to say.
        #[schemars(length(max = 10))]
        word: String,
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    }

    #[derive(Serialize, JsonSchema)]
    struct Said {
        words: Vec<String>,
        last: Option<String>,
    }

    struct Parrot;

    impl Toolbox for Parrot {
        fn tools() -> Vec<Tool> {
            let say = |input: Input| match input.times {
                Some(0) => Err("a parrot cannot be silent"),
                times => Ok(Said { words: vec![input.word; times.unwrap_or(1) as usize], last: None }),
            };
            vec![
                Tool::new("say", "Says it.", say).title("Say").read_only(),
                Tool::new("shout", "Shouts it.", |input: Input| Ok::<_, ToolError>(input.word.to_uppercase())),
            ]
        }
    }

    fn schema(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_tool_is_described_by_its_types() {
        let tools = list::<Parrot>();
        let [say, shout] = tools.as_slice() else { panic!("{tools:?}") };
        assert_eq!((say.name.as_str(), say.title.as_deref(), say.read_only), ("say", Some("Say"), true));
        assert_eq!((shout.name.as_str(), shout.title.as_deref(), shout.read_only), ("shout", None, false));
        assert_eq!(
            schema(&say.input_schema),
            json!({
                "type": "object", "additionalProperties": false, "required": ["word"],
                "properties": {
                    "word": {"description": "What to say.", "type": "string", "maxLength": 10},
                    "times": {"description": "How often.", "type": "integer", "minimum": 0}
                }
            })
        );
        assert_eq!(
            schema(say.output_schema.as_deref().unwrap())["properties"]["last"]["type"],
            json!(["string", "null"])
        );
        assert_eq!(shout.output_schema, None, "a text is not structured");
    }

    #[test]
    fn a_call_finds_its_tool_and_its_errors_are_told_apart() {
        let say = |input: &str| call::<Parrot>("say", input);
        assert_eq!(say(r#"{"word": "a", "times": 2}"#).unwrap(), r#"{"words":["a","a"],"last":null}"#);
        assert_eq!(say(r#"{"word": "a", "times": 2.0}"#), say(r#"{"word": "a", "times": 2}"#), "it is an integer");
        assert_eq!(call::<Parrot>("shout", r#"{"word": "é"}"#).unwrap(), r#""É""#);
        assert_eq!(say(r#"{"word": "a", "times": 0}"#), Err(ToolError::Failed("a parrot cannot be silent".into())));
        // `maxLength` is the schema's alone: the type takes any text.
        for bad in [
            "{}",
            "[",
            "[]",
            r#"{"word": 3}"#,
            r#"{"word": "a", "tmes": 2}"#,
            r#"{"word": "longer than ten"}"#,
            r#"{"word": "a", "times": 2.5}"#,
        ] {
            assert!(matches!(say(bad), Err(ToolError::InvalidInput(_))), "{bad}");
        }
        assert_eq!(call::<Parrot>("sing", "{}"), Err(ToolError::UnknownTool("sing".into())));
    }
}
