//! Helps the handlers of requests: runs storage work off the runtime's threads, and writes the JSON of an answer.

use bytes::Bytes;
use guild_contract::rpc::RpcError;
use guild_session::task::TaskError;
use serde::Serialize;

/// Runs work that blocks on storage, on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(TaskError::from(e).into()))
}

/// Writes a value of the wire as JSON. This cannot fail: these types have string keys only.
pub fn to_json(value: &impl Serialize) -> Bytes {
    match serde_json::to_vec(value) {
        Ok(json) => json.into(),
        Err(error) => {
            tracing::error!(%error, "a value of the wire has no JSON");
            Bytes::from_static(b"null")
        }
    }
}
