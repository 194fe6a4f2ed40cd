//! Tools as MCP tells of them, and what a call of one is answered with.

use bytes::Bytes;
use guild_contract::rpc::code;
use guild_jobs::tools::ToolDefinition;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::rpc::RpcError;

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
    pub(crate) read_only_hint: bool,
    /// May take something away that was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive_hint: Option<bool>,
    /// A second call with the same arguments changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotent_hint: Option<bool>,
}

impl Annotations {
    /// Of a tool that changes nothing.
    pub(crate) const READS: Self = Self { read_only_hint: true, destructive_hint: None, idempotent_hint: None };
}

impl Tool {
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
    pub(crate) content: [Text; 1],
    /// What a program reads: an object, and the same as the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) structured_content: Option<Box<RawValue>>,
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
        Self { content: [Text { text: why.into() }], structured_content: None, is_error: true }
    }

    /// The result of a component's tool. A JSON string is told as the text that it is.
    pub(crate) fn of(value: Value) -> Self {
        let is_object = value.is_object();
        let text = match value {
            Value::String(text) => text,
            value => value.to_string(),
        };
        Self::told(text, is_object)
    }

    /// An object's JSON.
    pub(crate) fn of_json(json: &Bytes) -> Self {
        Self::told(String::from_utf8_lossy(json).into_owned(), true)
    }

    fn told(text: String, structured: bool) -> Self {
        // It was JSON before it was a text.
        let structured_content = if structured { RawValue::from_string(text.clone()).ok() } else { None };
        Self { content: [Text { text }], structured_content, is_error: false }
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
