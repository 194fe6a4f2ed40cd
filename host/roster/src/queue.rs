//! The places of a runtime: how many of its sessions are under way at a time, and who is next.
//!
//! Members take turns: one that dispatched a thousand jobs does not hold up another's first. Within a member the
//! first to come is the first to go.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use guild_contract::MemberKey;
use tokio::sync::oneshot;

/// Places for sessions. What waits is a channel in a list: no thread, and nothing of the session.
pub(crate) struct Places {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Members that wait, in the order of their turns.
    turns: VecDeque<Waiting>,
}

struct Waiting {
    member: MemberKey,
    sessions: VecDeque<oneshot::Sender<Place>>,
}

/// A place that is taken. It goes to the next when it is dropped.
pub(crate) struct Place(Option<Arc<Places>>);

impl Places {
    pub(crate) fn new(places: u32) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: places as usize, turns: VecDeque::new() }) })
    }

    /// A place, if one is free now.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state();
        state.free = state.free.checked_sub(1)?;
        Some(Place(Some(self.clone())))
    }

    /// Waits for a place. To drop the future is to leave the queue.
    pub(crate) async fn take(self: &Arc<Self>, member: &MemberKey) -> Place {
        loop {
            let turn = {
                let mut state = self.state();
                if let Some(free) = state.free.checked_sub(1) {
                    state.free = free;
                    return Place(Some(self.clone()));
                }
                let (sender, turn) = oneshot::channel();
                match state.turns.iter_mut().find(|waiting| waiting.member == *member) {
                    Some(waiting) => {
                        // Those who left last make room at once, so that coming and going takes no memory.
                        while waiting.sessions.back().is_some_and(oneshot::Sender::is_closed) {
                            waiting.sessions.pop_back();
                        }
                        waiting.sessions.push_back(sender);
                    }
                    None => state.turns.push_back(Waiting { member: member.clone(), sessions: [sender].into() }),
                }
                turn
            };
            // A sender is dropped only with its place on the way to it.
            if let Ok(place) = turn.await {
                return place;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next in the queue who still waits; its member goes to the end.
    fn next(&self) -> Option<oneshot::Sender<Place>> {
        let mut state = self.state();
        while let Some(mut waiting) = state.turns.pop_front() {
            let next = std::iter::from_fn(|| waiting.sessions.pop_front()).find(|next| !next.is_closed());
            if !waiting.sessions.is_empty() {
                state.turns.push_back(waiting);
            }
            if next.is_some() {
                return next;
            }
        }
        state.free += 1;
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.0.take() else { return };
        while let Some(next) = places.next() {
            match next.send(Self(Some(places.clone()))) {
                Ok(()) => return,
                // It left the queue just now: the place is still here to give.
                Err(mut place) => place.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures::task::noop_waker_ref;

    use super::*;

    fn key(name: &str) -> MemberKey {
        name.parse().unwrap()
    }

    /// Polls once; true if it took its place.
    fn has_turn(waiting: &mut std::pin::Pin<Box<impl Future<Output = Place>>>, taken: &mut Vec<Place>) -> bool {
        match waiting.as_mut().poll(&mut std::task::Context::from_waker(noop_waker_ref())) {
            std::task::Poll::Ready(place) => {
                taken.push(place);
                true
            }
            std::task::Poll::Pending => false,
        }
    }

    #[test]
    fn members_take_turns_and_those_who_left_are_passed_over() {
        let places = Places::new(1);
        let first = places.try_take().unwrap();
        let (many, few) = (key("many"), key("few"));
        let mut taken = Vec::new();
        let mut a = Box::pin(places.take(&many));
        let mut b = Box::pin(places.take(&many));
        let mut c = Box::pin(places.take(&many));
        let mut d = Box::pin(places.take(&few));
        for waits in [&mut a, &mut b, &mut c] {
            assert!(!has_turn(waits, &mut taken));
        }
        assert!(!has_turn(&mut d, &mut taken));
        drop(b);
        drop(first);
        assert!(has_turn(&mut a, &mut taken) && !has_turn(&mut c, &mut taken) && !has_turn(&mut d, &mut taken));
        taken.clear();
        assert!(has_turn(&mut d, &mut taken) && !has_turn(&mut c, &mut taken));
        taken.clear();
        assert!(has_turn(&mut c, &mut taken));
        assert!(places.try_take().is_none());
        taken.clear();
        assert!(places.try_take().is_some());
    }

    #[test]
    fn a_place_given_to_one_who_left_goes_to_the_next() {
        let places = Places::new(1);
        let first = places.try_take().unwrap();
        let mut taken = Vec::new();
        let (one, other) = (key("a"), key("b"));
        let mut a = Box::pin(places.take(&one));
        let mut b = Box::pin(places.take(&other));
        assert!(!has_turn(&mut a, &mut taken) && !has_turn(&mut b, &mut taken));
        drop(first);
        // The place is on its way to `a`, which goes away without taking it.
        drop(a);
        assert!(has_turn(&mut b, &mut taken));
    }
}
