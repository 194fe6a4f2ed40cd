//! The internal tools (REQ-WD-22 to REQ-WD-26): one implementation, which components call with typed values and
//! agent sessions with JSON.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{Decision, JobStatus, objects, schema};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
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
        let tool = TOOLS.iter().find(|tool| tool.definition.name == name && !self.withheld.contains(&name.as_str()));
        let tool = tool.ok_or_else(|| ToolError::InvalidInput(format!("there is no tool {name:?}")))?;
        (tool.call)(self, input, &id).map(|()| tool.done)
    }
}

/// What a tool does with its input and the call's id.
type Handler = Box<dyn Fn(&JobTools, Value, &str) -> Result<(), ToolError> + Send + Sync>;

/// An internal tool: everything that there is to say of it.
struct JobTool {
    definition: Arc<ToolDefinition>,
    call: Handler,
    /// What a session is answered where it worked.
    done: &'static str,
}

impl JobTool {
    /// A tool with this input, whose doc comments are the descriptions of the tool and its fields.
    fn new<T: DeserializeOwned + JsonSchema>(
        (name, title): (&'static str, &str),
        done: &'static str,
        call: impl Fn(&JobTools, T, Option<&str>) -> Result<(), ToolError> + Send + Sync + 'static,
    ) -> Self {
        let mut input_schema = schema::of::<T>();
        let mut take = |field| input_schema.as_object_mut().and_then(|schema| schema.remove(field));
        let (description, _, _) = (take("description"), take("$schema"), take("title"));
        let definition = ToolDefinition {
            name: name.to_owned(),
            title: Some(title.to_owned()),
            description: description.as_ref().and_then(Value::as_str).unwrap_or_default().replace('\n', " "),
            input_schema,
            output_schema: None,
            read_only: false,
        };
        let call = move |tools: &JobTools, input, id: &str| {
            let input = objects::from_value(input).map_err(|e| ToolError::InvalidInput(format!("{name}: {e}")))?;
            call(tools, input, Some(id))
        };
        Self { definition: Arc::new(definition), call: Box::new(call), done }
    }
}

/// Replace the progress summary that people see while you work. Call it when you have a plan, and whenever something
/// noteworthy is done.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpdateSummary {
    /// Where the work stands, in a few sentences. It replaces the previous summary.
    summary: String,
}

/// Record a judgment call that you made on your own, so that a person can review it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecordDecision {
    /// What was open.
    question: String,
    /// What you decided.
    decision: String,
    /// Why you decided so.
    reasoning: String,
}

/// Log a question that only a person can answer. You will get no answer; go on with what you have.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogQuestion {
    /// The question, on one line.
    question: String,
}

/// Remember something that will help later jobs. An existing key is overwritten.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StoreMemory {
    /// 1 to 64 letters, digits, '-' or '_'.
    key: String,
    /// What to remember: facts and where they come from, not instructions.
    content: String,
}

/// Hand over the result of your work. Call it when the work is done; submitting again replaces what you submitted before.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubmitResult {
    /// The whole result, as Markdown.
    output: String,
}

/// Write a file that belongs to the result, a table for instance. An existing file is replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArtifact {
    /// A relative path without `..`, for instance `tables/crates.csv`.
    path: String,
    /// The file's whole text.
    contents: String,
}

static TOOLS: LazyLock<[JobTool; 6]> = LazyLock::new(|| {
    [
        JobTool::new(("update_summary", "Update summary"), "The summary is updated.", |tools, input, _| {
            let UpdateSummary { summary } = input;
            tools.update_summary(&summary)
        }),
        JobTool::new(("record_decision", "Record decision"), "The decision is recorded.", |tools, input, call| {
            let RecordDecision { question, decision, reasoning } = input;
            tools.record_decision(Decision { question, decision, reasoning }, call)
        }),
        JobTool::new(("log_question", "Log question"), "The question is logged.", |tools, input, _| {
            let LogQuestion { question } = input;
            tools.log_question(&question)
        }),
        JobTool::new(("store_memory", "Store memory"), "The memory is stored.", |tools, input, call| {
            let StoreMemory { key, content } = input;
            tools.store_memory(&key, &content, call)
        }),
        JobTool::new(
            ("submit_result", "Submit result"),
            "The result is submitted. Submitting again replaces it.",
            |tools, input, call| {
                let SubmitResult { output } = input;
                tools.submit_result(&output, call)
            },
        ),
        JobTool::new(("write_artifact", "Write artifact"), "The artifact is written.", |tools, input, _| {
            let WriteArtifact { path, contents } = input;
            tools.write_artifact(&path, contents.as_bytes())
        }),
    ]
});

#[async_trait]
impl Tools for JobTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let offered = TOOLS.iter().map(|tool| &tool.definition);
        offered.filter(|tool| !self.withheld.contains(&tool.name.as_str())).cloned().collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let tools = self.clone();
        let done = spawn_blocking(move || tools.call_blocking(call)).await;
        let text = done.map_err(|e| ToolError::Unavailable(format!("the tool did not finish: {e}")))??;
        Ok(Value::String(text.to_owned()))
    }
}
