//! JSON of values of the wire.

use bytes::Bytes;
use serde::Serialize;

/// The JSON of a value that always has one: the types of the wire have string keys only.
pub fn to_json(value: &impl Serialize) -> Bytes {
    match serde_json::to_vec(value) {
        Ok(json) => json.into(),
        Err(error) => {
            tracing::error!(%error, "a value of the wire has no JSON");
            Bytes::from_static(b"null")
        }
    }
}
