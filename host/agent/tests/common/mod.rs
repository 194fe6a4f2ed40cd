//! What the tests of this crate share.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses some of it")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use guild_agent::ReadRoots;
use guild_contract::Bounds;
use guild_session::{
    files::Files,
    meter::Meter,
    session::Session,
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::{Entry, Journal, NoJournal},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A job's internal tools, kept in memory.
#[derive(Default)]
pub struct Job {
    calls: Mutex<Vec<ToolCall>>,
}

impl Job {
    /// The calls, in their order.
    pub fn calls(&self) -> Vec<ToolCall> {
        self.calls.lock().unwrap().clone()
    }

    /// The inputs that a tool was called with.
    pub fn inputs(&self, tool: &str) -> Vec<Value> {
        self.calls().into_iter().filter(|call| call.name == tool).map(|call| call.input).collect()
    }

    /// The result that was submitted.
    pub fn report(&self) -> String {
        let submitted = self.inputs("submit_result");
        submitted.last().and_then(|input| input["output"].as_str()).unwrap_or_default().to_owned()
    }
}

#[async_trait]
impl Tools for Job {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let names =
            ["update_summary", "record_decision", "log_question", "store_memory", "submit_result", "write_artifact"];
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            read_only: false,
        };
        names.into_iter().map(|name| Arc::new(tool(name))).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        self.calls.lock().unwrap().push(call);
        Ok(json!("ok"))
    }

    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}

/// A job's transcript and log, kept in memory.
#[derive(Default)]
pub struct Kept {
    entries: Mutex<Vec<Entry>>,
    log: Mutex<Vec<String>>,
}

impl Kept {
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl Journal for Kept {
    fn write(&self, entry: &Entry) {
        self.entries.lock().unwrap().push(entry.clone());
    }

    fn log(&self, line: &str) {
        self.log.lock().unwrap().push(line.to_owned());
    }
}

pub fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub fn roots(directory: &Path) -> Arc<dyn Files> {
    Arc::new(ReadRoots::open([directory]).unwrap())
}

pub fn session(prompt: &str, tools: Arc<dyn Tools>, files: Option<Arc<dyn Files>>) -> Session {
    Session {
        number: 1,
        system_prompt: "You are a researcher.".to_owned(),
        prompt: prompt.to_owned(),
        converses: false,
        conversation_chars: 400_000,
        model: None,
        tools,
        files,
        meter: Meter::new(Bounds::default()),
        cancel: CancellationToken::new(),
        texts: None,
        journal: Arc::new(NoJournal),
        history: Vec::new(),
    }
}
