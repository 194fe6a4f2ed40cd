//! Converts types of this project to those of the SDK.

use guild_auth::Refused;
use guild_contract::rpc::RpcError;
use rmcp::model::{
    CacheScope, CallToolResult, ContentBlock, DiscoverResult, ErrorCode, ErrorData, Implementation, JsonObject,
    MetaObject,
};

use crate::mcp::{Failure, Identity, tool::Called};

/// The time for which a client may cache a list that follows the roster, if it receives no notifications.
pub(super) const LIST_TTL_MS: u64 = 10_000;
/// The key in a result's `_meta` that identifies the server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

pub(super) fn error(error: RpcError) -> ErrorData {
    ErrorData { code: ErrorCode(error.code), message: error.message.into(), data: error.data }
}

pub(super) fn refused(refused: Refused) -> ErrorData {
    error(refused.into())
}

pub(super) fn failure(failure: Failure) -> ErrorData {
    match failure {
        Failure::Refused(why) => refused(why),
        Failure::Rpc(why) => error(why),
    }
}

pub(super) fn identity(identity: Identity<'_>) -> Implementation {
    let implementation = Implementation::new(identity.name, identity.version);
    match identity.title {
        Some(title) => implementation.with_title(title),
        None => implementation,
    }
}

/// The `_meta` of every result of 2026-07-28, which identifies the server.
pub(super) fn meta(identity: Implementation) -> MetaObject {
    let mut meta = JsonObject::new();
    meta.insert(SERVER_INFO.to_owned(), serde_json::to_value(identity).unwrap_or_default());
    MetaObject(meta)
}

pub(super) fn called(called: Called) -> CallToolResult {
    let content = called.content.into_iter().map(|text| ContentBlock::text(text.text)).collect();
    let mut result = if called.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    // The text is valid JSON already.
    result.structured_content = called.structured_content.and_then(|json| serde_json::from_str(json.get()).ok());
    result.meta = (!called.meta.is_empty()).then_some(MetaObject(called.meta));
    result
}

/// Sets a lifetime for a server's description, which changes with the roster like the lists.
pub(super) fn for_a_while(result: DiscoverResult) -> DiscoverResult {
    result.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private)
}
