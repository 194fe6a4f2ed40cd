//! What happens on a host, for whoever would otherwise poll: the newest events, and who listens to them.
//!
//! Whoever makes something happen puts it away in an inbox, and is done: one lock, held for a moment, and one task woken,
//! however many listen. That task, the pump, gives each event its number, renders it once for all, and wakes the
//! listeners, the more of them there are the less often. A listener has no queue: it has the number of the event that it
//! was told last, and reads on from there when its client has taken what came before. So a slow one costs nobody anything,
//! and finds a gap where what it was not told yet is not kept any more.

mod ring;

use std::{
    collections::VecDeque,
    iter, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use guild_auth::{
    Identity,
    shares::{Share, Shares},
};
use guild_contract::{Event, JobId, Limits, MemberKey, News};
use guild_jobs::{
    events::{JobEvent, Subscriber},
    rfc3339,
};
use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

pub use self::ring::{Record, Start};

use self::ring::Ring;

/// The pump rests for so long for each listener that it wakes, which has to be several times what it takes to tell one: so
/// ten thousand are woken twice in a second, and leave most of the machine to others. `cargo xtask bench listeners` measures
/// what is left.
const REST: Duration = Duration::from_micros(50);
/// A shorter rest is put off: no timer is as fine.
const LEAST_REST: Duration = Duration::from_millis(1);
/// The listeners are woken in so many shares, so that no request has to wait behind all of them: of ten thousand, 156 at a
/// time, with 8 ms for others after them.
const SHARES: usize = 64;

/// The events of a host.
pub struct Hub {
    inbox: Mutex<Inbox>,
    /// There is something in the inbox; or there is no hub any more.
    arrived: Arc<Notify>,
    ring: RwLock<Ring>,
    /// The number of the newest event, for each share of the listeners to wait for.
    shares: Vec<watch::Sender<u64>>,
    /// How many have come to listen.
    came: AtomicUsize,
    /// One for each who may listen.
    places: Arc<Shares>,
    /// How many may listen.
    pub limits: Arc<Limits>,
}

/// What happened, and has no number yet.
#[derive(Default)]
struct Inbox {
    events: VecDeque<Arrived>,
    /// How many there was no room for before those that are there, since nobody fetched them.
    lost: u64,
}

struct Arrived {
    time: Timestamp,
    member: Option<MemberKey>,
    job: Option<JobId>,
    news: News,
    truncated: bool,
}

impl Hub {
    /// A place of `who` among the listeners of the host (`limits.listeners`), while there is one for it.
    pub fn place(&self, who: Identity) -> Option<Share> {
        self.places.take(who, 1)
    }

    /// A hub without events. It has to be called in a runtime, in which its pump runs as long as it lives.
    pub fn new(limits: &Arc<Limits>) -> Arc<Self> {
        // The numbers of another run of the host mean nothing here.
        let run = format!("{:x}", Timestamp::now().as_microsecond());
        let arrived = Arc::new(Notify::new());
        let hub = Arc::new(Self {
            inbox: Mutex::default(),
            arrived: arrived.clone(),
            ring: RwLock::new(Ring::new(run, limits.events_kept)),
            shares: iter::repeat_with(|| watch::Sender::new(0)).take(SHARES).collect(),
            came: AtomicUsize::new(0),
            places: Shares::new(limits.listeners.into()),
            limits: limits.clone(),
        });
        tokio::spawn(pump(Arc::downgrade(&hub), arrived));
        hub
    }

    /// Tells what became of the member `key`.
    pub fn member(&self, key: MemberKey, news: News) {
        let (news, truncated) = news.cut();
        self.arrive(Arrived { time: Timestamp::now(), member: Some(key), job: None, news, truncated });
    }

    /// Tells what happens to the jobs of a member, for [`JobStore::set_subscriber`](guild_jobs::JobStore::set_subscriber).
    pub fn of_member(self: &Arc<Self>, key: &MemberKey) -> Arc<dyn Subscriber> {
        Arc::new(OfMember { hub: self.clone(), member: key.clone() })
    }

    fn arrive(&self, event: Arrived) {
        {
            let mut inbox = self.inbox();
            if inbox.events.len() >= self.limits.events_kept as usize {
                inbox.events.pop_front();
                inbox.lost = inbox.lost.saturating_add(1);
            }
            inbox.events.push_back(event);
        }
        self.arrived.notify_one();
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what has arrived into the ring. Answers with the number of the newest event.
    fn sort(&self) -> u64 {
        let Inbox { events, lost } = mem::take(&mut *self.inbox());
        let events: Vec<_> = events.into_iter().map(Event::from).collect();
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        if lost > 0 {
            ring.lose(lost);
        }
        for event in events {
            ring.push(event);
        }
        ring.newest()
    }

    /// Looks at what is kept.
    pub fn read<T>(&self, look: impl FnOnce(&Ring) -> T) -> T {
        look(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the newest event, as one more listener is told of it.
    pub fn newest(&self) -> watch::Receiver<u64> {
        let share = self.came.fetch_add(1, Ordering::Relaxed) % SHARES;
        // There is a share of each number.
        self.shares.get(share).map_or_else(|| watch::channel(0).1, watch::Sender::subscribe)
    }

    fn listeners(&self) -> u32 {
        u32::try_from(self.places.taken()).unwrap_or(u32::MAX)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.arrived.notify_one();
    }
}

/// Fetches what arrives and wakes the listeners, one share of them after the other, as long as there is a hub.
async fn pump(hub: Weak<Hub>, arrived: Arc<Notify>) {
    let mut rest = Duration::ZERO;
    loop {
        arrived.notified().await;
        for share in 0..SHARES {
            let Some(hub) = hub.upgrade() else { return };
            // Each time: what arrives while the others rest must not fill the inbox.
            let newest = hub.sort();
            if let Some(share) = hub.shares.get(share) {
                share.send_if_modified(|told| mem::replace(told, newest) != newest);
            }
            rest += REST.saturating_mul(hub.listeners()) / SHARES as u32;
            drop(hub);
            if rest >= LEAST_REST {
                sleep(mem::take(&mut rest)).await;
            }
        }
    }
}

impl From<Arrived> for Event {
    fn from(arrived: Arrived) -> Self {
        let Arrived { time, member, job, news, truncated } = arrived;
        Self { time: rfc3339(time), member, job_id: job, news, truncated }
    }
}

/// RFC 3339 in UTC, to the millisecond.
/// Tells the hub what happens to the jobs of a member.
struct OfMember {
    hub: Arc<Hub>,
    member: MemberKey,
}

impl Subscriber for OfMember {
    fn receive(&self, event: JobEvent) {
        let JobEvent { time, job, news, truncated } = event;
        self.hub.arrive(Arrived { time, member: Some(self.member.clone()), job: Some(job), news, truncated });
    }
}
