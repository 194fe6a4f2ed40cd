//! Work that blocks on storage.

use guild_contract::rpc::RpcError;

/// Runs what blocks on storage where blocking is allowed.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(RpcError::internal("the host is stopping")))
}
