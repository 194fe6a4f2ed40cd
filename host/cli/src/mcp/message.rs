//! Parses the parts of MCP messages that the relay needs.

use std::{borrow::Cow, collections::BTreeMap};

use guild_client::Head;
use guild_contract::{json::repair_surrogates, rpc::code};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

pub(super) const INITIALIZE: &str = "initialize";
const CANCELLED: &str = "notifications/cancelled";
/// The key of the protocol version in `_meta` of a self-describing message.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A message of the client.
pub(super) struct Message {
    pub(super) text: String,
    /// The id's JSON; `None` for a notification or an answer.
    pub(super) id: Option<String>,
    pub(super) method: Option<String>,
    /// The headers of a self-describing message.
    pub(super) head: Option<Head>,
    /// The id of the request that it cancels.
    pub(super) cancels: Option<String>,
}

/// The error for a line that is not a message.
#[derive(Debug)]
pub(super) struct Refused {
    /// The id's JSON; `null` if it cannot be read.
    id: String,
    code: i32,
    why: String,
}

impl Refused {
    fn new(id: Option<&RawValue>, code: i32, why: String) -> Self {
        // An invalid id, such as an object, is not repeated.
        let id = id.filter(|id| is_id(id)).map_or("null", RawValue::get);
        Self { id: id.to_owned(), code, why }
    }

    /// The response with the error.
    pub(super) fn answer(&self) -> String {
        error(&self.id, self.code, &self.why)
    }
}

fn is_id(id: &RawValue) -> bool {
    id.get().starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

/// The parts of a host's message that the relay needs.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) error: Option<HostError>,
}

/// The error of a host's answer.
#[derive(Deserialize)]
pub(super) struct HostError {
    pub(super) code: i32,
    pub(super) message: String,
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
    /// Parses a line; `None` if it is empty. The error for an invalid message has its id if that can be read, as
    /// JSON-RPC requires.
    pub(super) fn read(mut line: Vec<u8>) -> Result<Option<Self>, Refused> {
        let parse = |why: String| Refused::new(None, code::PARSE_ERROR, format!("Parse error: {why}"));
        repair_surrogates(&mut line);
        let text = std::str::from_utf8(&line).map_err(|e| parse(e.to_string()))?.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let whole: &RawValue = serde_json::from_str(text).map_err(|e| parse(e.to_string()))?;
        let invalid = |id, why: &str| Refused::new(id, code::INVALID_REQUEST, format!("Invalid request: {why}"));
        let Ok(fields) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(whole.get()) else {
            return Err(invalid(None, "a message is one JSON object on one line; this protocol has no batches"));
        };
        let field = |name: &str| fields.get(name).copied();
        let id = field("id");
        if id.is_some_and(|id| id.get() == "null") {
            return Err(invalid(None, "`id` is null; a notification leaves it out"));
        }
        if id.is_some_and(|id| !is_id(id)) {
            return Err(invalid(None, "`id` must be a string or a number"));
        }
        let method = match field("method").map(|method| serde_json::from_str::<Cow<'_, str>>(method.get())) {
            Some(Ok(method)) => Some(method),
            Some(Err(_)) => return Err(invalid(id, "`method` is not a string")),
            None if field("result").is_some() || field("error").is_some() => None,
            None => return Err(invalid(id, "`method` is missing")),
        };
        let params = field("params");
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

    /// Whether later messages must wait for its delivery: it opens a session, or it has no answer that would order it
    /// before them.
    pub(super) fn comes_first(&self) -> bool {
        self.id.is_none() || self.is(INITIALIZE)
    }
}

pub(super) fn error(id: &str, code: i32, message: &str) -> String {
    let message = json!(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// A message on one line; `None` if it is empty.
pub(super) fn one_line(text: String) -> Option<String> {
    if !text.contains(['\n', '\r']) {
        return (!text.is_empty()).then_some(text);
    }
    // The caller rejects invalid JSON.
    serde_json::from_str::<Value>(&text).map(|value| value.to_string()).ok().or(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Message {
        Message::read(line.into()).unwrap().unwrap()
    }

    #[test]
    fn a_self_describing_message_has_headers() {
        let line = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"zähle","_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}}"#;
        let message = read(line);
        assert_eq!(message.id.as_deref(), Some("\"a\""));
        assert!(message.head.is_some());
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#).head.is_none());
    }

    #[test]
    fn an_answer_has_no_request_id() {
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).id, None);
        let cancel = read(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancel.cancels.as_deref(), Some("7"));
        assert!(Message::read(b" \n".to_vec()).unwrap().is_none());
        let refused = |line: &str| {
            let answer: Value = serde_json::from_str(&Message::read(line.into()).err().unwrap().answer()).unwrap();
            (answer["id"].clone(), answer["error"]["code"].clone())
        };
        for bad in ["nothing", "{", "\u{feff}{}"] {
            assert_eq!(refused(bad), (Value::Null, json!(code::PARSE_ERROR)), "{bad}");
        }
        for (bad, id) in [
            ("[]", Value::Null),
            ("7", Value::Null),
            (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
            (r#"{"jsonrpc":"2.0","id":"a","method":5}"#, json!("a")),
            (r#"{"jsonrpc":"2.0","id":{},"method":5}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null),
        ] {
            assert_eq!(refused(bad), (id, json!(code::INVALID_REQUEST)), "{bad}");
        }
    }
}
