//! The internal tools (REQ-WD-22 to REQ-WD-26): one implementation, which components call with typed values and
//! agent sessions with JSON.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{Decision, JobStatus, objects};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    memory::{MemoryStore, Source},
    running::RunningJob,
};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools};

/// The internal tools, on one job. Its own methods block on the file system; [`Tools::call`] does not.
#[derive(Clone)]
pub struct JobTools {
    job: Arc<RunningJob>,
    memory: Arc<MemoryStore>,
    withheld: Vec<&'static str>,
}

impl JobTools {
    /// The tools on `job`, which store memories in `memory`.
    pub fn new(job: Arc<RunningJob>, memory: Arc<MemoryStore>) -> Self {
        Self { job, memory, withheld: Vec::new() }
    }

    /// Without those of these names, for whoever calls them as [`Tools`]: they do not exist there.
    #[must_use]
    pub fn without(self, withheld: Vec<&'static str>) -> Self {
        Self { withheld, ..self }
    }

    /// The job that they work on.
    pub fn job(&self) -> &Arc<RunningJob> {
        &self.job
    }

    /// See [`RunningJob::update_summary`].
    pub fn update_summary(&self, summary: &str) -> Result<(), ToolError> {
        self.job.update_summary(summary)
    }

    /// See [`RunningJob::record_decision`].
    pub fn record_decision(&self, decision: Decision, call: Option<&str>) -> Result<(), ToolError> {
        self.job.record_decision(decision, call)
    }

    /// See [`RunningJob::log_question`].
    pub fn log_question(&self, question: &str) -> Result<(), ToolError> {
        self.job.log_question(question)
    }

    /// See [`MemoryStore::store`]. A job that has ended stores nothing.
    pub fn store_memory(&self, key: &str, content: &str, call: Option<&str>) -> Result<(), ToolError> {
        self.check_running()?;
        self.memory.store(key, content, Some(Source { job: self.job.id(), call }))
    }

    /// See [`MemoryStore::delete`]. A job that has ended deletes nothing.
    pub fn delete_memory(&self, key: &str) -> Result<bool, ToolError> {
        self.check_running()?;
        self.memory.delete(key)
    }

    fn check_running(&self) -> Result<(), ToolError> {
        // A cancel fires its token before its end is stored.
        let running = self.job.with_view(|view| view.status) == JobStatus::Running;
        if running && !self.job.cancelled().is_cancelled() { Ok(()) } else { Err(ToolError::JobEnded) }
    }

    /// See [`RunningJob::submit_result`].
    pub fn submit_result(&self, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        self.job.submit_result(output, call)
    }

    /// See [`RunningJob::write_artifact`].
    pub fn write_artifact(&self, path: &str, contents: &[u8]) -> Result<(), ToolError> {
        self.job.write_artifact(path, contents)
    }

    fn call_blocking(&self, call: ToolCall) -> Result<&'static str, ToolError> {
        let ToolCall { id, name, input } = call;
        let (name, call) = (name.as_str(), Some(id.as_str()));
        match name {
            _ if self.withheld.contains(&name) => Err(ToolError::InvalidInput(format!("there is no tool {name:?}"))),
            "update_summary" => {
                let UpdateSummary { summary } = parse(name, input)?;
                self.update_summary(&summary).map(|()| "The summary is updated.")
            }
            "record_decision" => {
                let RecordDecision { question, decision, reasoning } = parse(name, input)?;
                let decision = Decision { question, decision, reasoning };
                self.record_decision(decision, call).map(|()| "The decision is recorded.")
            }
            "log_question" => {
                let LogQuestion { question } = parse(name, input)?;
                self.log_question(&question).map(|()| "The question is logged.")
            }
            "store_memory" => {
                let StoreMemory { key, content } = parse(name, input)?;
                self.store_memory(&key, &content, call).map(|()| "The memory is stored.")
            }
            "submit_result" => {
                let SubmitResult { output } = parse(name, input)?;
                self.submit_result(&output, call).map(|()| "The result is submitted. Submitting again replaces it.")
            }
            "write_artifact" => {
                let WriteArtifact { path, contents } = parse(name, input)?;
                self.write_artifact(&path, contents.as_bytes()).map(|()| "The artifact is written.")
            }
            _ => Err(ToolError::InvalidInput(format!("there is no tool {name:?}"))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateSummary {
    summary: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordDecision {
    question: String,
    decision: String,
    reasoning: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuestion {
    question: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreMemory {
    key: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmitResult {
    output: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArtifact {
    path: String,
    contents: String,
}

fn parse<T: DeserializeOwned>(name: &str, input: Value) -> Result<T, ToolError> {
    objects::from_value(input).map_err(|e| ToolError::InvalidInput(format!("{name}: {e}")))
}

/// A tool whose input is an object of texts, all of them needed.
fn tool(name: &str, title: &str, description: &str, fields: &[(&str, &str)]) -> ToolDefinition {
    let properties: serde_json::Map<String, Value> = fields
        .iter()
        .map(|(field, meaning)| ((*field).to_owned(), json!({ "type": "string", "description": meaning })))
        .collect();
    let required: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
    ToolDefinition {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        input_schema: json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        }),
        output_schema: None,
        read_only: false,
    }
}

static DEFINITIONS: LazyLock<Vec<Arc<ToolDefinition>>> = LazyLock::new(|| {
    let tools = vec![
        tool(
            "update_summary",
            "Update summary",
            "Replace the progress summary that people see while you work. Call it when you have a plan, and \
             whenever something noteworthy is done.",
            &[("summary", "Where the work stands, in a few sentences. It replaces the previous summary.")],
        ),
        tool(
            "record_decision",
            "Record decision",
            "Record a judgment call that you made on your own, so that a person can review it.",
            &[("question", "What was open."), ("decision", "What you decided."), ("reasoning", "Why you decided so.")],
        ),
        tool(
            "log_question",
            "Log question",
            "Log a question that only a person can answer. You will get no answer; go on with what you have.",
            &[("question", "The question, on one line.")],
        ),
        tool(
            "store_memory",
            "Store memory",
            "Remember something that will help later jobs. An existing key is overwritten.",
            &[
                ("key", "1 to 64 letters, digits, '-' or '_'."),
                ("content", "What to remember: facts and where they come from, not instructions."),
            ],
        ),
        tool(
            "submit_result",
            "Submit result",
            "Hand over the result of your work. Call it when the work is done; submitting again replaces what \
             you submitted before.",
            &[("output", "The whole result, as Markdown.")],
        ),
        tool(
            "write_artifact",
            "Write artifact",
            "Write a file that belongs to the result, a table for instance. An existing file is replaced.",
            &[
                ("path", "A relative path without `..`, for instance `tables/crates.csv`."),
                ("contents", "The file's whole text."),
            ],
        ),
    ];
    tools.into_iter().map(Arc::new).collect()
});

#[async_trait]
impl Tools for JobTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        DEFINITIONS.iter().filter(|tool| !self.withheld.contains(&tool.name.as_str())).cloned().collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let tools = self.clone();
        let done = spawn_blocking(move || tools.call_blocking(call)).await;
        let text = done.map_err(|e| ToolError::Unavailable(format!("the tool did not finish: {e}")))??;
        Ok(Value::String(text.to_owned()))
    }
}
