//! Reads named parameters of methods, and arguments of tools.

use guild_contract::rpc::{Attachment, Detail, DispatchParams, ListParams, LogParams, RpcError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::input::json;

/// Named parameters of a request. Unknown parameters are ignored; each known one is checked when it is read.
pub(crate) struct Params(Vec<(String, Value)>);

impl Params {
    /// The arguments of a tool call.
    pub(crate) fn of(arguments: Map<String, Value>) -> Self {
        Self(arguments.into_iter().collect())
    }

    /// Parses the parameters of a request.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, RpcError> {
        let Some(text) = text.filter(|text| *text != "null") else { return Ok(Self(Vec::new())) };
        if !text.starts_with('{') {
            return Err(RpcError::invalid_params("Invalid params: `params` must be an object"));
        }
        let members = json::strict_members(text);
        members.map(Self).map_err(|error| RpcError::invalid_params(format!("Invalid params: in `params`, {error}")))
    }

    /// All parameters as an object.
    pub(crate) fn into_object(self) -> Map<String, Value> {
        self.0.into_iter().collect()
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Result<Option<String>, RpcError> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(name, "a string", &other)),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, RpcError> {
        self.optional_text(name)?
            .ok_or_else(|| RpcError::invalid_params(format!("Invalid params: `{name}` is missing")))
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, RpcError> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(wrong_type(name, "an object", &other)),
        }
    }

    pub(crate) fn job(mut self) -> Result<String, RpcError> {
        self.text("jobId")
    }

    pub(crate) fn log(mut self) -> Result<LogParams, RpcError> {
        let job_id = self.text("jobId")?;
        let after = self.object("after")?.map(|after| serde_json::from_value(Value::Object(after))).transpose();
        let after = after.map_err(|e| RpcError::invalid_params(format!("Invalid params: in `after`, {e}")))?;
        Ok(LogParams { job_id, after })
    }

    /// All parameters as a type whose fields are optional.
    pub(crate) fn typed<T: DeserializeOwned>(self) -> Result<T, RpcError> {
        let params = self.into_object().into_iter().filter(|(_, value)| !value.is_null()).collect();
        serde_json::from_value(Value::Object(params))
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: {e}")))
    }

    fn attachments(&mut self) -> Result<Vec<Attachment>, RpcError> {
        let Some(attachments) = self.take("attachments").filter(|value| !value.is_null()) else {
            return Ok(Vec::new());
        };
        serde_json::from_value(attachments)
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: in `attachments`, {e}")))
    }

    pub(crate) fn dispatch(mut self) -> Result<DispatchParams, RpcError> {
        let config = self.object("config")?;
        let attachments = self.attachments()?;
        let (description, task, agent) = (self.text("description")?, self.text("task")?, self.optional_text("agent")?);
        let follows = self.optional_text("follows")?;
        let key = self.optional_text("key")?;
        Ok(DispatchParams { description, task, config, agent, attachments, follows, key })
    }

    pub(crate) fn list(mut self) -> Result<ListParams, RpcError> {
        let detail = match self.optional_text("detail")?.as_deref() {
            None => None,
            Some("simple") => Some(Detail::Simple),
            Some("detailed") => Some(Detail::Detailed),
            Some(other) => {
                let message =
                    format!("Invalid params: `detail` must be \"simple\" or \"detailed\", not {:?}", shown(other));
                return Err(RpcError::invalid_params(message));
            }
        };
        Ok(ListParams { detail, filter: self.optional_text("filter")? })
    }
}

pub(crate) fn wrong_type(name: &str, wanted: &str, found: &Value) -> RpcError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    RpcError::invalid_params(format!("Invalid params: `{name}` must be {wanted}, not {found}"))
}

/// A caller's text, shortened so that a message can repeat it.
pub(crate) fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(100)).unwrap_or_default()
}
