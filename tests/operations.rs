//! `docs/hall.md` has the table of the hall's operations, made from their rows.

use std::{env, fmt::Write as _, fs, path::Path};

use guild_contract::operation::{Access, AnswerKind, Quirks, Verbs};
use guild_hall::operations::{HallOperation, OPERATIONS};
use schemars::generate::SchemaSettings;
use serde_json::Value;

const BEGIN: &str = "<!-- made: operations -->\n";
const END: &str = "<!-- end -->";

#[test]
fn the_docs_list_every_operation_of_the_hall() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hall.md");
    let written = fs::read_to_string(&path).unwrap();
    let (before, rest) = written.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let made = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, &made).unwrap();
        return;
    }
    assert!(
        made == written,
        "docs/hall.md is not current; `UPDATE_REFERENCE=1 cargo test -p guild --test host operations::` writes it"
    );
}

#[test]
fn every_operation_has_a_name_a_route_and_a_tool_of_its_own() {
    let unique = |of: fn(&HallOperation) -> Option<&'static str>| {
        let mut all: Vec<_> = OPERATIONS.iter().filter_map(of).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    };
    unique(|operation| Some(operation.row.name));
    unique(|operation| Some(operation.row.route?.path));
    unique(|operation| Some(operation.row.tool?.name));
    for operation in OPERATIONS.iter() {
        let row = &operation.row;
        assert!(row.text.ends_with('.') && row.route.is_some(), "{}", row.name);
        // What changes something is not asked by GET alone.
        let reads = row.route.is_some_and(|route| route.verbs == Verbs::Get);
        assert_eq!(reads, !row.access.changes(), "{}", row.name);
        // A tool is asked through JSON-RPC, too, and a file is not JSON.
        assert!(operation.tool.is_none() || operation.is_method(), "{}", row.name);
    }
}

#[test]
fn a_quirk_names_a_field_of_its_operation() {
    for operation in OPERATIONS.iter() {
        let Quirks { missing, aliases, may_be_empty, sentences } = operation.row.quirks;
        let has = |name: &str| operation.input["properties"].get(name).is_some();
        let names = missing.into_iter().flat_map(|all| all.split(", ")).chain(may_be_empty.iter().copied());
        let names = names.chain(sentences.iter().map(|(name, _)| *name));
        assert!(names.chain(aliases.iter().map(|(_, name)| *name)).all(has), "{}", operation.row.name);
        assert!(!aliases.iter().any(|(alias, _)| has(alias)), "{}", operation.row.name);
    }
}

/// The table, as Markdown.
fn table() -> String {
    let mut out = String::from("| operation | route | fields | answer | token | tool |\n|---|---|---|---|---|---|\n");
    for operation in OPERATIONS.iter() {
        let row = &operation.row;
        let route = row.route.unwrap();
        let verb = match route.verbs {
            Verbs::Get => "GET ",
            Verbs::Post => "",
            Verbs::Both => "GET or POST ",
        };
        let token = match row.access {
            Access::Reads => "`view`",
            Access::Dispatches => "`dispatch`",
            Access::Ends => "`all`",
            Access::Open
            | Access::Notification
            | Access::Inspects
            | Access::Approves
            | Access::Calls
            | Access::Unknown => {
                panic!("{} has no access of the hall", row.name)
            }
        };
        let tool = row.tool.map_or_else(String::new, |tool| format!("`{}`", tool.name));
        let fields = fields(&operation.input, "; ");
        let answer = answer(operation, route.status);
        let (name, path, text) = (row.name, route.path, row.text);
        writeln!(out, "| `{name}` | {verb}`{path}` | {fields} | {answer} {text} | {token} | {tool} |").unwrap();
    }
    out
}

/// The fields of a schema: required ones, and after `optional` the others.
fn fields(schema: &Value, optional: &str) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
    let (needed, others): (Vec<_>, Vec<_>) = names.partition(|name| required.contains(&Value::from(name.as_str())));
    let list = |names: Vec<&String>| names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match (list(needed), list(others)) {
        (needed, others) if others.is_empty() => needed,
        (needed, others) => format!("{needed}{optional}{others}"),
    }
}

fn answer(operation: &HallOperation, status: u16) -> String {
    match operation.row.answer {
        AnswerKind::Turn => return "The events of a turn.".to_owned(),
        AnswerKind::File => return "The file.".to_owned(),
        AnswerKind::Json => {}
    }
    let status = if status == 200 { String::new() } else { format!("{status} ") };
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.inline_subschemas = true);
    let (_, schema) = (operation.shapes)(&mut settings.into_generator());
    match &schema["anyOf"] {
        Value::Array(all) => format!("{status}{}.", all.iter().map(object).collect::<Vec<_>>().join(" or ")),
        _ => format!("{status}{}.", object(&schema)),
    }
}

/// An object by its fields, as `{a, b?}`.
fn object(schema: &Value) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| {
        let needed = required.contains(&Value::from(name.as_str()));
        if needed { name.clone() } else { format!("{name}?") }
    });
    format!("`{{{}}}`", fields.collect::<Vec<_>>().join(", "))
}
