//! A future that wakes itself while it is polled is polled once more at once.
//!
//! hyper does so for nearly every request: that a handler takes the body wakes the connection which reads it, and that is one
//! and the same task. The runtime's answer to a task that wakes itself is to queue it, and to wake a thread that may take it: so
//! a request would be polled twice, and often on two cores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// Nobody polls it: whoever wakes it wakes the task.
const IDLE: u8 = 0;
/// It is being polled.
const POLLED: u8 = 0b01;
/// It was woken.
const WOKEN: u8 = 0b10;

/// Polls futures with a waker of its own, which is the same for as long as this lives.
pub(crate) struct OnceMore {
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl OnceMore {
    pub(crate) fn new() -> Self {
        let bell = Arc::new(Bell { state: AtomicU8::new(IDLE), task: AtomicWaker::new() });
        Self { waker: bell.clone().into(), bell }
    }

    /// Polls; and once more, where it was woken meanwhile. Where it was woken again, others have their turn first.
    pub(crate) fn poll<T>(&self, context: &Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let Bell { state, task } = &*self.bell;
        task.register(context.waker());
        let mut own = Context::from_waker(&self.waker);
        for _ in 0..2 {
            state.swap(POLLED, Ordering::AcqRel);
            let polled = poll(&mut own);
            let was_woken = state.swap(IDLE, Ordering::AcqRel) & WOKEN != 0;
            if polled.is_ready() || !was_woken {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Written also where it is there already: what each one did who wakes it is to be seen by the next poll.
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLED == 0 {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Polls once with something that wakes itself in its first so many polls: how often it was polled, and the task woken.
    fn polled_and_woken(wakes: usize) -> (usize, usize) {
        let task = Arc::new(Counted::default());
        let mut polls = 0;
        let polled = OnceMore::new().poll(&Context::from_waker(&task.clone().into()), |context| {
            polls += 1;
            if polls <= wakes {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        (polls, task.0.load(SeqCst))
    }

    #[test]
    fn what_wakes_itself_is_polled_once_more_and_then_others_have_their_turn() {
        assert_eq!(polled_and_woken(0), (1, 0));
        assert_eq!(polled_and_woken(1), (2, 0));
        assert_eq!(polled_and_woken(2), (2, 1));
        assert_eq!(polled_and_woken(9), (2, 1));
    }

    #[test]
    fn what_waits_is_woken_by_its_task() {
        let task = Arc::new(Counted::default());
        let once_more = OnceMore::new();
        let mut kept = None;
        let waker = task.clone().into();
        for woken in 1..=3 {
            let polled = once_more.poll(&Context::from_waker(&waker), |context| {
                kept = Some(context.waker().clone());
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
            kept.take().unwrap().wake();
            assert_eq!(task.0.load(SeqCst), woken);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_wake_is_lost_whichever_thread_it_comes_from() {
        const MESSAGES: usize = 20_000;
        let (send, mut receive) = tokio::sync::mpsc::channel(1);
        for _ in 0..4 {
            let send = send.clone();
            tokio::spawn(async move {
                for _ in 0..MESSAGES {
                    send.send(()).await.unwrap();
                }
            });
        }
        drop(send);
        let (once_more, mut received) = (OnceMore::new(), 0);
        let all = poll_fn(|context| {
            once_more.poll(context, |context| {
                while let Some(()) = std::task::ready!(receive.poll_recv(context)) {
                    received += 1;
                }
                Poll::Ready(())
            })
        });
        all.await;
        assert_eq!(received, 4 * MESSAGES);
    }
}
