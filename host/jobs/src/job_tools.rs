//! Implements the internal tools (REQ-WD-22 to REQ-WD-26), which components call with typed values and agent sessions
//! with JSON.
//!
//! [`TABLE`] defines each tool for sessions: its name, input, answer, grant, the activities that replace it, and its
//! action. A model reads the doc comments of the input types.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{
    Decision, Grants,
    capability::{ARTIFACTS, Kind},
    manifest::Scope,
};
use guild_session::{
    task::blocking,
    tools::{ToolCall, ToolDefinition, ToolError, Tools, parse},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    memory::{ScopedMemory, Source},
    running::RunningJob,
};

/// A worker's report on its job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobReport {
    /// See [`RunningJob::update_summary`].
    Summary(String),
    /// See [`RunningJob::record_decision`].
    Decision(Decision),
    /// See [`RunningJob::log_question`].
    Question(String),
    /// See [`RunningJob::write_artifact`].
    Artifact {
        /// The path below `artifacts/`.
        path: String,
        /// The whole file.
        contents: Vec<u8>,
    },
    /// See [`RunningJob::submit_result`].
    Result(String),
}

/// Receives a worker's reports on its job. By default each report goes to the job's own record. An attempt at a
/// commission, for instance, reports to its hall too, for its component and its sessions.
#[async_trait]
pub trait Reporting: Send + Sync {
    /// The capability that a [`JobReport::Artifact`] needs.
    fn artifacts_need(&self) -> &'static Kind {
        &ARTIFACTS
    }

    /// Records a report, even if the caller stops waiting. `call` identifies the tool call of a session.
    ///
    /// # Errors
    ///
    /// Returns the error for the worker, which may report again.
    async fn report(self: Arc<Self>, report: JobReport, call: Option<String>) -> Result<(), ToolError>;
}

#[async_trait]
impl Reporting for RunningJob {
    async fn report(self: Arc<Self>, report: JobReport, call: Option<String>) -> Result<(), ToolError> {
        // A summary changes often, and the next one replaces it.
        let must_settle = !matches!(report, JobReport::Summary(_));
        let job = self.clone();
        blocking(move || match report {
            JobReport::Summary(summary) => job.update_summary(&summary),
            JobReport::Decision(decision) => job.record_decision(decision, call.as_deref()),
            JobReport::Question(question) => job.log_question(&question),
            JobReport::Artifact { path, contents } => job.write_artifact(&path, &contents),
            JobReport::Result(output) => job.submit_result(&output, call.as_deref()),
        })
        .await?;
        if must_settle { Ok(self.settled().await?) } else { Ok(()) }
    }
}

/// A kind of work with other tools in place of some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    /// An attempt at a commission.
    Commission,
    /// A meeting, which has no result, and whose user is present.
    Meeting,
}

/// The internal tools, on one job. The methods for memories block on the file system; [`Tools::call`] does not.
#[derive(Clone)]
pub struct JobTools {
    job: Arc<RunningJob>,
    reporting: Arc<dyn Reporting>,
    memory: ScopedMemory,
    tools: Vec<&'static Tool>,
}

impl JobTools {
    /// The tools on `job`, which store memories in `memory`.
    pub fn new(job: Arc<RunningJob>, memory: impl Into<ScopedMemory>) -> Self {
        Self { reporting: job.clone(), job, memory: memory.into(), tools: TABLE.iter().collect() }
    }

    /// The names of all internal tools.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|tool| tool.definition.name.as_str())
    }

    /// Sends the worker's reports to `reporting`.
    #[must_use]
    pub fn reporting_to(self, reporting: Arc<dyn Reporting>) -> Self {
        Self { reporting, ..self }
    }

    /// Keeps only the tools that these grants allow, for calls by [`Tools`].
    #[must_use]
    pub fn granted(mut self, grants: &Grants) -> Self {
        self.tools.retain(|tool| (tool.granted)(grants));
        self
    }

    /// Removes the tools that an activity replaces by others.
    #[must_use]
    pub fn within(mut self, activity: ActivityKind) -> Self {
        self.tools.retain(|tool| !tool.replaced_in.contains(&activity));
        self
    }

    /// The job that they work on.
    pub fn job(&self) -> &Arc<RunningJob> {
        &self.job
    }

    /// The receiver of its worker's reports, by default the job itself.
    pub fn reporting(&self) -> &Arc<dyn Reporting> {
        &self.reporting
    }

    /// The memories that the job was granted.
    pub fn memory(&self) -> &ScopedMemory {
        &self.memory
    }

    /// See [`MemoryStore::store`](crate::MemoryStore::store). A job that has ended stores nothing. Memories that have
    /// grown too large are condensed in the background.
    pub fn store_memory(&self, scope: Scope, key: &str, content: &str, call: Option<&str>) -> Result<(), ToolError> {
        let notes = self.memory.scope(scope)?.kept();
        self.job.while_running(|| notes.store(key, content, Some(self.source(call))))?;
        self.memory.condense();
        Ok(())
    }

    /// See [`MemoryStore::append`](crate::MemoryStore::append). A job that has ended adds nothing.
    pub fn append_memory(&self, scope: Scope, key: &str, content: &str, call: Option<&str>) -> Result<(), ToolError> {
        let notes = self.memory.scope(scope)?;
        self.job.while_running(|| notes.append(key, content, self.source(call)))?;
        self.memory.condense();
        Ok(())
    }

    fn source<'a>(&'a self, call: Option<&'a str>) -> Source<'a> {
        Source { job: self.job.id(), call, writer: self.memory.writer() }
    }

    /// See [`MemoryStore::delete`](crate::MemoryStore::delete). A job that has ended deletes nothing.
    pub fn delete_memory(&self, scope: Scope, key: &str) -> Result<bool, ToolError> {
        let notes = self.memory.scope(scope)?;
        self.job.while_running(|| notes.delete(key))
    }
}

/// Parses the input of a call, and returns the action of the call.
type Handler = Box<dyn Fn(ToolCall) -> Result<Action, ToolError> + Send + Sync>;

/// The action of a call.
enum Action {
    /// The worker reports on its job.
    Report(JobReport),
    /// The worker stores a memory of its own.
    Remember { key: String, content: String },
}

/// An internal tool, as sessions have it.
struct Tool {
    definition: Arc<ToolDefinition>,
    /// The answer to a successful call.
    answer: &'static str,
    /// Whether these grants allow it.
    granted: fn(&Grants) -> bool,
    /// The activities in which sessions have another tool in its place.
    replaced_in: &'static [ActivityKind],
    action: Handler,
}

impl Tool {
    /// A tool whose input is a `T`. It needs no grant, and every session has it, unless [`Self::needing`] and
    /// [`Self::replaced_in`] say otherwise.
    fn new<T: JsonSchema + DeserializeOwned + 'static>(
        name: &'static str,
        title: &str,
        answer: &'static str,
        action: fn(T) -> Action,
    ) -> Self {
        Self {
            definition: Arc::new(ToolDefinition::of::<T>(name, Some(title), false)),
            answer,
            granted: |_| true,
            replaced_in: &[],
            action: Box::new(move |ToolCall { input, .. }| Ok(action(parse(name, input)?))),
        }
    }

    fn needing(self, granted: fn(&Grants) -> bool) -> Self {
        Self { granted, ..self }
    }

    fn replaced_in(self, replaced_in: &'static [ActivityKind]) -> Self {
        Self { replaced_in, ..self }
    }
}

static TABLE: LazyLock<[Tool; 6]> = LazyLock::new(|| {
    [
        Tool::new("update_summary", "Update summary", "The summary is updated.", |input: UpdateSummary| {
            Action::Report(JobReport::Summary(input.summary))
        })
        .replaced_in(&[ActivityKind::Meeting]),
        Tool::new("record_decision", "Record decision", "The decision is recorded.", |input| {
            let RecordDecision { question, decision, reasoning } = input;
            Action::Report(JobReport::Decision(Decision { question, decision, reasoning }))
        }),
        Tool::new("log_question", "Log question", "The question is logged.", |input: LogQuestion| {
            Action::Report(JobReport::Question(input.question))
        })
        .replaced_in(&[ActivityKind::Meeting]),
        Tool::new("store_memory", "Store memory", "The memory is stored.", |input: StoreMemory| Action::Remember {
            key: input.key,
            content: input.content,
        })
        .needing(|grants| grants.sessions.memory),
        Tool::new(
            "submit_result",
            "Submit result",
            "The result is submitted. Submitting again replaces it.",
            |input: SubmitResult| Action::Report(JobReport::Result(input.output)),
        )
        .replaced_in(&[ActivityKind::Commission, ActivityKind::Meeting]),
        Tool::new("write_artifact", "Write artifact", "The artifact is written.", |input: WriteArtifact| {
            Action::Report(JobReport::Artifact { path: input.path, contents: input.contents.into_bytes() })
        })
        .needing(|grants| grants.artifacts)
        .replaced_in(&[ActivityKind::Commission, ActivityKind::Meeting]),
    ]
});

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

#[async_trait]
impl Tools for JobTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.tools.iter().map(|tool| tool.definition.clone()).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let tool = self.tools.iter().find(|tool| tool.definition.name == call.name);
        let tool = tool.ok_or_else(|| ToolError::InvalidInput(format!("there is no tool {:?}", call.name)))?;
        let id = call.id.clone();
        match (tool.action)(call)? {
            Action::Report(report) => self.reporting.clone().report(report, Some(id)).await?,
            Action::Remember { key, content } => {
                let tools = self.clone();
                blocking(move || tools.store_memory(Scope::Worker, &key, &content, Some(&id))).await?;
            }
        }
        Ok(Value::String(tool.answer.to_owned()))
    }

    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}
