//! The built-in read-only tools: Read, Grep and Glob over the granted read roots, as agents know them, and WebSearch
//! and WebFetch over the web as far as it was opened.

mod input;
mod local;
mod web;

use local::Definition;
use std::sync::Arc;

use guild_session::{
    files::Files,
    tools::{ToolDefinition, ToolError},
    web::{Fetch, Search, Web},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Bytes of an answer that are kept for the line that says how to go on.
const LAST_LINE_BYTES: usize = 200;

/// What a tool over local files does with its input: it blocks.
type Local = fn(&dyn Files, Value, usize, &CancellationToken) -> Result<String, ToolError>;

/// A built-in read-only tool, with what it reads.
#[derive(Clone)]
pub(crate) enum ReadOnly {
    Read(Arc<dyn Files>),
    Grep(Arc<dyn Files>),
    Glob(Arc<dyn Files>),
    WebSearch(Arc<dyn Search>),
    WebFetch(Arc<dyn Fetch>),
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
        let definitions = [
            local::read_definition(&roots),
            local::grep_definition(&roots),
            local::glob_definition(&roots),
            web::search_definition(),
            web::fetch_definition(),
        ];
        Self { files, definitions: definitions.into_iter().map(definition).collect() }
    }

    /// Whether a session can be given the tool of this name: whether it exists, and there is something for it to read.
    /// It is the one rule; what is granted to a session follows it.
    pub fn offers(&self, name: &str, web: &Web) -> bool {
        self.tool(name, web).is_some()
    }

    /// A tool, with its definition. That of a local tool has the names of the roots in it: a session has no other way
    /// to learn them.
    pub(crate) fn tool(&self, name: &str, web: &Web) -> Option<(Arc<ToolDefinition>, ReadOnly)> {
        let files = self.files.clone();
        let tool = match name {
            "Read" => files.map(ReadOnly::Read),
            "Grep" => files.map(ReadOnly::Grep),
            "Glob" => files.map(ReadOnly::Glob),
            "WebSearch" => web.search.clone().map(ReadOnly::WebSearch),
            "WebFetch" => web.fetch.clone().map(ReadOnly::WebFetch),
            _ => None,
        }?;
        let definition = self.definitions.iter().find(|definition| definition.name == name)?;
        Some((definition.clone(), tool))
    }
}

fn definition((name, description, properties, required): Definition) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition {
        name: name.to_owned(),
        title: None,
        description,
        input_schema: json!({
            "type": "object", "properties": properties, "required": [required], "additionalProperties": false,
        }),
        output_schema: None,
        read_only: true,
    })
}

impl ReadOnly {
    /// Carries a call out. Its answer has at most `room` bytes, where it can be given in parts. Local files are read
    /// on another thread, which stops soon after `cancel` is cancelled.
    pub(crate) async fn call(&self, input: Value, room: usize, cancel: CancellationToken) -> Result<String, ToolError> {
        let room = room.saturating_sub(LAST_LINE_BYTES);
        let (work, files): (Local, _) = match self {
            Self::Read(files) => (local::read, files.clone()),
            Self::Grep(files) => (local::grep, files.clone()),
            Self::Glob(files) => (local::glob, files.clone()),
            Self::WebSearch(search) => return web::search(&**search, input).await,
            Self::WebFetch(fetch) => return web::fetch(&**fetch, input, room).await,
        };
        let done = tokio::task::spawn_blocking(move || work(&*files, input, room, &cancel)).await;
        done.unwrap_or_else(|_| Err(ToolError::Unavailable("reading the files broke off".to_owned())))
    }
}
