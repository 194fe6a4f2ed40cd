//! What a client says on a line, as far as it has to be known to be carried.

use std::borrow::Cow;

use guild_client::Head;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

pub(super) const INITIALIZE: &str = "initialize";
const CANCELLED: &str = "notifications/cancelled";
/// The key of the version, in `_meta` of a message that says what it is.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A message of the client's.
pub(super) struct Message {
    pub(super) text: String,
    /// As it is written; none in a notification, or an answer.
    pub(super) id: Option<String>,
    pub(super) method: Option<String>,
    /// What goes with it, where it says what it is.
    pub(super) head: Option<Head>,
    /// The request that it cancels.
    pub(super) cancels: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Option<Map<String, Value>>,
    name: Option<Value>,
    uri: Option<Value>,
    task_id: Option<Value>,
    request_id: Option<Value>,
}

impl Message {
    /// Reads a line; none where it is empty.
    pub(super) fn read(line: &[u8]) -> Result<Option<Self>, String> {
        let text = std::str::from_utf8(line).map_err(|e| format!("Parse error: {e}"))?.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if !text.starts_with('{') {
            return Err("Parse error: a message is one JSON object on one line".to_owned());
        }
        let Envelope { id, method, params } = serde_json::from_str(text).map_err(|e| format!("Parse error: {e}"))?;
        let params: Params = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let string = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
        let version = params.meta.and_then(|mut meta| string(meta.remove(META_VERSION)));
        let name = match method.as_deref() {
            Some("tools/call" | "prompts/get") => string(params.name),
            Some("resources/read") => string(params.uri),
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => string(params.task_id),
            _ => None,
        };
        let head = version.zip(method.as_deref());
        let head = head.map(|(version, method)| Head::of_message(&version, method, name.as_deref()));
        let is_cancel = method.as_deref() == Some(CANCELLED);
        Ok(Some(Self {
            text: text.to_owned(),
            id: method.as_ref().and(id).map(|id| id.get().to_owned()),
            method: method.map(Cow::into_owned),
            head,
            cancels: params.request_id.filter(|_| is_cancel).map(|id| id.to_string()),
        }))
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// Whether what follows has to wait until the host has it: it opens a session, or nothing tells when it is through.
    pub(super) fn comes_first(&self) -> bool {
        self.id.is_none() || self.is(INITIALIZE)
    }
}

pub(super) fn error(id: &str, code: i32, message: &str) -> String {
    let message = json!(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// A message on one line; none where it is empty.
pub(super) fn one_line(text: String) -> Option<String> {
    if !text.contains(['\n', '\r']) {
        return (!text.is_empty()).then_some(text);
    }
    // What is no JSON is refused with its first line.
    serde_json::from_str::<Value>(&text).map(|value| value.to_string()).ok().or(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Message {
        Message::read(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_message_that_says_what_it_is_says_so_in_headers_too() {
        let line = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"zähle","_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}}"#;
        let message = read(line);
        assert_eq!(message.id.as_deref(), Some("\"a\""));
        assert!(message.head.is_some());
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#).head.is_none());
    }

    #[test]
    fn an_answer_has_no_id_that_would_have_to_be_answered() {
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).id, None);
        let cancel = read(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancel.cancels.as_deref(), Some("7"));
        assert!(Message::read(b" \n").unwrap().is_none());
        for bad in ["[]", "nothing", "{", "\u{feff}{}"] {
            assert!(Message::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
