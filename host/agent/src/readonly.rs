//! Provides the built-in read-only tools: Read, Grep and Glob over the granted read roots, in the form that agents
//! know, and WebSearch and WebFetch over the parts of the web that the operator opened.
//!
//! The doc comments of a tool's input are its description for models.

mod local;
mod web;

use std::sync::Arc;

use guild_contract::manifest::FILE_TOOLS;
use guild_session::{
    files::Files,
    tools::{ToolDefinition, ToolError, parse},
    web::{Fetch, Search, Web},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Bytes of an answer that are reserved for the line that says how to continue.
const LAST_LINE_BYTES: usize = 200;

/// A tool with its sources.
pub(crate) enum ReadOnly {
    Read(Arc<dyn Files>),
    Grep(Arc<dyn Files>),
    Glob(Arc<dyn Files>),
    WebSearch(Arc<dyn Search>),
    WebFetch(Arc<dyn Fetch>),
}

impl ReadOnly {
    /// Calls the tool. A result that can be given in parts has at most `room` bytes.
    pub(crate) async fn call(&self, input: Value, room: usize, cancel: CancellationToken) -> Result<String, ToolError> {
        let room = room.saturating_sub(LAST_LINE_BYTES);
        match self {
            Self::Read(files) => on_files(parse("Read", input)?, files, room, cancel, local::read).await,
            Self::Grep(files) => on_files(parse("Grep", input)?, files, room, cancel, local::grep).await,
            Self::Glob(files) => on_files(parse("Glob", input)?, files, room, cancel, local::glob).await,
            Self::WebSearch(search) => web::search(&**search, parse("WebSearch", input)?).await,
            Self::WebFetch(pages) => web::fetch(&**pages, parse("WebFetch", input)?, room).await,
        }
    }
}

/// Reads local files on another thread, which stops soon after the call is cancelled.
async fn on_files<T: Send + 'static>(
    input: T,
    files: &Arc<dyn Files>,
    room: usize,
    cancel: CancellationToken,
    read: fn(&dyn Files, T, usize, &CancellationToken) -> Result<String, ToolError>,
) -> Result<String, ToolError> {
    let files = files.clone();
    let done = tokio::task::spawn_blocking(move || read(&*files, input, room, &cancel)).await;
    done.unwrap_or_else(|_| Err(ToolError::Unavailable("reading the files failed".to_owned())))
}

fn definitions() -> [ToolDefinition; 5] {
    [
        ToolDefinition::of::<local::ReadInput>("Read", None, true),
        ToolDefinition::of::<local::GrepInput>("Grep", None, true),
        ToolDefinition::of::<local::GlobInput>("Glob", None, true),
        ToolDefinition::of::<web::SearchInput>("WebSearch", None, true),
        ToolDefinition::of::<web::FetchInput>("WebFetch", None, true),
    ]
}

/// The read-only tools of a host, over the granted read roots: made once, and shared by all sessions.
#[derive(Clone)]
pub struct Broker {
    files: Option<Arc<dyn Files>>,
    definitions: Arc<[Arc<ToolDefinition>]>,
}

impl Broker {
    /// The tools over these read roots. Without read roots there are only the tools of the web.
    pub fn new(files: Option<Arc<dyn Files>>) -> Self {
        let files = files.filter(|files| !files.roots().is_empty());
        let roots = files.as_ref().map(|files| files.roots()).unwrap_or_default();
        let roots = roots.iter().map(|root| format!("{root}/")).collect::<Vec<_>>().join(", ");
        let complete = |mut definition: ToolDefinition| {
            // A session has no other way to learn the names of the roots.
            if FILE_TOOLS.contains(&&*definition.name) {
                let paths =
                    format!(" Paths begin with the name of a read root: {roots}; a / before it changes nothing.");
                definition.description.push_str(&paths);
            }
            Arc::new(definition)
        };
        Self { files, definitions: definitions().into_iter().map(complete).collect() }
    }

    /// Whether a session can be granted the tool of this name: the tool exists and has sources to read. No other rule
    /// decides this.
    pub fn offers(&self, name: &str, web: &Web) -> bool {
        self.tool(name, web).is_some()
    }

    /// A tool, with its definition.
    pub(crate) fn tool(&self, name: &str, web: &Web) -> Option<(Arc<ToolDefinition>, ReadOnly)> {
        let definition = self.definitions.iter().find(|definition| definition.name == name)?;
        let tool = match name {
            "Read" => ReadOnly::Read(self.files.clone()?),
            "Grep" => ReadOnly::Grep(self.files.clone()?),
            "Glob" => ReadOnly::Glob(self.files.clone()?),
            "WebSearch" => ReadOnly::WebSearch(web.search.clone()?),
            "WebFetch" => ReadOnly::WebFetch(web.fetch.clone()?),
            _ => return None,
        };
        Some((definition.clone(), tool))
    }
}

#[cfg(test)]
mod tests {
    use guild_contract::manifest::SESSION_TOOLS;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tools_are_those_that_a_manifest_can_ask_for() {
        assert_eq!(definitions().map(|tool| tool.name), SESSION_TOOLS);
    }

    /// The texts for models, word by word.
    #[test]
    fn a_schema_is_its_type_and_nothing_besides() {
        let definition = |name: &str| {
            let broker = Broker::new(None);
            broker.definitions.iter().find(|definition| definition.name == name).unwrap().clone()
        };
        let search = definition("WebSearch");
        assert_eq!(
            search.description,
            "Searches for pages, best first: a numbered list of titles, each with its address and some of its text. An \
             address that begins with http is read with WebFetch, any other is a file for Read."
        );
        assert_eq!(
            search.input_schema,
            json!({
                "type": "object", "required": ["query"], "additionalProperties": false,
                "properties": {
                    "query": {"type": "string", "description": "The search query, a few words."},
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": 20, "description": "The number of results; 10 by default.",
                    },
                },
            })
        );
        let grep = &definition("Grep").input_schema;
        let mut properties: Vec<&str> = grep["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        properties.sort_unstable();
        let all = [
            "-A",
            "-B",
            "-C",
            "-i",
            "-n",
            "glob",
            "head_limit",
            "multiline",
            "offset",
            "output_mode",
            "path",
            "pattern",
            "type",
        ];
        assert_eq!((properties.as_slice(), &grep["required"]), (&all[..], &json!(["pattern"])));
        assert_eq!(
            grep["properties"]["output_mode"],
            json!({
                "type": "string", "enum": ["content", "files_with_matches", "count"],
                "description": "content: the lines that match; files_with_matches (the default): the files, newest first; \
                                count: the number of matching lines in each file.",
            })
        );
        assert_eq!(
            grep["properties"]["-A"],
            json!({"type": "integer", "minimum": 0, "description": "The number of lines to show after each match; for content."})
        );
        assert_eq!(grep["properties"]["-i"], json!({"type": "boolean", "description": "Ignores case."}));
    }
}
