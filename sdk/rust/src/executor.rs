//! Runs async code in a component, which has one thread: [`block_on`] runs a future with all of its parts, and sleeps
//! in the host (`agent.wait`) while all of them wait.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::agent;

/// The number of times that a future may wake itself before the host's events are looked for.
const SPINS: u32 = 64;

/// Runs a future to its end. While nothing in it can go on the component sleeps, and the host wakes those parts of it
/// that something happened for.
///
/// [`AutonomousWorker::run`](crate::AutonomousWorker::run) is run by it. For several things at once there are the
/// combinators of the crate `futures-util`: `join_all`, `select`, `buffer_unordered`.
///
/// # Panics
/// If the future waits for something that can never wake it: it would never end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    run(future, &reactor())
}

/// Waits until a session has an event, or is over. It may return early.
pub(crate) async fn ready(session: Rc<agent::Session>) {
    reactor().wait(session).await;
}

thread_local! {
    /// The reactor of the whole component, so that a [`block_on`] within another one sleeps for both.
    static REACTOR: Rc<Reactor<Rc<agent::Session>>> = Rc::default();
}

fn reactor() -> Rc<Reactor<Rc<agent::Session>>> {
    REACTOR.with(Rc::clone)
}

#[allow(clippy::panic, reason = "it would never end; a trap ends it, and its text is in the job's log")]
fn run<F: Future, P: Wait>(future: F, reactor: &Reactor<P>) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut spins: u32 = 0;
    loop {
        woken.0.store(false, Ordering::Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        if woken.0.load(Ordering::Relaxed) {
            // A future that wakes itself continues at once. If it never rests, all others look for the host's events
            // now and then.
            spins = spins.wrapping_add(1);
            if spins % SPINS == 0 {
                reactor.wake(|all| (0..).take(all.len()).collect());
            }
        } else if !reactor.wake(P::ready_next) {
            panic!("the future waits for nothing that the host could tell it: it would never end");
        }
    }
}

/// Whether the future woke itself while it was polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A resource of the host that becomes ready.
trait Wait: Sized {
    /// Sleeps until some resources are ready, and returns their positions.
    fn ready_next(all: &[&Self]) -> Vec<u32>;
}

impl Wait for Rc<agent::Session> {
    fn ready_next(all: &[&Self]) -> Vec<u32> {
        let sessions: Vec<&agent::Session> = all.iter().map(|session| &***session).collect();
        agent::wait(&sessions)
    }
}

/// All entries that wait for the host.
struct Reactor<P> {
    entries: RefCell<Entries<P>>,
}

/// The entries, by number.
struct Entries<P> {
    last: u64,
    all: BTreeMap<u64, Entry<P>>,
}

struct Entry<P> {
    pollable: P,
    state: State,
}

enum State {
    /// The entry was not polled yet.
    New,
    /// The waker of a waiting entry.
    Waiting(Waker),
    /// The entry was ready. The reactor does not sleep for it any more, since the sleep would end at once, again and
    /// again.
    Ready,
}

impl<P> Default for Reactor<P> {
    fn default() -> Self {
        Self { entries: RefCell::new(Entries { last: 0, all: BTreeMap::new() }) }
    }
}

impl<P> Reactor<P> {
    fn wait(self: &Rc<Self>, pollable: P) -> Ready<P> {
        let mut entries = self.entries.borrow_mut();
        entries.last += 1;
        let number = entries.last;
        entries.all.insert(number, Entry { pollable, state: State::New });
        Ready { reactor: self.clone(), number }
    }

    /// Wakes the waiting entries whose positions `choose` returns; false if none waits.
    fn wake(&self, choose: impl FnOnce(&[&P]) -> Vec<u32>) -> bool {
        let mut entries = self.entries.borrow_mut();
        let waiting = entries.all.iter().filter(|(_, entry)| matches!(entry.state, State::Waiting(_)));
        let (numbers, pollables): (Vec<u64>, Vec<&P>) =
            waiting.map(|(number, entry)| (*number, &entry.pollable)).unzip();
        if pollables.is_empty() {
            return false;
        }
        let mut wakers = Vec::new();
        for position in choose(&pollables) {
            let entry = numbers.get(position as usize).and_then(|number| entries.all.get_mut(number));
            if let Some(State::Waiting(waker)) = entry.map(|entry| std::mem::replace(&mut entry.state, State::Ready)) {
                wakers.push(waker);
            }
        }
        // A waker may drop a waiting entry, so nothing is borrowed any more.
        drop(entries);
        wakers.into_iter().for_each(Waker::wake);
        true
    }
}

/// Waits for one pollable, which is dropped with it.
struct Ready<P> {
    reactor: Rc<Reactor<P>>,
    number: u64,
}

impl<P> Future for Ready<P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.reactor.entries.borrow_mut().all.get_mut(&self.number) {
            Some(Entry { state: State::Ready, .. }) | None => Poll::Ready(()),
            Some(entry) => {
                entry.state = State::Waiting(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<P> Drop for Ready<P> {
    fn drop(&mut self) {
        let left = self.reactor.entries.borrow_mut().all.remove(&self.number);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::{
        FutureExt, StreamExt,
        future::{Either, join_all, select},
        stream,
    };

    use super::*;

    /// Ready when so much time has passed. Time passes only while the reactor sleeps.
    struct Alarm(u32);

    thread_local! {
        static NOW: Cell<u32> = const { Cell::new(0) };
        static SLEEPS: Cell<u32> = const { Cell::new(0) };
        static ALIVE: Cell<i32> = const { Cell::new(0) };
    }

    impl Wait for Alarm {
        fn ready_next(all: &[&Self]) -> Vec<u32> {
            SLEEPS.set(SLEEPS.get() + 1);
            NOW.set(NOW.get().max(all.iter().map(|alarm| alarm.0).min().unwrap()));
            all.iter().zip(0..).filter(|(alarm, _)| alarm.0 <= NOW.get()).map(|(_, position)| position).collect()
        }
    }

    impl Drop for Alarm {
        fn drop(&mut self) {
            ALIVE.set(ALIVE.get() - 1);
        }
    }

    /// Waits until a moment, and says which it was.
    async fn until(reactor: &Rc<Reactor<Alarm>>, moment: u32) -> u32 {
        loop {
            ALIVE.set(ALIVE.get() + 1);
            reactor.wait(Alarm(moment)).await;
            if NOW.get() >= moment {
                return NOW.get();
            }
        }
    }

    #[test]
    fn what_waits_together_is_slept_for_together_and_once_for_each_moment() {
        let reactor = Rc::default();
        let moments = run(join_all([30, 10, 20, 10].map(|moment| until(&reactor, moment))), &reactor);
        assert_eq!(moments, [30, 10, 20, 10]);
        assert_eq!(SLEEPS.get(), 3);
        assert_eq!(ALIVE.get(), 0);
    }

    #[test]
    fn a_bounded_number_is_under_way_at_once() {
        let reactor = Rc::default();
        let most = Cell::new(0);
        let work = stream::iter([5, 1, 1, 1, 1, 1, 1]).map(|steps| {
            let (reactor, most) = (&reactor, &most);
            async move {
                for _ in 0..steps {
                    until(reactor, NOW.get() + 1).await;
                    most.set(most.get().max(ALIVE.get() + 1));
                }
                steps
            }
        });
        let ended: Vec<u32> = run(work.buffer_unordered(3).collect(), &reactor);
        assert_eq!(ended, [1, 1, 1, 1, 1, 1, 5], "a long one holds nobody up");
        assert_eq!((most.get(), SLEEPS.get()), (3, 5));
    }

    #[test]
    fn what_is_given_up_is_not_slept_for() {
        let reactor = Rc::default();
        let first = async {
            match select(pin!(until(&reactor, 100)), pin!(until(&reactor, 1))).await {
                Either::Left((moment, _)) | Either::Right((moment, _)) => moment,
            }
        };
        assert_eq!(run(first, &reactor), 1);
        assert_eq!(ALIVE.get(), 0);
        assert_eq!(run(until(&reactor, 2), &reactor), 2);
    }

    #[test]
    fn what_wakes_itself_does_not_keep_the_hosts_news_from_the_rest() {
        let reactor = Rc::default();
        let heard = Cell::new(false);
        let listens = async {
            until(&reactor, 0).await;
            heard.set(true);
        };
        let spins = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if heard.get() { Poll::Ready(()) } else { Poll::Pending }
        });
        run(join_all([Box::pin(listens) as Pin<Box<dyn Future<Output = ()>>>, Box::pin(spins)]), &reactor);
        assert_eq!(SLEEPS.get(), 0);
    }

    #[test]
    fn one_run_within_another_hears_what_both_wait_for() {
        let reactor = Rc::default();
        let inner = async { run(until(&reactor, 20), &reactor) };
        let both = async {
            let mut outer = pin!(until(&reactor, 10));
            assert!(outer.as_mut().now_or_never().is_none());
            (inner.await, outer.await)
        };
        assert_eq!(run(both, &reactor), (20, 20));
        assert_eq!(SLEEPS.get(), 2);
    }

    #[test]
    #[should_panic(expected = "would never end")]
    fn a_future_that_nobody_can_wake_is_not_waited_for() {
        run(std::future::pending::<()>(), &Reactor::<Alarm>::default());
    }
}
