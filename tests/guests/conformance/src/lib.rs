//! The tools that the MCP conformance suite asks for by name, as far as a toolbox can have them: it answers with JSON.

use std::borrow::Cow;

use guild_plugin_sdk::{
    export_toolbox,
    toolbox::{Tool, Toolbox},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

struct Conformance;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// An input whose schema has what a host may be tempted to leave out.
#[derive(Deserialize)]
struct Person {}

impl JsonSchema for Person {
    fn schema_name() -> Cow<'static, str> {
        "Person".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
                }
            },
            "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
            "additionalProperties": false
        })
    }
}

impl Toolbox for Conformance {
    fn tools() -> Vec<Tool> {
        let text = |text: &'static str| move |_: Nothing| Ok::<_, String>(text.to_owned());
        let person = |_: Person| Ok::<_, String>("a person".to_owned());
        let error = |_: Nothing| Err::<String, _>("This tool intentionally returns an error for testing");
        vec![
            Tool::new("test_simple_text", "Answers.", text("This is a simple text response for testing.")),
            Tool::new("test_error_handling", "Fails.", error),
            Tool::new("json_schema_2020_12_tool", "Has a schema with definitions.", person),
        ]
    }
}

export_toolbox!(Conformance);
