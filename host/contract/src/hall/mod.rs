//! Defines the domain of the hall: projects, commissions, meetings, documents, and the operations on them.
//!
//! The fields are those of the original's API, in its order. The comments tell which fields the original does not have.

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

/// The answer of an operation that has nothing else to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Always `ok`.
    pub status: Ok,
}

/// The word `ok`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ok {
    /// It is done.
    #[default]
    Ok,
}

/// A state by its name, or another text. The original compares texts, so no object is in such a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Named<T> {
    /// The state.
    Known(T),
    /// Another text.
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
