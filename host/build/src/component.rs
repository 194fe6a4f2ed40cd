//! Turns the output of a language's command into a component.

use guild_contract::manifest::World;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::world;

/// The version field of a core module; that of a component is another one.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Turns a core module that was built against `guild:worker` and WASI preview 1 into a component. A component stays as it
/// is.
pub(crate) fn make(mut bytes: Vec<u8>, world: World) -> Result<Vec<u8>, String> {
    if !bytes.starts_with(CORE_MODULE) {
        return Ok(bytes);
    }
    let (resolve, id) = world::widest(world)?;
    let mut encode = || {
        embed_component_metadata(&mut bytes, &resolve, id, StringEncoding::UTF8)?;
        ComponentEncoder::default()
            .validate(true)
            .module(&bytes)?
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
            .encode()
    };
    encode().map_err(|e| format!("{e:#}"))
}
