//! What the tests of this crate share.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses some of it")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use guild_agent::ReadRoots;
use guild_contract::{Bounds, Limits};
use guild_jobs::{
    files::Files,
    session::{Meter, Session},
    tools::{ToolDefinition, ToolError, Tools},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A job's internal tools, kept in memory.
#[derive(Default)]
pub struct Job {
    calls: Mutex<Vec<(String, Value)>>,
}

impl Job {
    /// The inputs that a tool was called with.
    pub fn inputs(&self, tool: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(name, _)| name == tool).map(|(_, input)| input.clone()).collect()
    }

    /// The result that was submitted.
    pub fn report(&self) -> String {
        let submitted = self.inputs("submit_result");
        submitted.last().and_then(|input| input["output"].as_str()).unwrap_or_default().to_owned()
    }
}

#[async_trait]
impl Tools for Job {
    fn definitions(&self) -> Vec<ToolDefinition> {
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
        names.into_iter().map(tool).collect()
    }

    async fn call(&self, name: &str, input: Value) -> Result<Value, ToolError> {
        self.calls.lock().unwrap().push((name.to_owned(), input));
        Ok(json!("ok"))
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
        system_prompt: "You are a researcher.".to_owned(),
        prompt: prompt.to_owned(),
        model: None,
        tools,
        files,
        meter: Meter::for_job(Bounds::default(), &Limits::default()),
        cancel: CancellationToken::new(),
        texts: None,
    }
}
