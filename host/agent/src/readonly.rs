//! The built-in read-only tools: Read, Grep and Glob over the granted read roots, as agents know them, and WebSearch
//! and WebFetch over the web as far as it was opened.
//!
//! [`TABLE`] is all there is of a tool: its name, its input, and what it does. What a model reads of it are the doc comments
//! of its input.

mod local;
mod web;

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use guild_contract::manifest::FILE_TOOLS;
use guild_session::{
    files::Files,
    tools::{ToolDefinition, ToolError, parse},
    web::Web,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Bytes of an answer that are kept for the line that says how to go on.
const LAST_LINE_BYTES: usize = 200;

/// A tool with what it reads: its input, how many bytes its answer has at most where it can be given in parts, and what
/// stops it.
pub(crate) type ReadOnly = Arc<dyn Fn(Value, usize, CancellationToken) -> Answering + Send + Sync>;

/// A call under way.
type Answering = BoxFuture<'static, Result<String, ToolError>>;

/// Binds a tool to what it reads, where there is something.
type Bind = fn(&Tool, Option<&Arc<dyn Files>>, &Web) -> Option<ReadOnly>;

/// A built-in read-only tool.
struct Tool {
    name: &'static str,
    define: fn(&str, Option<&str>, bool) -> ToolDefinition,
    bind: Bind,
}

static TABLE: [Tool; 5] = [
    Tool {
        name: "Read",
        define: ToolDefinition::of::<local::ReadInput>,
        bind: |tool, files, _| tool.reading(files?, local::read),
    },
    Tool {
        name: "Grep",
        define: ToolDefinition::of::<local::GrepInput>,
        bind: |tool, files, _| tool.reading(files?, local::grep),
    },
    Tool {
        name: "Glob",
        define: ToolDefinition::of::<local::GlobInput>,
        bind: |tool, files, _| tool.reading(files?, local::glob),
    },
    Tool {
        name: "WebSearch",
        define: ToolDefinition::of::<web::SearchInput>,
        bind: |tool, _, web| tool.asking(web.search.clone()?, |search, input, _| web::search(search, input).boxed()),
    },
    Tool {
        name: "WebFetch",
        define: ToolDefinition::of::<web::FetchInput>,
        bind: |tool, _, web| tool.asking(web.fetch.clone()?, |page, input, room| web::fetch(page, input, room).boxed()),
    },
];

impl Tool {
    /// A tool over local files. They are read on another thread, which stops soon after the call is cancelled.
    fn reading<T: DeserializeOwned + Send + 'static>(
        &self,
        files: &Arc<dyn Files>,
        read: fn(&dyn Files, T, usize, &CancellationToken) -> Result<String, ToolError>,
    ) -> Option<ReadOnly> {
        let (name, files) = (self.name, files.clone());
        Some(Arc::new(move |input, room, cancel| {
            let files = files.clone();
            let done = async move {
                let (input, room) = (parse(name, input)?, room.saturating_sub(LAST_LINE_BYTES));
                let done = tokio::task::spawn_blocking(move || read(&*files, input, room, &cancel)).await;
                done.unwrap_or_else(|_| Err(ToolError::Unavailable("reading the files broke off".to_owned())))
            };
            done.boxed()
        }))
    }

    /// A tool that asks a source elsewhere.
    fn asking<S: Send + Sync + ?Sized + 'static, T: DeserializeOwned + 'static>(
        &self,
        source: Arc<S>,
        ask: fn(Arc<S>, T, usize) -> Answering,
    ) -> Option<ReadOnly> {
        let name = self.name;
        Some(Arc::new(move |input, room, _| match parse(name, input) {
            Ok(input) => ask(source.clone(), input, room.saturating_sub(LAST_LINE_BYTES)),
            Err(error) => async { Err(error) }.boxed(),
        }))
    }
}

/// The read-only tools of a host, over the read roots that were granted: made once, and shared by all sessions.
#[derive(Clone)]
pub struct Broker {
    files: Option<Arc<dyn Files>>,
    definitions: Arc<[Arc<ToolDefinition>]>,
}

impl Broker {
    /// The tools over these read roots. Without any there are only those that read the web.
    pub fn new(files: Option<Arc<dyn Files>>) -> Self {
        let files = files.filter(|files| !files.roots().is_empty());
        let roots = files.as_ref().map(|files| files.roots()).unwrap_or_default();
        let roots = roots.iter().map(|root| format!("{root}/")).collect::<Vec<_>>().join(", ");
        let define = |tool: &Tool| {
            let mut definition = (tool.define)(tool.name, None, true);
            // A session has no other way to learn the names of the roots.
            if FILE_TOOLS.contains(&tool.name) {
                let paths =
                    format!(" Paths begin with the name of a read root: {roots}; a / before it changes nothing.");
                definition.description.push_str(&paths);
            }
            Arc::new(definition)
        };
        Self { files, definitions: TABLE.iter().map(define).collect() }
    }

    /// Whether a session can be given the tool of this name: whether it exists, and there is something for it to read.
    /// It is the one rule; what is granted to a session follows it.
    pub fn offers(&self, name: &str, web: &Web) -> bool {
        self.tool(name, web).is_some()
    }

    /// A tool, with its definition.
    pub(crate) fn tool(&self, name: &str, web: &Web) -> Option<(Arc<ToolDefinition>, ReadOnly)> {
        let (tool, definition) = TABLE.iter().zip(&*self.definitions).find(|(tool, _)| tool.name == name)?;
        Some((definition.clone(), (tool.bind)(tool, self.files.as_ref(), web)?))
    }
}

#[cfg(test)]
mod tests {
    use guild_contract::manifest::SESSION_TOOLS;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tools_are_those_that_a_manifest_can_ask_for() {
        assert_eq!(TABLE.each_ref().map(|tool| tool.name), SESSION_TOOLS);
    }

    /// What a model is told, word by word.
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
                    "query": {"type": "string", "description": "What to look for, in a few words."},
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": 20, "description": "How many answers; 10 by default.",
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
                                count: how many lines match in each file.",
            })
        );
        assert_eq!(
            grep["properties"]["-A"],
            json!({"type": "integer", "minimum": 0, "description": "Lines to show after each match; for content."})
        );
        assert_eq!(grep["properties"]["-i"], json!({"type": "boolean", "description": "Ignore case."}));
    }
}
