//! Tools as MCP tells of them, and what a call of one is answered with.

use bytes::Bytes;
use guild_contract::{
    JobStatus, MemberKey,
    nearest::choices,
    rpc::{ResultView, RpcError, code},
    text::visible,
};
use guild_roster::{Member, to_json, tools::toolbox::ToolFailure};
use guild_session::tools::ToolDefinition;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};

/// The key of `_meta`, in a report, that says of which job it is.
const JOB: &str = "guild/job";

use super::resources;

/// A tool that an endpoint offers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tool {
    /// By which it is called.
    pub(crate) name: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// For the model.
    pub(crate) description: String,
    /// JSON Schema of its arguments.
    pub(crate) input_schema: Value,
    /// JSON Schema of its structured content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<Value>,
    /// What a client may show, or ask its user about, before it calls.
    pub(crate) annotations: Annotations,
}

/// Hints about a tool. They say what it is for; what it can do, its grants say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Annotations {
    /// Changes nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) read_only_hint: bool,
    /// May take something away that was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive_hint: Option<bool>,
    /// A second call with the same arguments changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent_hint: Option<bool>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Annotations {
    /// Of a tool that changes nothing.
    pub(crate) const READS: Self = Self { read_only_hint: true, destructive_hint: None, idempotent_hint: None };
    /// Of one that adds something.
    pub(crate) const ADDS: Self = Self { read_only_hint: false, destructive_hint: Some(false), idempotent_hint: None };
    /// Of one that ends or replaces something.
    pub(crate) const ENDS: Self =
        Self { read_only_hint: false, destructive_hint: Some(true), idempotent_hint: Some(true) };
}

impl Tool {
    /// The same, without the schema of what it answers: an answer says itself what it is, and a model is shown no more.
    pub(crate) fn brief(definition: &ToolDefinition, name: String) -> Self {
        Self { output_schema: None, ..Self::of(definition, name) }
    }

    /// A component's tool, under a name of the endpoint's.
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

/// What a call of a tool is answered with, where there is such a tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Called {
    /// What a model reads.
    pub(crate) content: Vec<Text>,
    /// What a program reads: an object, and the same as the text. A report has none: many clients show a model nothing else
    /// then, and there it would be a text in a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) structured_content: Option<Box<RawValue>>,
    /// What a program reads besides, and no model.
    #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
    pub(crate) meta: Map<String, Value>,
    /// Whether the text says why it did not work.
    pub(crate) is_error: bool,
}

/// A text among what a call is answered with.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
pub(crate) struct Text {
    /// The text.
    pub(crate) text: String,
}

impl Called {
    /// It did not work, and the text says why: a model can try again with something else.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(why) }
    }

    /// A text, and nothing but a text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Text { text: text.into() }], structured_content: None, meta: Map::new(), is_error: false }
    }

    /// The report of a completed job: its Markdown by itself, and after it where it comes from.
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

    /// The result of a component's tool. A JSON string is returned as its text.
    pub(crate) fn of(value: Value) -> Self {
        let is_object = value.is_object();
        let text = match value {
            Value::String(text) => text,
            value => value.to_string(),
        };
        Self::json_text(text, is_object)
    }

    /// An object's JSON.
    pub(crate) fn of_json(json: &Bytes) -> Self {
        Self::json_text(String::from_utf8_lossy(json).into_owned(), true)
    }

    fn json_text(text: String, structured: bool) -> Self {
        // It was JSON before it was a text.
        let structured_content = if structured { RawValue::from_string(text.clone()).ok() } else { None };
        Self { structured_content, ..Self::text(text) }
    }
}

/// A method that refused its parameters, or could not be carried out, as a tool tells it.
impl From<RpcError> for Called {
    fn from(error: RpcError) -> Self {
        match error.code {
            code::BUSY => Self::failed(format!("{} (the host is busy; the same call may work later)", error.message)),
            _ => Self::failed(error.message),
        }
    }
}

/// Calls a tool of a member's component, and answers as `tools/call` does: with JSON. What the tool itself refuses is such an
/// answer, too.
///
/// # Errors
/// Where there is no such tool, or its component is not in service.
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
