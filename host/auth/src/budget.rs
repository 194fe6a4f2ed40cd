//! Shares budgets between callers, with permits for parts of them.
//!
//! One caller gets at most seven eighths of a budget, so that the rest is left for others.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// The identity of a caller, for comparison with later requests. All requests with one token have one identity, and so
/// have those of one process on a Unix socket; all other requests without a token share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub(crate) Option<[u8; 32]>);

impl Identity {
    /// The identity of a process. It cannot equal the digest of a token, since those do not end in 28 zeros.
    pub(crate) fn of_process(process: i32) -> Self {
        let mut identity = [0; 32];
        for (byte, of) in identity.iter_mut().zip(process.to_ne_bytes()) {
            *byte = of;
        }
        Self(Some(identity))
    }
}

/// An amount that callers share: bytes of memory, or places for listeners.
pub struct Budget {
    all: u64,
    of_one: u64,
    taken: Mutex<Taken>,
    released: Notify,
}

#[derive(Default)]
struct Taken {
    all: u64,
    by: HashMap<Identity, u64>,
}

/// The part of a budget that one caller holds until the permit is dropped.
pub struct Permit {
    budget: Arc<Budget>,
    who: Identity,
    amount: u64,
}

impl Budget {
    /// A budget of this size.
    pub fn new(all: u64) -> Arc<Self> {
        let of_one = (all - all.div_ceil(8)).max(1);
        Arc::new(Self { all, of_one, taken: Mutex::default(), released: Notify::new() })
    }

    /// The maximum for one caller.
    pub fn of_one(&self) -> u64 {
        self.of_one
    }

    /// The amount that all callers hold together.
    pub fn taken(&self) -> u64 {
        self.now().all
    }

    /// An empty permit for `who`.
    pub fn permit(self: &Arc<Self>, who: Identity) -> Permit {
        Permit { budget: self.clone(), who, amount: 0 }
    }

    /// A permit for this amount; `None` if less is left.
    pub fn try_acquire(self: &Arc<Self>, who: Identity, amount: u64) -> Option<Permit> {
        let mut permit = self.permit(who);
        permit.try_resize(amount).then_some(permit)
    }

    /// Repeats an attempt each time that a permit shrinks, until it succeeds; false if it does not in time.
    pub async fn retry(&self, patience: Duration, mut attempt: impl FnMut() -> bool) -> bool {
        let succeeds = async {
            loop {
                let mut released = pin!(self.released.notified());
                // Releases are noticed from here on.
                released.as_mut().enable();
                if attempt() {
                    return;
                }
                released.await;
            }
        };
        timeout(patience, succeeds).await.is_ok()
    }

    fn now(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The amount of the permit.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes the amount; if too little is left, the permit is unchanged, and the result is false.
    pub fn try_resize(&mut self, amount: u64) -> bool {
        self.change(amount, false)
    }

    /// Changes the amount, even if too little is left.
    pub fn resize(&mut self, amount: u64) {
        self.change(amount, true);
    }

    fn change(&mut self, amount: u64, forced: bool) -> bool {
        let Self { budget, who, amount: before } = self;
        let grows = amount > *before;
        let mut taken = budget.now();
        let changed = |whole: u64| whole.saturating_sub(*before).saturating_add(amount);
        let all = changed(taken.all);
        let own = changed(taken.by.get(who).copied().unwrap_or_default());
        if grows && !forced && (all > budget.all || own > budget.of_one) {
            return false;
        }
        taken.all = all;
        if own == 0 {
            taken.by.remove(who);
        } else {
            taken.by.insert(who.clone(), own);
        }
        drop(taken);
        if amount < *before {
            budget.released.notify_waiters();
        }
        self.amount = amount;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_seven_eighths_and_the_rest_is_for_others() {
        let budget = Budget::new(16);
        let who = |n| Identity(Some([n; 32]));
        let mut first = budget.try_acquire(who(1), 10).unwrap();
        assert!(budget.try_acquire(who(1), 5).is_none());
        let second = budget.try_acquire(who(1), 4).unwrap();
        assert!(budget.try_acquire(who(2), 3).is_none());
        let other = budget.try_acquire(who(2), 2).unwrap();
        assert_eq!(budget.taken(), 16);
        assert!(!first.try_resize(11));
        assert!(first.try_resize(1));
        assert_eq!((first.amount(), budget.taken()), (1, 7));
        first.resize(100);
        assert!(budget.try_acquire(Identity(None), 1).is_none());
        drop((first, second, other));
        assert_eq!((budget.taken(), budget.now().by.len()), (0, 0));
        for (all, of_one) in [(1, 1), (2, 1), (3, 2), (8, 7), (1024, 896)] {
            assert_eq!(Budget::new(all).of_one(), of_one, "{all}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_waits_has_its_permit_when_another_is_released_or_is_told_that_it_took_too_long() {
        let budget = Budget::new(8);
        let held = budget.try_acquire(Identity(None), 7).unwrap();
        let patience = Duration::from_secs(5);
        let mut wanted = budget.permit(Identity(None));
        assert!(!budget.retry(patience, || wanted.try_resize(1)).await);
        let (taken, ()) = tokio::join!(budget.retry(patience, || wanted.try_resize(1)), async { drop(held) });
        assert!(taken);
    }
}
