//! Shares a number of permits fairly among members.
//!
//! Members take turns: a member with a thousand requests does not delay another's first. Within a member, requests are
//! granted in order of arrival. One member holds no more permits than its share.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// The identity of a member.
pub trait Key: Clone + Eq + Hash {}

impl<K: Clone + Eq + Hash> Key for K {}

/// Permits that members wait for. A waiting request is a channel in a list, and takes no thread.
pub struct FairQueue<K: Key> {
    permits: u32,
    permits_of_member: u32,
    state: Mutex<State<K>>,
}

struct State<K: Key> {
    free: u32,
    members: HashMap<K, Member<K>>,
    /// Waiting members, in the order of their turns.
    turns: VecDeque<K>,
}

struct Member<K: Key> {
    held: u32,
    waiting: VecDeque<Request<K>>,
}

struct Request<K: Key> {
    permits: u32,
    since: Instant,
    granted: oneshot::Sender<Permit<K>>,
}

/// The use of a queue at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueLoad {
    /// The number of permits.
    pub permits: u32,
    /// The permits that are held.
    pub held: u32,
    /// The requests that wait.
    pub waiting: u64,
    /// The time for which the oldest of them has waited.
    pub oldest: Duration,
}

/// Permits of a member. Dropping them grants them to the next.
pub struct Permit<K: Key> {
    queue: Arc<FairQueue<K>>,
    member: K,
    permits: u32,
}

impl<K: Key> FairQueue<K> {
    /// A queue with so many permits, of which one member holds no more than `permits_of_member`.
    pub fn new(permits: u32, permits_of_member: u32) -> Arc<Self> {
        let state = State { free: permits, members: HashMap::new(), turns: VecDeque::new() };
        Arc::new(Self { permits, permits_of_member: permits_of_member.min(permits), state: Mutex::new(state) })
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The greatest number of permits that one member holds.
    pub fn permits_of_member(&self) -> u32 {
        self.permits_of_member
    }

    /// The use of the queue now.
    pub fn load(&self) -> QueueLoad {
        let state = self.state();
        let waiting = state.members.values().flat_map(|member| &member.waiting);
        let waiting = waiting.filter(|request| !request.granted.is_closed());
        let mut load = QueueLoad { permits: self.permits, held: self.permits - state.free, ..QueueLoad::default() };
        for request in waiting {
            load.waiting += 1;
            load.oldest = load.oldest.max(request.since.elapsed());
        }
        load
    }

    /// Takes permits if they are free and no request waits.
    pub fn try_acquire(self: &Arc<Self>, member: &K, permits: u32) -> Option<Permit<K>> {
        let mut state = self.state();
        let held = state.members.get(member).map_or(0, |member| member.held);
        if !state.turns.is_empty() || permits > state.free || permits > self.permits_of_member.saturating_sub(held) {
            return None;
        }
        Some(self.take(&mut state, member.clone(), permits))
    }

    /// Waits for permits, at most for the share of a member. Dropping the future removes the request from the queue.
    pub async fn acquire(self: &Arc<Self>, member: &K, permits: u32) -> Permit<K> {
        let permits = permits.min(self.permits_of_member);
        if let Some(permit) = self.try_acquire(member, permits) {
            return permit;
        }
        loop {
            let (granted, turn) = oneshot::channel();
            self.state().enqueue(member, Request { permits, since: Instant::now(), granted });
            self.grant();
            // A request is removed only when its permits are sent to it.
            if let Ok(permit) = turn.await {
                return permit;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, state: &mut State<K>, member: K, permits: u32) -> Permit<K> {
        state.free -= permits;
        state.member(&member).held += permits;
        Permit { queue: self.clone(), member, permits }
    }

    /// Grants free permits to the next requests.
    fn grant(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next(self.permits_of_member);
                next.map(|(member, request)| (self.take(&mut state, member, request.permits), request.granted))
            };
            let Some((permit, granted)) = next else { return };
            // If the request was dropped just now, so is the permit, which frees it.
            let _ = granted.send(permit);
        }
    }
}

impl<K: Key> State<K> {
    fn member(&mut self, key: &K) -> &mut Member<K> {
        self.members.entry(key.clone()).or_insert_with(|| Member { held: 0, waiting: VecDeque::new() })
    }

    fn enqueue(&mut self, key: &K, request: Request<K>) {
        let waiting = &mut self.member(key).waiting;
        let is_idle = waiting.is_empty();
        // Dropped requests at the end are removed at once, so that repeated requests take no memory.
        while waiting.back().is_some_and(|last| last.granted.is_closed()) {
            waiting.pop_back();
        }
        waiting.push_back(request);
        if is_idle {
            self.turns.push_back(key.clone());
        }
    }

    /// Removes the next request that can be granted, and gives the next member its turn. A request for which too few
    /// permits are free blocks later ones, unless it waits for permits of its own member.
    fn next(&mut self, permits_of_member: u32) -> Option<(K, Request<K>)> {
        if self.free == 0 {
            return None;
        }
        for _ in 0..self.turns.len() {
            let key = self.turns.pop_front()?;
            let free = self.free;
            let member = self.member(&key);
            while member.waiting.front().is_some_and(|first| first.granted.is_closed()) {
                member.waiting.pop_front();
            }
            match member.waiting.front().map(|first| first.permits) {
                None => self.forget_idle(&key),
                Some(permits) if permits > permits_of_member.saturating_sub(member.held) => self.turns.push_back(key),
                Some(permits) if permits > free => {
                    self.turns.push_front(key);
                    return None;
                }
                Some(_) => {
                    let request = member.waiting.pop_front()?;
                    if !member.waiting.is_empty() {
                        self.turns.push_back(key.clone());
                    }
                    return Some((key, request));
                }
            }
        }
        None
    }

    fn forget_idle(&mut self, key: &K) {
        if self.members.get(key).is_some_and(|member| member.held == 0 && member.waiting.is_empty()) {
            self.members.remove(key);
        }
    }
}

impl<K: Key> Drop for Permit<K> {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state();
            state.free += self.permits;
            state.member(&self.member).held -= self.permits;
            state.forget_idle(&self.member);
        }
        self.queue.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    type Held = Vec<Permit<&'static str>>;

    /// Polls once; true if the request was granted, whose permit is then held.
    fn is_granted(request: &mut Pin<Box<impl Future<Output = Permit<&'static str>>>>, held: &mut Held) -> bool {
        match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => {
                held.push(permit);
                true
            }
            Poll::Pending => false,
        }
    }

    #[test]
    fn members_take_turns_and_dropped_requests_are_skipped() {
        let queue = FairQueue::new(1, 1);
        let (many, few) = ("many", "few");
        let first = queue.try_acquire(&many, 1).unwrap();
        let mut held = Held::new();
        let mut a = Box::pin(queue.acquire(&many, 1));
        let mut b = Box::pin(queue.acquire(&many, 1));
        let mut c = Box::pin(queue.acquire(&many, 1));
        let mut d = Box::pin(queue.acquire(&few, 1));
        for waits in [&mut a, &mut b, &mut c] {
            assert!(!is_granted(waits, &mut held));
        }
        assert!(!is_granted(&mut d, &mut held));
        drop(b);
        drop(first);
        assert!(is_granted(&mut a, &mut held) && !is_granted(&mut c, &mut held) && !is_granted(&mut d, &mut held));
        held.clear();
        assert!(is_granted(&mut d, &mut held) && !is_granted(&mut c, &mut held));
        held.clear();
        assert!(is_granted(&mut c, &mut held));
        assert!(queue.try_acquire(&few, 1).is_none());
        held.clear();
        assert!(queue.try_acquire(&few, 1).is_some());
        assert!(queue.state().members.is_empty() && queue.state().turns.is_empty());
    }

    #[test]
    fn a_permit_granted_to_a_dropped_request_goes_to_the_next() {
        let queue = FairQueue::new(1, 1);
        let first = queue.try_acquire(&"a", 1).unwrap();
        let mut held = Held::new();
        let mut a = Box::pin(queue.acquire(&"a", 1));
        let mut b = Box::pin(queue.acquire(&"b", 1));
        assert!(!is_granted(&mut a, &mut held) && !is_granted(&mut b, &mut held));
        drop(first);
        // The permit was sent to `a`, which is dropped without taking it.
        drop(a);
        assert!(is_granted(&mut b, &mut held));
    }

    #[test]
    fn a_member_holds_no_more_than_its_share_and_blocks_no_other() {
        let queue = FairQueue::new(8, 7);
        let mut held = Held::new();
        held.push(queue.try_acquire(&"many", 7).unwrap());
        let mut over = Box::pin(queue.acquire(&"many", 1));
        assert!(queue.try_acquire(&"many", 1).is_none() && !is_granted(&mut over, &mut held));
        let mut other = Box::pin(queue.acquire(&"few", 1));
        assert!(is_granted(&mut other, &mut held));
        held.remove(0);
        assert!(is_granted(&mut over, &mut held));
    }

    #[test]
    fn a_request_for_many_permits_is_not_overtaken_and_gets_no_more_than_there_are() {
        let queue = FairQueue::new(4, 4);
        let mut held = Held::new();
        held.push(queue.try_acquire(&"a", 3).unwrap());
        let mut all = Box::pin(queue.acquire(&"b", 100));
        assert!(!is_granted(&mut all, &mut held));
        let mut one = Box::pin(queue.acquire(&"c", 1));
        assert!(queue.try_acquire(&"c", 1).is_none() && !is_granted(&mut one, &mut held));
        held.clear();
        assert!(is_granted(&mut all, &mut held) && !is_granted(&mut one, &mut held));
        held.clear();
        assert!(is_granted(&mut one, &mut held));
    }
}
