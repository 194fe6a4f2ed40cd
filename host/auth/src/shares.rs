//! What all callers share, and how much of it one of them can have.
//!
//! One caller has seven eighths at most: whatever it does, there is something left for others.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// The identity of a caller, for comparison with later requests: all with one token are one caller, so is each process that
/// came by a Unix socket, and so is everybody else without a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub(crate) Option<[u8; 32]>);

impl Identity {
    /// That of a process. It is no digest of a token: those do not end in 28 zeros.
    pub(crate) fn of_process(process: i32) -> Self {
        let mut identity = [0; 32];
        for (byte, of) in identity.iter_mut().zip(process.to_ne_bytes()) {
            *byte = of;
        }
        Self(Some(identity))
    }
}

/// An amount, of bytes or of anything else, that callers share.
pub struct Shares {
    all: u64,
    of_one: u64,
    taken: Mutex<Taken>,
    given_back: Notify,
}

#[derive(Default)]
struct Taken {
    all: u64,
    by: HashMap<Identity, u64>,
}

/// What one caller has of it. It is given back when this is dropped.
pub struct Share {
    shares: Arc<Shares>,
    who: Identity,
    amount: u64,
}

impl Shares {
    /// So much in all.
    pub fn new(all: u64) -> Arc<Self> {
        let of_one = (all - all.div_ceil(8)).max(1);
        Arc::new(Self { all, of_one, taken: Mutex::default(), given_back: Notify::new() })
    }

    /// How much one caller can have.
    pub fn of_one(&self) -> u64 {
        self.of_one
    }

    /// How much is taken, by all together.
    pub fn taken(&self) -> u64 {
        self.now().all
    }

    /// A share of `who`, of nothing yet.
    pub fn share(self: &Arc<Self>, who: Identity) -> Share {
        Share { shares: self.clone(), who, amount: 0 }
    }

    /// A share of so much, while there is so much left.
    pub fn take(self: &Arc<Self>, who: Identity, amount: u64) -> Option<Share> {
        let mut share = self.share(who);
        share.try_set(amount).then_some(share)
    }

    /// Tries something again each time that a share is given back, until it succeeds; false where it does not in time.
    pub async fn retry(&self, patience: Duration, mut attempt: impl FnMut() -> bool) -> bool {
        let succeeds = async {
            loop {
                let mut given_back = pin!(self.given_back.notified());
                // What is given back from here on is noticed.
                given_back.as_mut().enable();
                if attempt() {
                    return;
                }
                given_back.await;
            }
        };
        timeout(patience, succeeds).await.is_ok()
    }

    fn now(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// How much it is.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes it to so much. Where there is not so much left it is what it was, and this is false.
    pub fn try_set(&mut self, amount: u64) -> bool {
        self.change(amount, false)
    }

    /// Changes it to so much, also where there is not so much left.
    pub fn set(&mut self, amount: u64) {
        self.change(amount, true);
    }

    fn change(&mut self, amount: u64, forced: bool) -> bool {
        let Self { shares, who, amount: before } = self;
        let grows = amount > *before;
        let mut taken = shares.now();
        let changed = |whole: u64| whole.saturating_sub(*before).saturating_add(amount);
        let all = changed(taken.all);
        let own = changed(taken.by.get(who).copied().unwrap_or_default());
        if grows && !forced && (all > shares.all || own > shares.of_one) {
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
            shares.given_back.notify_waiters();
        }
        self.amount = amount;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_seven_eighths_and_the_rest_is_for_others() {
        let shares = Shares::new(16);
        let who = |n| Identity(Some([n; 32]));
        let mut first = shares.take(who(1), 10).unwrap();
        assert!(shares.take(who(1), 5).is_none());
        let second = shares.take(who(1), 4).unwrap();
        assert!(shares.take(who(2), 3).is_none());
        let other = shares.take(who(2), 2).unwrap();
        assert_eq!(shares.taken(), 16);
        assert!(!first.try_set(11));
        assert!(first.try_set(1));
        assert_eq!((first.amount(), shares.taken()), (1, 7));
        first.set(100);
        assert!(shares.take(Identity(None), 1).is_none());
        drop((first, second, other));
        assert_eq!((shares.taken(), shares.now().by.len()), (0, 0));
        for (all, of_one) in [(1, 1), (2, 1), (3, 2), (8, 7), (1024, 896)] {
            assert_eq!(Shares::new(all).of_one(), of_one, "{all}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_share_has_it_when_another_is_given_back_or_hears_that_it_took_too_long() {
        let shares = Shares::new(8);
        let held = shares.take(Identity(None), 7).unwrap();
        let patience = Duration::from_secs(5);
        let mut wanted = shares.share(Identity(None));
        assert!(!shares.retry(patience, || wanted.try_set(1)).await);
        let (taken, ()) = tokio::join!(shares.retry(patience, || wanted.try_set(1)), async { drop(held) });
        assert!(taken);
    }
}
