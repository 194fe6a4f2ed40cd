//! Queues of calls: for each kind of call, a bounded number of components is live at a time.
//!
//! They are fair over members: one member's thousand dispatches, or jobs, leave room for another's first. Once in, ticks
//! share the cores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use guild_contract::Limits;
use guild_session::queue::{self, FairQueue};
use wasmtime::component::Component;

/// How many tables come with a memory: twice what compilers make of one program.
pub(crate) const TABLES: u32 = 4;
/// How components list their tools when they are loaded: for how long a listing is tried, and how many are at a time.
/// One that did not end in its time begins again in the next row, where it waits for others that take long and for
/// nobody else. In the last row `limits.list_tools_seconds` holds.
pub(crate) const LISTINGS: [(Duration, u32); 3] =
    [(Duration::from_millis(250), 8), (Duration::from_secs(1), 4), (Duration::MAX, 2)];

/// How many list their tools at a time.
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
    /// The memories, with their tables, that components have beyond the first: those that have more wait for them before
    /// they wait with the others, whom they do not hold up. For listing tools there are more, so that no component has to
    /// wait for others to be loaded.
    surplus: SharedQueue,
    /// How many of them a component may have.
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

    /// How many components are live at a time at most.
    pub(crate) fn live(&self) -> Option<u32> {
        let shared = [&self.activations, &self.runs, &self.tool_calls];
        shared.iter().try_fold(listings(), |sum, shared| sum.checked_add(shared.permits()))
    }

    /// How many memories, each with its tables, there are at most where `live` components are.
    pub(crate) fn memories(&self, live: u32) -> Option<u32> {
        live.checked_add(self.surplus.permits())?.checked_add(listings().checked_mul(self.widest)?)
    }

    /// The queues of a member with this component.
    pub(crate) fn of_member(&self, component: &Component) -> MemberQueues {
        // It imports no modules, so that it is known.
        let needed = component.resources_required();
        let sets = needed.map_or(1, |all| all.num_memories.max(all.num_tables.div_ceil(TABLES)));
        // One that has more than the limits allow is refused by its Store.
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

/// Where a component waits to list its tools, row by row.
pub(crate) type Listings = [Queue; LISTINGS.len()];

/// What is waited for before a kind of call, in this order.
pub(crate) struct Queue(Vec<Stage>);

/// A queue, and how many of its permits a call of a member takes.
#[derive(Clone)]
struct Stage {
    queue: SharedQueue,
    member: u64,
    permits: u32,
}

/// A call may be made. Dropping it lets the next one in.
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
