//! The textkit: tools for texts and tables that a model is slow, costly or wrong at doing itself.
//!
//! Each takes a text and answers with what is in it. None imports anything of the host's: the same input gives the same
//! result, and nothing is read, written or remembered.

mod compare;
mod extract;
mod lines;
mod query;
mod replace;
mod stats;

use guild_plugin_sdk::{
    export_toolbox,
    toolbox::{Tool, ToolError, Toolbox},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tabular::{Source, Target};

struct Textkit;

impl Toolbox for Textkit {
    fn tools() -> Vec<Tool> {
        vec![
            Tool::new(
                "text_stats",
                "Counts characters, bytes, words, lines, blank lines and paragraphs of a text, and finds its longest \
                 lines. Use it where a length matters; do not count yourself.",
                stats::text_stats,
            )
            .title("Count in a text"),
            Tool::new(
                "find_replace",
                "Replaces every occurrence of a text, or of a regular expression, and says how many there were. Use it \
                 for the same change in many places. With `regex`, `$1` and `${name}` in the replacement stand for \
                 groups.",
                replace::find_replace,
            )
            .title("Find and replace"),
            Tool::new(
                "extract",
                "Lists what a text has of one kind, each with its line: links, email addresses, numbers, dates, \
                 Markdown headings, or what matches a regular expression. Use it to collect, and to see how often \
                 something is there. A link is an address with its scheme, as https://a.example/b: not a bare \
                 www.a.example, and not a relative link as docs/b.md; find these with a `pattern`.",
                extract::extract,
            )
            .title("Extract from a text"),
            Tool::new(
                "diff",
                "Compares two texts line by line: whether they are the same, how many lines came and went, and a \
                 unified diff. Use it to see what changed between two versions.",
                compare::diff,
            )
            .title("Compare two texts"),
            Tool::new(
                "sort_lines",
                "Sorts the lines of a text: alphabetically, by number or by how often each is there. On request it keeps \
                 each line only once, and says how many times it was there. With `order`: \"none\" the lines stay in \
                 their places.",
                lines::sort_lines,
            )
            .title("Sort and deduplicate lines"),
            Tool::new(
                "query_table",
                "Answers a question about a table (CSV, TSV, Markdown, or a JSON array of objects): keeps the rows that \
                 meet all conditions, groups and aggregates them, sorts, and selects columns. Use it for every sum, \
                 count, average, maximum or ranking over a table; do not work them out yourself.",
                query::query_table,
            )
            .title("Query a table"),
            Tool::new(
                "convert_table",
                "Writes a table in another form: CSV, TSV, Markdown, or a JSON array of objects. Use it to show rows as \
                 a Markdown table, or to make a file of them.",
                convert_table,
            )
            .title("Convert a table"),
        ]
        .into_iter()
        .map(Tool::read_only)
        .collect()
    }
}

/// The input of `convert_table`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Convert {
    /// The table.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// How the text holds it; found out where it is not set.
    #[serde(default)]
    from: Source,
    /// How to write it.
    to: Target,
}

fn convert_table(input: Convert) -> Result<String, ToolError> {
    let table = input.from.read(&input.text).map_err(ToolError::InvalidInput)?;
    Ok(input.to.write(&table)?)
}

export_toolbox!(Textkit);

#[cfg(test)]
mod tests {
    use guild_plugin_sdk::toolbox;
    use serde_json::{Value, json};

    use super::*;

    /// What a tool answers, as its callers see it.
    pub(crate) fn call(name: &str, input: Value) -> Result<Value, String> {
        match toolbox::call::<Textkit>(name, &input.to_string()) {
            Ok(output) => Ok(serde_json::from_str(&output).unwrap()),
            Err(ToolError::Failed(text) | ToolError::InvalidInput(text)) => Err(text),
            Err(ToolError::UnknownTool(name)) => panic!("there is no tool {name}"),
        }
    }

    #[test]
    fn every_tool_is_described_and_takes_no_more_than_it_says() {
        for tool in toolbox::list::<Textkit>() {
            assert!(tool.read_only && tool.title.is_some() && tool.description.ends_with('.'), "{}", tool.name);
            let input: Value = serde_json::from_str(&tool.input_schema).unwrap();
            assert_eq!((&input["type"], &input["additionalProperties"]), (&json!("object"), &json!(false)));
            for (field, schema) in input["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{}.{field}: {schema}", tool.name);
                assert!(
                    schema["type"] != "string" || schema.get("maxLength").is_some() || schema.get("enum").is_some()
                );
            }
        }
    }

    #[test]
    fn a_table_is_converted() {
        let csv = "name,age\nann,30\nbob,\n";
        let convert = |to: &str| call("convert_table", json!({"text": csv, "to": to}));
        assert_eq!(convert("markdown").unwrap(), "| name | age |\n| --- | ---: |\n| ann | 30 |\n| bob |  |\n");
        assert_eq!(convert("tsv").unwrap(), "name\tage\nann\t30\nbob\t\n");
        let rows = json!([{"name": "ann", "age": 30}, {"name": "bob", "age": null}]);
        let written = convert("json").unwrap();
        assert_eq!(serde_json::from_str::<Value>(written.as_str().unwrap()).unwrap(), rows);
        assert_eq!(call("convert_table", json!({"text": rows.to_string(), "to": "csv"})).unwrap(), csv);
        assert!(call("convert_table", json!({"text": "", "to": "csv"})).unwrap_err().contains("no table"));
    }
}
