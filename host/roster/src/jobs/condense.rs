//! Condenses memories that have become too long, with the member's runtime.

use std::{sync::Arc, time::Instant};

use guild_auth::Ingress;
use guild_config::Runtime;
use guild_contract::MemberKey;
use guild_jobs::{Condense, Condensed, Condenser};
use guild_session::meter::{Account, Meter};
use tokio::time::timeout_at;

use crate::resources::{
    Resources,
    runtimes::{GRACE, may_spend},
};

/// A condenser of the memories that workers share, on the host's own runtime. It waits for permits as if it were a
/// member of this name.
pub(crate) fn condenser_of_host(
    resources: &Arc<Resources>,
    ingress: &Arc<Ingress>,
    agent: Runtime,
) -> Option<Condenser> {
    "guild-hall".parse().ok().map(|key| condenser(resources, ingress, agent, &key))
}

/// A condenser of the memories of the member `key` on the runtime `agent`, which waits for a permit.
pub(crate) fn condenser(
    resources: &Arc<Resources>,
    ingress: &Arc<Ingress>,
    agent: Runtime,
    key: &MemberKey,
) -> Condenser {
    let (resources, ingress, key) = (resources.clone(), ingress.clone(), key.clone());
    let condense: Condense = Arc::new(move |notes, max_chars, bounds| {
        let (ingress, key) = (ingress.clone(), key.clone());
        let slot =
            may_spend(&ingress, agent, None).map_err(|e| e.to_string()).and_then(|_| resources.runtimes.get(agent));
        Box::pin(async move {
            let slot = match slot {
                Ok(slot) => slot,
                Err(why) => return Condensed { text: Err(why), account: Account::default(), seconds: 0.0 },
            };
            let _permit = slot.queue.acquire(&key, 1).await;
            // The time begins with the permit.
            let (meter, begun) = (Meter::new(bounds), Instant::now());
            let until = meter.deadline() + GRACE;
            let text = timeout_at(until.into(), slot.runtime.condense(notes, max_chars, meter.clone())).await;
            let text = text.unwrap_or_else(|_| Err("it took too long".to_owned()));
            ingress.ledger().add(meter.account().usage.known_cost(), None);
            Condensed { text, account: meter.account(), seconds: begun.elapsed().as_secs_f64() }
        })
    });
    Condenser { agent: agent.to_string(), condense }
}
