//! Queues: for each kind of call, a bounded number of components is live at a time.
//!
//! A queue is first come, first served. Each member has a narrower one of its own before the one that all share, so
//! that one member's thousand dispatches, or jobs, leave room for another's first. Once in, ticks share the cores.

use std::{sync::Arc, time::Duration};

use guild_contract::Limits;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
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

/// The permits that all members share.
pub(crate) struct Queues {
    activations: Shared,
    runs: Shared,
    tool_calls: Shared,
    listings: [Shared; LISTINGS.len()],
    /// The memories, with their tables, that components have beyond the first: those that have more wait for them before
    /// they wait with the others, whom they do not hold up. For listing tools there are more, so that no component has to
    /// wait for others to be loaded.
    surplus: Shared,
    /// How many of them a component may have.
    widest: u32,
}

impl Queues {
    pub(crate) fn new(cores: u32, limits: &Limits) -> Self {
        // A member leaves an eighth of the permits to others.
        let most = |all: u32| (all - all / 8).max(1);
        let widest = limits.memories.max(limits.tables.div_ceil(TABLES));
        Self {
            activations: Shared::new(cores * 8, cores),
            runs: Shared::new(limits.live_runs, most(limits.live_runs)),
            tool_calls: Shared::new(limits.live_tool_calls, most(limits.live_tool_calls)),
            listings: LISTINGS.map(|(_, most)| Shared::new(most, most)),
            surplus: Shared::new(widest.saturating_mul(2).max(256), widest.max(128)),
            widest,
        }
    }

    /// How many components are live at a time at most.
    pub(crate) fn live(&self) -> Option<u32> {
        let shared = [&self.activations, &self.runs, &self.tool_calls];
        shared.iter().try_fold(listings(), |sum, shared| sum.checked_add(shared.permits))
    }

    /// How many memories, each with its tables, there are at most where `live` components are.
    pub(crate) fn memories(&self, live: u32) -> Option<u32> {
        live.checked_add(self.surplus.permits)?.checked_add(listings().checked_mul(self.widest)?)
    }

    /// The queues of a member with this component.
    pub(crate) fn of_member(&self, component: &Component) -> MemberQueues {
        // It imports no modules, so that it is known.
        let needed = component.resources_required();
        let sets = needed.map_or(1, |all| all.num_memories.max(all.num_tables.div_ceil(TABLES)));
        // One that has more than the limits allow is refused by its Store.
        let surplus = sets.saturating_sub(1).min(self.surplus.permits_of_member);
        let before = if surplus > 0 { self.surplus.stages(surplus) } else { Vec::new() };
        let queue = |shared: &Shared| Queue([before.as_slice(), &shared.stages(1)].concat());
        MemberQueues {
            activations: queue(&self.activations),
            runs: queue(&self.runs),
            tool_calls: queue(&self.tool_calls),
            listings: self.listings.each_ref().map(|listings| Queue(listings.stages(1))),
        }
    }
}

/// So many permits, which all members share.
struct Shared {
    permits: u32,
    permits_of_member: u32,
    semaphore: Arc<Semaphore>,
}

impl Shared {
    fn new(permits: u32, permits_of_member: u32) -> Self {
        Self { permits, permits_of_member, semaphore: Arc::new(Semaphore::new(permits as usize)) }
    }

    /// Where a member waits: first for so many of its own permits, and then for as many of all.
    fn stages(&self, many: u32) -> Vec<Stage> {
        let own = Arc::new(Semaphore::new(self.permits_of_member as usize));
        vec![Stage { semaphore: own, many }, Stage { semaphore: self.semaphore.clone(), many }]
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

/// A semaphore, and how many of its permits a call takes.
#[derive(Clone)]
struct Stage {
    semaphore: Arc<Semaphore>,
    many: u32,
}

/// A call may be made. Dropping it lets the next one in.
pub struct Permit {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Queue {
    /// Waits for a permit. Semaphores are never closed.
    pub(crate) async fn permit(&self) -> Result<Permit, AcquireError> {
        let mut permits = Vec::with_capacity(self.0.len());
        for stage in &self.0 {
            permits.push(stage.semaphore.clone().acquire_many_owned(stage.many).await?);
        }
        Ok(Permit { _permits: permits })
    }
}
