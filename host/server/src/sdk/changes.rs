//! Notifies clients that a list has changed: that of the tools, of the prompts, of the resources. They ask again for what
//! they want to know.
//!
//! The roster says that something has changed of what a member offers. A client is notified where that is something that it saw:
//! of the lists that it saw there are digests here, and what it would see now is held against them. While a component is
//! being loaded that is waited for, as it is where a client asks; so a host that starts tells of nothing that its clients
//! have from the beginning.

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

/// Which lists a listening client can be notified of: those that it asked for and the server offers.
pub(super) fn accepted(requested: &SubscriptionFilter, offered: &ServerCapabilities) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    accepted.resource_subscriptions = None;
    accepted.prompts_list_changed = accepted.prompts_list_changed.filter(|_| offered.prompts.is_some());
    accepted.resources_list_changed = accepted.resources_list_changed.filter(|_| offered.resources.is_some());
    accepted
}

/// The digest of tools that could not be listed.
pub(super) const NOTHING: u64 = 0;

/// The digest of something that a client saw.
pub(super) fn digest(seen: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    hasher.finish()
}

/// What a client with an open stream sees: at an endpoint, by its token.
pub(super) struct View {
    host: Arc<Host>,
    path: String,
    subscription: Subscription,
}

impl View {
    pub(super) fn new(host: Arc<Host>, path: String, subscription: Subscription) -> Self {
        Self { host, path, subscription }
    }

    /// Counts the changes of what anybody offers.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.host.changes()
    }

    /// What answers there now, and the client as one who asks now.
    fn server(&self) -> Option<(Server, Caller)> {
        let caller = self.subscription.caller();
        let at = Endpoint::at(&self.path, self.host.single_key())?;
        let server = Server::at(&self.host, &self.host.roster().now(), at).ok()?;
        Some((server, caller))
    }

    /// Of the tools: the digest of what `tools/list` answers.
    async fn tools(&self) -> u64 {
        let Some((server, caller)) = self.server() else { return NOTHING };
        let tools = server.tools(&caller).await;
        tools.map_or(NOTHING, |tools| digest(&to_json(&json!({"tools": tools}))[..]))
    }

    /// Of the prompts: what the one prompt says.
    fn prompts(&self) -> Option<u64> {
        let (server, caller) = self.server()?;
        server.instructions(&caller).as_ref().map(digest)
    }

    /// Of the resources: whose jobs they are of. Those of a job that comes or goes are no change.
    fn resources(&self) -> Option<u64> {
        let (server, caller) = self.server()?;
        let workers = server.workers(&caller);
        Some(digest(&workers.iter().map(|worker| worker.key().as_str()).collect::<Vec<_>>()))
    }
}

/// The lists that have changed since the client was notified last.
#[derive(Clone, Copy, Default)]
struct Changed {
    tools: bool,
    prompts: bool,
    resources: bool,
}

/// Finds out what has changed.
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

    /// What has changed of the prompts and the resources since the last time.
    fn others(&mut self) -> Changed {
        let (prompts, resources) = (self.view.prompts(), self.view.resources());
        let changed =
            Changed { tools: false, prompts: prompts != self.prompts, resources: resources != self.resources };
        (self.prompts, self.resources) = (prompts, resources);
        changed
    }
}

/// Tells a client until it stops listening.
pub(super) async fn notify_listener(listener: SubscriptionContext, view: Arc<View>) {
    let notify = async {
        let mut watch = Watch::new(view);
        let mut tools = watch.view.tools().await;
        while watch.changes.changed().await.is_ok() {
            let now = watch.view.tools().await;
            let changed = Changed { tools: now != tools, ..watch.others() };
            tools = now;
            let sink = listener.sink();
            // What it did not ask for is refused by the sink. Whether the client is still there is known by its request.
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

/// Tells the client of a session, of what it was offered, until that has ended. `seen` has the digest of the tools that it
/// was notified of last, once it was.
pub(super) async fn notify_session(
    peer: Peer<RoleServer>,
    offered: ServerCapabilities,
    view: Arc<View>,
    mut seen: watch::Receiver<Option<u64>>,
    ended: CancellationToken,
) {
    let notify = async {
        let mut watch = Watch::new(view);
        // What it was notified of since it saw the tools.
        let mut announced = None;
        loop {
            tokio::select! {
                changed = watch.changes.changed() => if changed.is_err() { return Ok(()) },
                // The list that it has now may have been made before the last change.
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
