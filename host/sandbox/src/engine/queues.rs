//! Queues calls: for each kind of call, a bounded number of components is live at a time.
//!
//! The queues are fair over members: one member's thousand dispatches, or jobs, leave room for another's first.
//! Admitted components share the cores by ticks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use guild_contract::Limits;
use guild_session::queue::{self, FairQueue, QueueLoad};
use wasmtime::component::Component;

/// The number of tables for each memory, which is twice that of usual compiled programs.
pub(crate) const TABLES: u32 = 4;
/// The rows of listing tools when components are loaded: the time of a listing, and the number at a time. A listing
/// that exceeds its time begins again in the next row, where it waits only for other slow ones. In the last row the
/// time is `limits.list_tools_seconds`.
pub(crate) const LISTINGS: [(Duration, u32); 3] =
    [(Duration::from_millis(250), 8), (Duration::from_secs(1), 4), (Duration::MAX, 2)];

/// The number of listings at a time.
const fn listings() -> u32 {
    let [(_, first), (_, second), (_, last)] = LISTINGS;
    first + second + last
}

/// A queue that all members share, each under the number of its [`MemberQueues`].
type SharedQueue = Arc<FairQueue<u64>>;

/// The permits that all members share.
pub(crate) struct Queues {
    activations: SharedQueue,
    runs: SharedQueue,
    tool_calls: SharedQueue,
    listings: [SharedQueue; LISTINGS.len()],
    /// The memories, with their tables, that components have beyond the first one. Components with several wait for
    /// them first, so that they do not delay the others. Listings have extra memories, so that loading a component does
    /// not wait for others.
    surplus: SharedQueue,
    /// The number of them that a component may have.
    widest: u32,
    /// The number of the next member.
    next: AtomicU64,
}

impl Queues {
    pub(crate) fn new(cores: u32, limits: &Limits) -> Self {
        // A member leaves an eighth of the permits to others.
        let most = |all: u32| (all - all / 8).max(1);
        let widest = limits.memories.max(limits.tables.div_ceil(TABLES));
        Self {
            activations: FairQueue::new(cores * 8, cores),
            runs: FairQueue::new(limits.live_runs, most(limits.live_runs)),
            tool_calls: FairQueue::new(limits.live_tool_calls, most(limits.live_tool_calls)),
            listings: LISTINGS.map(|(_, most)| FairQueue::new(most, most)),
            surplus: FairQueue::new(widest.saturating_mul(2).max(256), widest.max(128)),
            widest,
            next: AtomicU64::new(0),
        }
    }

    /// The use of the queues by name.
    pub(crate) fn loads(&self) -> [(&'static str, QueueLoad); 3] {
        [("activate", &self.activations), ("run", &self.runs), ("call-tool", &self.tool_calls)]
            .map(|(name, queue)| (name, queue.load()))
    }

    /// The greatest number of live components.
    pub(crate) fn live(&self) -> Option<u32> {
        let shared = [&self.activations, &self.runs, &self.tool_calls];
        shared.iter().try_fold(listings(), |sum, shared| sum.checked_add(shared.permits()))
    }

    /// The greatest number of memories, each with its tables, of `live` components.
    pub(crate) fn memories(&self, live: u32) -> Option<u32> {
        live.checked_add(self.surplus.permits())?.checked_add(listings().checked_mul(self.widest)?)
    }

    /// The queues of a member with this component.
    pub(crate) fn of_member(&self, component: &Component) -> MemberQueues {
        // The component imports no modules, so its needs are known.
        let needed = component.resources_required();
        let sets = needed.map_or(1, |all| all.num_memories.max(all.num_tables.div_ceil(TABLES)));
        // The Store refuses a component that exceeds the limits.
        let surplus = sets.saturating_sub(1).min(self.surplus.permits_of_member());
        let member = self.next.fetch_add(1, Ordering::Relaxed);
        let stage = |queue: &SharedQueue, permits| Stage { queue: queue.clone(), member, permits };
        let before = (surplus > 0).then(|| stage(&self.surplus, surplus));
        let queue = |shared| Queue(before.iter().cloned().chain([stage(shared, 1)]).collect());
        MemberQueues {
            activations: queue(&self.activations),
            runs: queue(&self.runs),
            tool_calls: queue(&self.tool_calls),
            listings: self.listings.each_ref().map(|listings| Queue(vec![stage(listings, 1)])),
        }
    }
}

/// The queues of one member.
pub(crate) struct MemberQueues {
    pub(crate) activations: Queue,
    pub(crate) runs: Queue,
    pub(crate) tool_calls: Queue,
    pub(crate) listings: Listings,
}

/// The queues in which a component waits to list its tools, row by row.
pub(crate) type Listings = [Queue; LISTINGS.len()];

/// The stages that a call waits for, in this order.
pub(crate) struct Queue(Vec<Stage>);

/// A queue, and the number of its permits that a call of a member takes.
#[derive(Clone)]
struct Stage {
    queue: SharedQueue,
    member: u64,
    permits: u32,
}

/// A permit to make a call. Dropping it admits the next call.
pub struct Permit {
    _permits: Vec<queue::Permit<u64>>,
}

impl Queue {
    /// Waits for a permit.
    pub(crate) async fn permit(&self) -> Permit {
        let mut permits = Vec::with_capacity(self.0.len());
        for Stage { queue, member, permits: many } in &self.0 {
            permits.push(queue.acquire(member, *many).await);
        }
        Permit { _permits: permits }
    }
}
