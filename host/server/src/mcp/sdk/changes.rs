//! Clients are told that a list has changed: that of the tools, of the prompts, of the resources. They ask again for what
//! they want to know.

use rmcp::{
    RoleServer, ServiceError,
    model::{ServerCapabilities, SubscriptionFilter},
    service::{Peer, SubscriptionContext},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a client that listens can be told of, of what it asked for: what the server offers.
pub(super) fn accepted(requested: &SubscriptionFilter, offered: &ServerCapabilities) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    accepted.resource_subscriptions = None;
    accepted.prompts_list_changed = accepted.prompts_list_changed.filter(|_| offered.prompts.is_some());
    accepted.resources_list_changed = accepted.resources_list_changed.filter(|_| offered.resources.is_some());
    accepted
}

/// Tells a client until it stops listening.
pub(super) async fn tell_listener(listener: SubscriptionContext, mut changes: watch::Receiver<u64>) {
    let sink = listener.sink();
    while changed(&mut changes, listener.cancelled()).await {
        // What it did not ask for is refused by the sink. Whether the client is still there is known by its request.
        let _ = sink.notify_tool_list_changed().await;
        let _ = sink.notify_prompt_list_changed().await;
        let _ = sink.notify_resource_list_changed().await;
    }
}

/// Tells the client of a session, of what it was offered, until that has ended.
pub(super) async fn tell_session(
    peer: Peer<RoleServer>,
    offered: ServerCapabilities,
    mut changes: watch::Receiver<u64>,
    ended: CancellationToken,
) {
    while changed(&mut changes, ended.cancelled()).await {
        let told = async {
            peer.notify_tool_list_changed().await?;
            if offered.prompts.is_some() {
                peer.notify_prompt_list_changed().await?;
            }
            if offered.resources.is_some() {
                peer.notify_resource_list_changed().await?;
            }
            Ok::<_, ServiceError>(())
        };
        if let Err(error) = told.await {
            tracing::debug!(%error, "a session was not told of a change");
            return;
        }
    }
}

/// Waits for a change; false once it is over.
async fn changed(changes: &mut watch::Receiver<u64>, over: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = over => false,
        changed = changes.changed() => changed.is_ok(),
    }
}
