//! Memories that have become too long are condensed by the member's runtime.

use std::{sync::Arc, time::Instant};

use guild_config::Runtime;
use guild_contract::{Bounds, MemberKey};
use guild_jobs::{Condense, Condensed, Condenser};
use guild_session::{
    activation::MemoryNote,
    meter::{Account, Meter},
};

use crate::runtimes::{GRACE, Runtimes};

/// Has the runtime `agent` condense the memories of the member `key`, when it has a place for that.
pub(crate) fn condenser(runtimes: &Arc<Runtimes>, agent: Runtime, key: &MemberKey) -> Condenser {
    let (runtimes, key) = (runtimes.clone(), key.clone());
    let condense: Condense = Arc::new(move |notes, max_chars, bounds| {
        let (runtimes, key) = (runtimes.clone(), key.clone());
        Box::pin(async move { condense(&runtimes, agent, &key, notes, max_chars, bounds).await })
    });
    Condenser { agent: agent.to_string(), condense }
}

async fn condense(
    runtimes: &Runtimes,
    agent: Runtime,
    key: &MemberKey,
    notes: Vec<MemoryNote>,
    max_chars: usize,
    bounds: Bounds,
) -> Condensed {
    let slot = match runtimes.get(agent) {
        Ok(slot) => slot,
        Err(why) => return Condensed { text: Err(why), account: Account::default(), seconds: 0.0 },
    };
    let _place = slot.places.acquire(key, 1).await;
    // Its time begins with its place.
    let (meter, begun) = (Meter::new(bounds), Instant::now());
    let until = meter.deadline() + GRACE;
    let text = tokio::time::timeout_at(until.into(), slot.runtime.condense(notes, max_chars, meter.clone())).await;
    let text = text.unwrap_or_else(|_| Err("it took too long".to_owned()));
    Condensed { text, account: meter.account(), seconds: begun.elapsed().as_secs_f64() }
}
