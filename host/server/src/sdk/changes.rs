//! Notifies clients that a list of tools, prompts or resources has changed, so that they request it again.
//!
//! The roster signals each change of a member's offers. A client is notified only if the change concerns a list that it
//! has seen: this module keeps digests of those lists, and compares them with the present ones. It waits for components
//! that are still loading, as the list methods do; so a host that starts sends no notifications about members that its
//! clients have seen from the beginning.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use guild_auth::{Caller, Subscription};
use guild_roster::{host::Host, to_json};
use rmcp::{
    RoleServer, ServiceError,
    model::{ServerCapabilities, SubscriptionFilter},
    service::{Peer, SubscriptionContext},
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::mcp::{Endpoint, Server};

/// The lists that a listening client is notified of: those that it requested and the server offers.
pub(super) fn accepted(requested: &SubscriptionFilter, offered: &ServerCapabilities) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    accepted.resource_subscriptions = None;
    accepted.prompts_list_changed = accepted.prompts_list_changed.filter(|_| offered.prompts.is_some());
    accepted.resources_list_changed = accepted.resources_list_changed.filter(|_| offered.resources.is_some());
    accepted
}

/// The digest of tools that could not be listed.
pub(super) const NOTHING: u64 = 0;

/// The digest of a list that a client has seen.
pub(super) fn digest(seen: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    hasher.finish()
}

/// The lists of a client with an open stream, by its endpoint and its token.
pub(super) struct View {
    host: Arc<Host>,
    endpoint: Endpoint,
    subscription: Subscription,
}

impl View {
    pub(super) fn new(host: Arc<Host>, endpoint: Endpoint, subscription: Subscription) -> Self {
        Self { host, endpoint, subscription }
    }

    /// Counts the changes of all members' offers.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.host.changes()
    }

    /// The present server of the endpoint, and the client with its present permissions.
    fn server(&self) -> Option<(Server, Caller)> {
        let caller = self.subscription.caller();
        let server = Server::at(&self.host, &self.host.roster().now(), &self.endpoint).ok()?;
        Some((server, caller))
    }

    /// The digest of the result of `tools/list`.
    async fn tools(&self) -> u64 {
        let Some((server, caller)) = self.server() else { return NOTHING };
        let tools = server.tools(&caller).await;
        tools.map_or(NOTHING, |tools| digest(&to_json(&json!({"tools": tools}))[..]))
    }

    /// The digest of the prompt.
    fn prompts(&self) -> Option<u64> {
        let (server, caller) = self.server()?;
        server.instructions(&caller).as_ref().map(digest)
    }

    /// The digest of the workers that have resources. New and deleted jobs do not change it.
    fn resources(&self) -> Option<u64> {
        let (server, caller) = self.server()?;
        let workers = server.workers(&caller);
        Some(digest(&workers.iter().map(|worker| worker.key().as_str()).collect::<Vec<_>>()))
    }
}

/// The lists that have changed since the last notification.
#[derive(Clone, Copy, Default)]
struct Changed {
    tools: bool,
    prompts: bool,
    resources: bool,
}

/// Detects changes of the lists.
struct Watch {
    view: Arc<View>,
    changes: watch::Receiver<u64>,
    prompts: Option<u64>,
    resources: Option<u64>,
}

impl Watch {
    fn new(view: Arc<View>) -> Self {
        let changes = view.changes();
        Self { changes, prompts: view.prompts(), resources: view.resources(), view }
    }

    /// The changes of the prompts and the resources since the last call.
    fn others(&mut self) -> Changed {
        let (prompts, resources) = (self.view.prompts(), self.view.resources());
        let changed =
            Changed { tools: false, prompts: prompts != self.prompts, resources: resources != self.resources };
        (self.prompts, self.resources) = (prompts, resources);
        changed
    }
}

/// Notifies a listening client until it stops listening.
pub(super) async fn notify_listener(listener: SubscriptionContext, view: Arc<View>) {
    let notify = async {
        let mut watch = Watch::new(view);
        let mut tools = watch.view.tools().await;
        while watch.changes.changed().await.is_ok() {
            let now = watch.view.tools().await;
            let changed = Changed { tools: now != tools, ..watch.others() };
            tools = now;
            let sink = listener.sink();
            // The sink drops notifications that the client did not request. The request itself shows whether the client
            // is still there.
            if changed.tools {
                let _ = sink.notify_tool_list_changed().await;
            }
            if changed.prompts {
                let _ = sink.notify_prompt_list_changed().await;
            }
            if changed.resources {
                let _ = sink.notify_resource_list_changed().await;
            }
        }
    };
    tokio::select! {
        () = listener.cancelled() => {}
        () = notify => {}
    }
}

/// Notifies the client of a session until the session ends. `seen` has the digest of the tools that the client was sent
/// last; the first `tools/list` sets it.
pub(super) async fn notify_session(
    peer: Peer<RoleServer>,
    offered: ServerCapabilities,
    view: Arc<View>,
    mut seen: watch::Receiver<Option<u64>>,
    ended: CancellationToken,
) {
    let notify = async {
        let mut watch = Watch::new(view);
        // The digest in the last notification since the client saw the tools.
        let mut announced = None;
        loop {
            tokio::select! {
                changed = watch.changes.changed() => if changed.is_err() { return Ok(()) },
                // The client's list may be older than the last change.
                changed = seen.changed() => if changed.is_err() { return Ok(()) },
            }
            let mut changed = watch.others();
            let saw = *seen.borrow_and_update();
            if let Some(saw) = saw {
                let now = watch.view.tools().await;
                changed.tools = now != saw && announced != Some(now);
                announced = (now != saw).then_some(now);
            }
            if changed.tools {
                peer.notify_tool_list_changed().await?;
            }
            if changed.prompts && offered.prompts.is_some() {
                peer.notify_prompt_list_changed().await?;
            }
            if changed.resources && offered.resources.is_some() {
                peer.notify_resource_list_changed().await?;
            }
        }
    };
    let notified: Result<(), ServiceError> = tokio::select! {
        () = ended.cancelled() => Ok(()),
        notified = notify => notified,
    };
    if let Err(error) = notified {
        tracing::debug!(%error, "cannot notify a session of a change");
    }
}
