//! Tracks the state of a member's component: loading, in service, or broken.

use std::{sync::Arc, time::Instant};

use guild_contract::{MemberKey, rpc::RpcError};
use guild_sandbox::Plugin;
use tokio::sync::watch;

use super::catalogue::Catalogue;

/// The state of a member's component.
#[derive(Clone)]
pub enum Component {
    /// It is being read, checked and compiled; the latter since then, where it was not in the cache.
    Loading(Option<Instant>),
    /// It is in service.
    Ready(Arc<Loaded>),
    /// It cannot be in service, for this reason.
    Failed(String),
}

impl Component {
    /// Whether it is known what became of it.
    pub fn has_ended(&self) -> bool {
        !matches!(self, Self::Loading(_))
    }

    /// The component, where it is in service.
    pub fn ready(&self) -> Option<&Arc<Loaded>> {
        if let Self::Ready(loaded) = self { Some(loaded) } else { None }
    }
}

/// A component in service, and what is made of it once.
pub struct Loaded {
    /// The component.
    pub plugin: Arc<Plugin>,
    /// Its tools.
    pub catalogue: Arc<Catalogue>,
}

/// The component of the member of that key, once it is loaded.
///
/// # Errors
///
/// Returns -32000 when the component is still being loaded at `until`, and -32603 with the reason when it cannot be in
/// service.
pub async fn ready(
    component: &watch::Receiver<Component>,
    key: &MemberKey,
    until: Instant,
) -> Result<Arc<Loaded>, RpcError> {
    let mut component = component.clone();
    let loaded = component.wait_for(|component| component.has_ended());
    match tokio::time::timeout_at(until.into(), loaded).await {
        Ok(Ok(component)) => match &*component {
            Component::Ready(loaded) => Ok(loaded.clone()),
            Component::Failed(why) => Err(RpcError::internal(format!("member {key} is in state error: {why}"))),
            Component::Loading(_) => Err(RpcError::busy("the component is being loaded; try again")),
        },
        Ok(Err(_)) => Err(RpcError::internal("the host is stopping")),
        // The compilation continues.
        Err(_) => Err(RpcError::busy("the component is still being compiled; try again")),
    }
}
