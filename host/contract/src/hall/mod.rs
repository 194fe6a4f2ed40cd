//! Defines the domain of the hall: projects, commissions, meetings, documents, and the operations on them.
//!
//! The fields are those of the original's API, in its order. A field that the original does not have says so in its
//! comment.

mod commission;
mod document;
mod event;
mod heartbeat;
mod ids;
mod issue;
mod meeting;
mod project;
mod worker;

pub use commission::*;
pub use document::*;
pub use event::HallEvent;
pub use heartbeat::*;
pub use ids::{CommissionId, MeetingId};
pub use issue::*;
pub use meeting::*;
pub use project::*;
pub use worker::*;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IntoDeserializer, value},
};

/// The answer of an operation without other results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Always `ok`.
    pub status: Ok,
}

/// The word `ok`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ok {
    /// The operation is done.
    #[default]
    Ok,
}

/// A state by its name, or any other text. As in the original, no object matches an unknown state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Named<T> {
    /// A known state.
    Known(T),
    /// Any other text.
    Unknown(String),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = T::deserialize(IntoDeserializer::<value::Error>::into_deserializer(text.as_str()));
        Result::Ok(known.map_or_else(|_| Self::Unknown(text.clone()), Self::Known))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }
}

impl<T> From<T> for Named<T> {
    fn from(known: T) -> Self {
        Self::Known(known)
    }
}
