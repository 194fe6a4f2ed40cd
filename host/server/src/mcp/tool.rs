//! Defines tools and tool results in the form of MCP.

use bytes::Bytes;
use guild_contract::{
    JobStatus, MemberKey,
    rpc::{ResultView, RpcError, code},
    text::{nearest::choices, visible},
};
use guild_roster::{Member, to_json, tools::toolbox::ToolFailure};
use guild_session::tools::ToolDefinition;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};

/// The key in a report's `_meta` with the job's id.
const JOB: &str = "guild/job";

use super::resources;

/// A tool that an endpoint offers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// The description for the model.
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) input_schema: Value,
    /// The JSON Schema of its structured content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<Value>,
    /// Hints that a client may show, or use to ask its user before a call.
    pub(crate) annotations: Annotations,
}

/// Hints about a tool. They state its purpose; its grants decide what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Annotations {
    /// Whether the tool changes nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) read_only_hint: bool,
    /// Whether the tool may remove existing data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive_hint: Option<bool>,
    /// Whether a second call with the same arguments has no further effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent_hint: Option<bool>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Annotations {
    /// Hints for a tool that changes nothing.
    pub(crate) const READS: Self = Self { read_only_hint: true, destructive_hint: None, idempotent_hint: None };
    /// Hints for a tool that adds data.
    pub(crate) const ADDS: Self = Self { read_only_hint: false, destructive_hint: Some(false), idempotent_hint: None };
    /// Hints for a tool that ends or replaces something.
    pub(crate) const ENDS: Self =
        Self { read_only_hint: false, destructive_hint: Some(true), idempotent_hint: Some(true) };
}

impl Tool {
    /// A component's tool without its output schema: results describe themselves, and models are shown nothing else.
    pub(crate) fn brief(definition: &ToolDefinition, name: String) -> Self {
        Self { output_schema: None, ..Self::of(definition, name) }
    }

    /// A component's tool, under its name at the endpoint.
    pub(crate) fn of(definition: &ToolDefinition, name: String) -> Self {
        Self {
            name,
            title: definition.title.clone(),
            description: definition.description.clone(),
            input_schema: definition.input_schema.clone(),
            output_schema: definition.output_schema.clone(),
            annotations: Annotations {
                read_only_hint: definition.read_only,
                destructive_hint: None,
                idempotent_hint: None,
            },
        }
    }
}

/// The result of a tool call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Called {
    /// The contents for a model.
    pub(crate) content: Vec<Text>,
    /// The contents for a program: an object with the same JSON as the text. A report has none: many clients would show
    /// a model only this, and the report would be a text within JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) structured_content: Option<Box<RawValue>>,
    /// Metadata for programs, hidden from models.
    #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
    pub(crate) meta: Map<String, Value>,
    /// Whether the text is an error message.
    pub(crate) is_error: bool,
}

/// A text in the result of a call.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
pub(crate) struct Text {
    pub(crate) text: String,
}

impl Called {
    /// An error, which lets a model try again with other arguments.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(why) }
    }

    /// A result that is only a text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Text { text: text.into() }], structured_content: None, meta: Map::new(), is_error: false }
    }

    /// The report of a completed job: first its Markdown alone, then its origin.
    pub(crate) fn report(worker: &MemberKey, report: ResultView) -> Self {
        let ResultView { job_id, output, artifacts } = report;
        let mut about = format!("This was the report of job {job_id} of {worker}.");
        let artifacts = artifacts.unwrap_or_default();
        if !artifacts.is_empty() {
            let (left, base) = (choices(artifacts.iter().map(visible)), resources::base(worker, &job_id));
            about.push_str(&format!(" The job left {left}: resources whose URIs begin with {base}"));
        }
        let job = json!({"worker": worker, "jobId": job_id, "status": JobStatus::Completed, "artifacts": artifacts});
        let mut called = Self::text(output);
        called.content.push(Text { text: about });
        called.meta.insert(JOB.to_owned(), job);
        called
    }

    /// The result of a component's tool. A JSON string becomes a plain text.
    pub(crate) fn of(value: Value) -> Self {
        let is_object = value.is_object();
        let text = match value {
            Value::String(text) => text,
            value => value.to_string(),
        };
        Self::json_text(text, is_object)
    }

    /// The result with an object's JSON.
    pub(crate) fn of_json(json: &Bytes) -> Self {
        Self::json_text(String::from_utf8_lossy(json).into_owned(), true)
    }

    fn json_text(text: String, structured: bool) -> Self {
        // The text is valid JSON already.
        let structured_content = if structured { RawValue::from_string(text.clone()).ok() } else { None };
        Self { structured_content, ..Self::text(text) }
    }
}

/// A method's error as the result of a tool.
impl From<RpcError> for Called {
    fn from(error: RpcError) -> Self {
        match error.code {
            code::BUSY => {
                Self::failed(format!("{} (the host is busy; the same call may succeed later)", error.message))
            }
            _ => Self::failed(error.message),
        }
    }
}

/// Calls a tool of a member's component, and returns the same JSON as `tools/call`, also for errors that the tool
/// reports.
///
/// # Errors
///
/// Returns an error when there is no such tool, or its component is not in service.
pub async fn call_tool(member: &Member, name: &str, input: Map<String, Value>) -> Result<Bytes, RpcError> {
    let unknown = || RpcError::invalid_params(format!("Unknown tool: {name}"));
    let called = match member.toolbox().ok_or_else(unknown)?.call(name, Value::Object(input)).await {
        Ok(output) => Called::of(output),
        Err(ToolFailure::Failed(why)) => Called::failed(why),
        Err(ToolFailure::Unknown(_)) => return Err(unknown()),
        Err(ToolFailure::Unavailable(error)) => return Err(error),
    };
    Ok(to_json(&called))
}
