//! A request of the API, and what its fields say. Where clients of the original spell a field in two ways, both are accepted.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{body::Body, http::StatusCode};
use guild_hall::{Hall, HallError, artifact::ArtifactFile, commission::Overrides, view::Page};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What a route answers.
pub(crate) type Answer = Result<Reply, HallError>;

/// What a request is answered with, where nothing is wrong.
pub(crate) enum Reply {
    /// JSON and its status.
    Json(StatusCode, Value),
    /// Server-sent events of a meeting, as they happen.
    Events(String, Body),
    /// Why there is none, as the one event of such a stream.
    NoEvents(HallError),
    /// A file of a project, as it is.
    File(Box<ArtifactFile>),
}

/// What a route is asked.
pub(super) struct Request {
    pub(super) hall: Arc<Hall>,
    pub(super) fields: Fields,
    /// Since when the host answers.
    pub(super) since: Instant,
}

/// That it is done.
pub(super) fn done() -> Answer {
    ok(json!({"status": "ok"}))
}

pub(super) fn ok(value: impl Serialize) -> Answer {
    Ok(Reply::Json(StatusCode::OK, json!(value)))
}

/// The beginning of a list; `more` counts the others where there are any.
pub(super) fn page<T: Serialize>(name: &str, Page { items, more }: Page<T>) -> Answer {
    ok(match more {
        0 => json!({name: items}),
        more => json!({name: items, "more": more}),
    })
}

/// Where a list begins: `offset`, a number from 0.
pub(super) fn offset(fields: &Fields) -> Result<usize, HallError> {
    let offset = fields.maybe(&["offset"]).map_or(Ok(0), |offset| offset.parse());
    offset.map_err(|_| HallError::Invalid("offset must be a number from 0".to_owned()))
}

/// What a request says: the fields of its body, and of its query.
pub(super) struct Fields {
    fields: Map<String, Value>,
    is_query: bool,
}

impl Fields {
    /// The fields of a body, before those of the query. An empty body has none.
    ///
    /// # Errors
    /// Where the body is no JSON object.
    pub(super) fn of_body(body: &[u8], query: &str) -> Result<Self, HallError> {
        let Self { mut fields, .. } = Self::of_query(query);
        if !body.is_empty() {
            let Ok(Value::Object(own)) = serde_json::from_slice(body) else {
                return Err(HallError::Invalid("Invalid JSON body".to_owned()));
            };
            fields.extend(own);
        }
        Ok(Self { fields, is_query: false })
    }

    pub(super) fn of_query(query: &str) -> Self {
        let pairs: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Self { fields: pairs.into_iter().map(|(key, value)| (key, Value::from(value))).collect(), is_query: true }
    }

    /// Sets a field that the path says.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// The first of these fields that is there, also where it is empty.
    pub(super) fn given(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.fields.get(*name)?.as_str())
    }

    /// The first of these fields that is there, and not empty.
    pub(super) fn maybe(&self, names: &[&str]) -> Option<String> {
        self.given(names).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// As [`Self::maybe`].
    ///
    /// # Errors
    /// Where it is missing. The first name is the one that is asked for.
    pub(super) fn text(&self, names: &[&str]) -> Result<String, HallError> {
        let name = names.first().copied().unwrap_or_default();
        let of = if self.is_query { "query parameter" } else { "field" };
        self.maybe(names).ok_or_else(|| HallError::Invalid(format!("Missing required {of}: {name}")))
    }

    /// The name of the project.
    ///
    /// # Errors
    /// Where it is missing.
    pub(super) fn project(&self) -> Result<String, HallError> {
        self.text(&["projectName"])
    }

    /// The id of the commission.
    ///
    /// # Errors
    /// Where it is missing.
    pub(super) fn commission(&self) -> Result<String, HallError> {
        self.text(&["commissionId"])
    }

    /// The id of the meeting.
    ///
    /// # Errors
    /// Where it is missing.
    pub(super) fn meeting(&self) -> Result<String, HallError> {
        self.text(&["meetingId"])
    }

    /// A list of texts.
    ///
    /// # Errors
    /// Where it is something else.
    pub(super) fn list(&self, name: &str) -> Result<Option<Vec<String>>, HallError> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            // The original's command line can send a single one only.
            Some(Value::String(one)) => Ok(Some(vec![one.clone()])),
            Some(list) => serde_json::from_value(list.clone())
                .map(Some)
                .map_err(|_| HallError::Invalid(format!("{name} must be a list of texts"))),
        }
    }

    /// Bounds in place of the worker's own.
    ///
    /// # Errors
    /// Where they are something else.
    pub(super) fn overrides(&self) -> Result<Option<Overrides>, HallError> {
        let Some(found) = self.fields.get("resourceOverrides").filter(|found| !found.is_null()) else {
            return Ok(None);
        };
        serde_json::from_value(found.clone())
            .map(Some)
            .map_err(|e| HallError::Invalid(format!("resourceOverrides: {e}")))
    }
}
