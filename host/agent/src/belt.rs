//! The belt of tools that a session is given: nothing else exists for it (REQ-WD-31).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use async_trait::async_trait;
use guild_jobs::{
    files::Files,
    tools::{ToolDefinition, ToolError, Tools},
};
use serde_json::{Value, json};

use crate::{files::cut, readonly::ReadOnly};

/// How many characters of an input or a result the journal keeps.
const JOURNAL_CHARS: usize = 4000;

/// Where a session's tool calls are written down: a job's `transcript.jsonl`.
pub trait Journal: Send + Sync {
    /// Takes one entry, a JSON object of a few KiB at most. It must not wait for long.
    fn entry(&self, value: &Value);
}

/// Where a call to a name goes.
enum Place {
    /// To one of the sets of tools.
    Set(Arc<dyn Tools>),
    /// To the read roots.
    Files(ReadOnly, Arc<dyn Files>),
}

/// The tools of one session: sets of tools that were made elsewhere, and those of Read, Grep and Glob that were both
/// granted and asked for. Every call and its result go to the journal.
pub struct Belt {
    tools: Vec<(ToolDefinition, Place)>,
    journal: Option<Arc<dyn Journal>>,
    calls: AtomicU64,
}

impl Belt {
    /// A belt of whole sets: the job's internal tools, and those that a component answers itself. Where two have a
    /// tool of the same name, the first set's is the one that exists.
    pub fn new(sets: impl IntoIterator<Item = Arc<dyn Tools>>) -> Self {
        let mut belt = Self { tools: Vec::new(), journal: None, calls: AtomicU64::new(0) };
        for set in sets {
            for definition in set.definitions() {
                belt.add(definition, Place::Set(set.clone()));
            }
        }
        belt
    }

    /// Adds those of the read-only tools that the plan asked for out of what was granted. Without read roots there
    /// are none; a name that is granted but not available here (WebSearch, WebFetch) is left out.
    #[must_use]
    pub fn with_read_only(mut self, files: Option<&Arc<dyn Files>>, granted: &[String], asked: &[String]) -> Self {
        let Some(files) = files else { return self };
        let roots = files.roots();
        for name in asked.iter().filter(|name| granted.contains(name)) {
            if let Some(tool) = ReadOnly::named(name) {
                self.add(tool.definition(&roots), Place::Files(tool, files.clone()));
            }
        }
        self
    }

    /// Writes every call and its result down.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    fn add(&mut self, definition: ToolDefinition, place: Place) {
        if !self.tools.iter().any(|(known, _)| known.name == definition.name) {
            self.tools.push((definition, place));
        }
    }

    async fn dispatch(&self, name: &str, input: Value) -> Result<Value, ToolError> {
        let Some((_, place)) = self.tools.iter().find(|(definition, _)| definition.name == name) else {
            let names: Vec<&str> = self.tools.iter().map(|(definition, _)| definition.name.as_str()).collect();
            return Err(ToolError::InvalidInput(format!(
                "there is no tool {name:?}; the tools are {}",
                names.join(", ")
            )));
        };
        match place {
            Place::Set(set) => set.call(name, input).await,
            Place::Files(tool, files) => {
                let (tool, files) = (*tool, files.clone());
                let done = tokio::task::spawn_blocking(move || tool.call(&files, input)).await;
                done.map_err(|_| ToolError::Unavailable(format!("{name} broke off")))?.map(Value::String)
            }
        }
    }
}

#[async_trait]
impl Tools for Belt {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.iter().map(|(definition, _)| definition.clone()).collect()
    }

    async fn call(&self, name: &str, input: Value) -> Result<Value, ToolError> {
        let Some(journal) = &self.journal else { return self.dispatch(name, input).await };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        journal.entry(&json!({"type": "call", "call": call, "tool": name, "input": bounded(&input)}));
        let started = Instant::now();
        let result = self.dispatch(name, input).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        journal.entry(&match &result {
            Ok(output) => json!({"type": "result", "call": call, "ms": ms, "output": bounded(output)}),
            Err(error) => {
                json!({"type": "result", "call": call, "ms": ms, "error": bounded(&json!(error.to_string()))})
            }
        });
        result
    }
}

/// A value as it stands in the journal: whole, or the beginning of its text and how long it was.
fn bounded(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match cut(&text, JOURNAL_CHARS) {
        (_, true) => value.clone(),
        (start, false) => json!({"cut": start, "bytes": text.len()}),
    }
}
