//! Keeps the newest events of a host for its subscribers, which would otherwise poll.
//!
//! An event gets its number, and is rendered once for all subscribers, when it happens. A subscriber has no queue: it
//! has the number of the last event that it was sent, and reads on from there when its client has taken what came
//! before. So a slow subscriber delays no other, and finds a gap if events that it was not sent are gone.

mod ring;

use std::{
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use guild_auth::{
    Identity,
    budget::{Budget, Permit},
};
use guild_contract::{Event, EventDetail, Limits, MemberKey};
use guild_fs::clock::rfc3339;
use guild_jobs::events::{JobEvent, Subscriber};
use guild_telemetry::record;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

pub use self::ring::{Record, Ring, Start};

/// The pause after subscribers were woken, for each of them: several times what it takes to serve one. Ten thousand are
/// woken twice in a second, which leaves most of the machine to requests. `cargo xtask bench listeners` measures that.
const REST: Duration = Duration::from_micros(50);

/// The events of a host.
pub struct Hub {
    ring: RwLock<Ring>,
    /// Notified when there is a new event, and when the hub is dropped.
    changed: Arc<Notify>,
    /// The number of the newest event, as subscribers were last woken for it.
    newest: watch::Sender<u64>,
    /// The permits of subscribers.
    permits: Arc<Budget>,
    /// The limits, with the number of subscribers.
    pub limits: Arc<Limits>,
}

impl Hub {
    /// A permit of `who` among the subscribers of the host (`limits.listeners`), if there is a free one.
    pub fn place(&self, who: Identity) -> Option<Permit> {
        self.permits.try_acquire(who, 1)
    }

    /// The number of subscribers.
    pub fn subscribers(&self) -> u64 {
        self.permits.taken()
    }

    /// A hub without events. It has to be called in a runtime, in which a task wakes the subscribers as long as the hub
    /// lives.
    pub fn new(limits: &Arc<Limits>) -> Arc<Self> {
        // The numbers of another run of the host are invalid here.
        let run = format!("{:x}", Timestamp::now().as_microsecond());
        Self::with(limits, Ring::new(run, limits.events_kept))
    }

    /// A hub for the events of a cluster, by the numbers of its log. It has to be called in a runtime, too.
    pub fn of_log(log: String, limits: &Arc<Limits>) -> Arc<Self> {
        Self::with(limits, Ring::of_log(log, limits.events_kept))
    }

    fn with(limits: &Arc<Limits>, ring: Ring) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let hub = Arc::new(Self {
            ring: RwLock::new(ring),
            changed: changed.clone(),
            newest: watch::Sender::new(0),
            permits: Budget::new(limits.listeners.into()),
            limits: limits.clone(),
        });
        tokio::spawn(wake(Arc::downgrade(&hub), changed));
        hub
    }

    /// Publishes an event of the member `key`.
    pub fn member(&self, key: MemberKey, detail: EventDetail) {
        let (detail, truncated) = detail.cut();
        let time = rfc3339(Timestamp::now());
        self.publish(Event { time, member: Some(key), job_id: None, news: detail, truncated });
    }

    /// Publishes the events of a member's jobs, for [`JobStore::set_subscriber`](guild_jobs::JobStore::set_subscriber).
    pub fn of_member(self: &Arc<Self>, key: &MemberKey) -> Arc<dyn Subscriber> {
        Arc::new(OfMember { hub: self.clone(), member: key.clone() })
    }

    fn publish(&self, event: Event) {
        self.change(|ring| ring.push(event));
    }

    /// Publishes the events of a message of a cluster's log, which this host or another one wrote.
    pub(crate) fn hear(&self, member: &MemberKey, sequence: u64, events: Vec<JobEvent>, is_own: bool) {
        self.change(|ring| {
            for (nth, event) in (0..).zip(events) {
                ring.hear(sequence, nth, rendered(member, event), is_own);
            }
        });
    }

    /// Goes on after a message of a cluster's log: events before it may be gone.
    pub(crate) fn begin_after(&self, sequence: u64) {
        self.change(|ring| ring.begin_after(sequence));
    }

    fn change(&self, change: impl FnOnce(&mut Ring)) {
        change(&mut self.ring.write().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Reads the kept events.
    pub fn read<T>(&self, read: impl FnOnce(&Ring) -> T) -> T {
        read(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the newest event, as a subscriber is woken for it.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// Wakes the subscribers when there are new events, as long as there is a hub: the more subscribers, the less often.
async fn wake(hub: Weak<Hub>, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        let Some(hub) = hub.upgrade() else { return };
        hub.newest.send_replace(hub.read(Ring::newest));
        let subscribers = u32::try_from(hub.subscribers()).unwrap_or(u32::MAX);
        drop(hub);
        sleep(REST.saturating_mul(subscribers)).await;
    }
}

/// Publishes the events of a member's jobs.
struct OfMember {
    hub: Arc<Hub>,
    member: MemberKey,
}

impl Subscriber for OfMember {
    fn receive(&self, event: JobEvent) {
        if let EventDetail::JobEnded { status, .. } = &event.detail {
            record::job_ended(&self.member, *status);
        }
        self.hub.publish(rendered(&self.member, event));
    }
}

/// The event of a member's job, for subscribers.
fn rendered(member: &MemberKey, event: JobEvent) -> Event {
    let JobEvent { time, job, detail, truncated } = event;
    Event { time: rfc3339(time), member: Some(member.clone()), job_id: Some(job), news: detail, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscriber_is_not_sent_what_happened_before_it_came_and_is_woken_for_what_comes_after() {
        let hub = Hub::new(&Arc::new(Limits::default()));
        hub.member("m".parse().unwrap(), EventDetail::MemberAdded);
        let (_, at) = hub.read(|ring| ring.begin(Start::Now));
        let mut newest = hub.newest();
        assert!(hub.read(|ring| ring.read(at, |_| true)).0.is_empty());
        hub.member("m".parse().unwrap(), EventDetail::MemberRemoved);
        newest.wait_for(|newest| *newest > at).await.unwrap();
        let (batch, at) = hub.read(|ring| ring.read(at, |_| true));
        assert!(String::from_utf8_lossy(&batch).contains("member-removed") && at == 2);
    }
}
