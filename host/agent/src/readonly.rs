//! Read, Grep and Glob, as agents know them, over the granted read roots.

use std::{collections::BTreeMap, sync::Arc};

use guild_jobs::{
    files::{Files, Passage},
    tools::{ToolDefinition, ToolError},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Lines that Read shows where no limit is asked for.
const READ_LINES: u32 = 2000;
/// Lines, files or paths that Grep and Glob show where no limit is asked for, and at most.
const SHOWN: (u32, u32) = (250, 2000);
/// Matching lines that Grep looks at to name or count files.
const COUNTED: u32 = 20_000;

/// The built-in read-only tools that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    Read,
    Grep,
    Glob,
}

/// Whether a session can be given the built-in tool of this name, where there is something to read.
pub fn is_available(name: &str) -> bool {
    ReadOnly::named(name).is_some()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadInput {
    file_path: String,
    offset: Option<u32>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrepInput {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    output_mode: OutputMode,
    #[serde(default, rename = "-i")]
    ignore_case: bool,
    head_limit: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    #[default]
    FilesWithMatches,
    Count,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobInput {
    pattern: String,
    path: Option<String>,
}

impl ReadOnly {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "Read" => Some(Self::Read),
            "Grep" => Some(Self::Grep),
            "Glob" => Some(Self::Glob),
            _ => None,
        }
    }

    /// The definition, with the names of the roots in it: a session has no other way to learn them.
    pub(crate) fn definition(self, roots: &[String]) -> ToolDefinition {
        let paths = format!(
            "Paths begin with the name of a read root: {}.",
            roots.iter().map(|root| format!("{root}/")).collect::<Vec<_>>().join(", ")
        );
        let (name, what, properties, required) = match self {
            Self::Read => (
                "Read",
                "Reads a text file; each line comes with its number before it.",
                json!({
                    "file_path": {"type": "string", "description": "The file: root/path."},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line to read; 1 by default."},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read; 2000 by default."},
                }),
                json!(["file_path"]),
            ),
            Self::Grep => (
                "Grep",
                "Searches the contents of files with a regular expression (ripgrep's syntax).",
                json!({
                    "pattern": {"type": "string", "description": "The regular expression; it matches within a line."},
                    "path": {"type": "string", "description": "A file or directory to search; everything by default."},
                    "glob": {"type": "string", "description": "Only files whose path matches, such as *.md or src/**/*.rs."},
                    "output_mode": {
                        "type": "string", "enum": ["content", "files_with_matches", "count"],
                        "description": "Matching lines, files (the default), or matches per file.",
                    },
                    "-i": {"type": "boolean", "description": "Ignore case."},
                    "head_limit": {"type": "integer", "minimum": 1, "description": "How many lines or files to show; 250 by default."},
                }),
                json!(["pattern"]),
            ),
            Self::Glob => (
                "Glob",
                "Finds files by the pattern of their path, newest first.",
                json!({
                    "pattern": {"type": "string", "description": "The glob, such as **/*.md."},
                    "path": {"type": "string", "description": "The directory to look in; everywhere by default."},
                }),
                json!(["pattern"]),
            ),
        };
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: format!("{what} {paths}"),
            input_schema: json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            }),
            output_schema: None,
            read_only: true,
        }
    }

    /// Carries a call out. It blocks on the file system.
    pub(crate) fn call(self, files: &Arc<dyn Files>, input: Value) -> Result<String, ToolError> {
        match self {
            Self::Read => {
                let input: ReadInput = parse("Read", input)?;
                let limit = positive("limit", input.limit, READ_LINES)?;
                files.read(&input.file_path, positive("offset", input.offset, 1)?, limit.min(READ_LINES))
            }
            Self::Grep => grep(files, parse("Grep", input)?),
            Self::Glob => {
                let input: GlobInput = parse("Glob", input)?;
                let glob = within(input.path.as_deref(), Some(&input.pattern)).unwrap_or(input.pattern);
                let found = files.glob(&glob, SHOWN.0 + 1)?;
                Ok(listed(found, SHOWN.0, "No files match."))
            }
        }
    }
}

fn grep(files: &Arc<dyn Files>, input: GrepInput) -> Result<String, ToolError> {
    let shown = positive("head_limit", input.head_limit, SHOWN.0)?.min(SHOWN.1);
    let pattern = if input.ignore_case { format!("(?i){}", input.pattern) } else { input.pattern };
    let glob = within(input.path.as_deref(), input.glob.as_deref());
    let find = |limit| files.grep(&pattern, glob.as_deref(), limit);
    let none = "No lines match.";
    if let OutputMode::Content = input.output_mode {
        let line = |found: Passage| format!("{}:{}:{}", found.path, found.line, found.text);
        return Ok(listed(find(shown + 1)?.into_iter().map(line).collect(), shown, none));
    }
    let found = find(COUNTED)?;
    let counted = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let mut per_file: BTreeMap<String, u32> = BTreeMap::new();
    for passage in found {
        *per_file.entry(passage.path).or_default() += 1;
    }
    let line = |(path, count): (String, u32)| match input.output_mode {
        OutputMode::Count => format!("{path}:{count}"),
        _ => path,
    };
    let mut text = listed(per_file.into_iter().map(line).collect(), shown, none);
    if counted >= COUNTED {
        text.push_str(&format!("\n(only the first {COUNTED} matching lines were looked at: narrow the search)"));
    }
    Ok(text)
}

/// One line each, at most `shown` of them; a last line says where there were more.
fn listed(lines: Vec<String>, shown: u32, none: &str) -> String {
    if lines.is_empty() {
        return none.to_owned();
    }
    let shown = usize::try_from(shown).unwrap_or(usize::MAX);
    let more = lines.len() > shown;
    let mut text = lines.into_iter().take(shown).collect::<Vec<_>>().join("\n");
    if more {
        text.push_str(&format!("\n(cut after {shown}: narrow the search)"));
    }
    text
}

/// The glob for a path and a glob below it. The path itself is taken literally; it may be a file.
fn within(path: Option<&str>, glob: Option<&str>) -> Option<String> {
    let Some(path) = path.map(|path| path.trim_end_matches('/')).filter(|path| !path.is_empty() && *path != ".") else {
        return glob.map(str::to_owned);
    };
    let mut literal = String::new();
    for c in path.chars() {
        match c {
            '*' | '?' | '[' | ']' | '{' | '}' | ',' => literal.extend(['[', c, ']']),
            c => literal.push(c),
        }
    }
    let below = glob.unwrap_or("*").trim_start_matches('/');
    let deep = if below.contains('/') { "" } else { "**/" };
    // The slash in the first alternative's stead makes it a whole path, never a bare name.
    Some(format!("{{{literal},{literal}/{deep}{below}}}"))
}

fn positive(field: &str, value: Option<u32>, default: u32) -> Result<u32, ToolError> {
    match value {
        Some(0) => Err(ToolError::InvalidInput(format!("{field} must be at least 1"))),
        value => Ok(value.unwrap_or(default)),
    }
}

fn parse<T: DeserializeOwned>(tool: &str, input: Value) -> Result<T, ToolError> {
    serde_path(input).map_err(|error| ToolError::InvalidInput(format!("{tool}: {error}")))
}

/// Parses an input so that an error names the field that it is about.
fn serde_path<T: DeserializeOwned>(input: Value) -> Result<T, String> {
    let Value::Object(fields) = &input else { return Err("the input must be an object".to_owned()) };
    T::deserialize(&input).map_err(|error| {
        // serde names unknown and missing fields itself, but not the one whose type is wrong: it is the one
        // without which the error goes away, or becomes that the field is missing.
        let text = error.to_string();
        if text.contains("field `") {
            return text;
        }
        let culprit = fields.keys().find(|key| {
            let mut rest = fields.clone();
            rest.remove(*key);
            T::deserialize(Value::Object(rest)).err().is_none_or(|other| other.to_string() != text)
        });
        culprit.map_or(text.clone(), |key| format!("{key}: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_field() {
        let text = |input| parse::<GrepInput>("Grep", input).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text(json!({})).contains("`pattern`"));
        assert!(text(json!({"pattern": 5})).contains("pattern: "));
        assert!(text(json!({"pattern": "x", "-i": "yes"})).contains("-i: "));
        assert!(text(json!({"pattern": "x", "output_mode": "all"})).contains("output_mode: "));
        assert!(text(json!({"pattern": "x", "paths": "y"})).contains("`paths`"));
    }

    #[test]
    fn a_path_in_a_search_is_literal() {
        assert_eq!(within(Some("docs/a*"), None).as_deref(), Some("{docs/a[*],docs/a[*]/**/*}"));
        assert_eq!(within(Some("docs/"), Some("*.md")).as_deref(), Some("{docs,docs/**/*.md}"));
        assert_eq!(within(None, Some("*.md")).as_deref(), Some("*.md"));
        assert_eq!(within(None, None), None);
    }
}
