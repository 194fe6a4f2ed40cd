//! How long a job that was looked at counts as fresh: a second, and longer while so many are asked for in turn that
//! looking at them would become most of what the host does.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// What was looked at so lately, in milliseconds, is fresh.
pub(crate) const FRESH_MILLIS: i64 = 1000;
/// What was looked at longer ago is never fresh, in milliseconds.
pub(crate) const MAX_FRESH_MILLIS: i64 = 5000;
/// For each thousand looks in a second, in milliseconds.
const LONGER_MILLIS: i64 = 250;

/// Counts looks by the second.
#[derive(Default)]
pub(crate) struct Pace {
    second: AtomicI64,
    looks: AtomicU32,
    /// Looks in the last second before that had any.
    before: AtomicU32,
}

impl Pace {
    /// A job is looked at now. A look that is counted to the second beside its own does no harm.
    pub(crate) fn look(&self, now_millis: i64) {
        let second = now_millis.div_euclid(1000);
        let last = self.second.swap(second, Ordering::Relaxed);
        if last != second {
            let looks = self.looks.swap(0, Ordering::Relaxed);
            // A pause that is shorter than a look can hold does not end it.
            let lately = second.saturating_sub(last) <= MAX_FRESH_MILLIS / 1000;
            self.before.store(if lately { looks } else { 0 }, Ordering::Relaxed);
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// For how long a look holds, in milliseconds.
    pub(crate) fn fresh_millis(&self) -> i64 {
        let thousands = i64::from(self.before.load(Ordering::Relaxed) / 1000);
        (FRESH_MILLIS + thousands * LONGER_MILLIS).min(MAX_FRESH_MILLIS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_hold_longer_while_there_are_very_many() {
        let pace = Pace::default();
        let look = |at: i64, times: u32| (0..times).for_each(|_| pace.look(at));
        look(10_000, 999);
        look(11_000, 1);
        assert_eq!(pace.fresh_millis(), 1000);
        look(11_500, 7_999);
        look(12_000, 100_000);
        assert_eq!(pace.fresh_millis(), 3000);
        look(13_000, 1);
        assert_eq!(pace.fresh_millis(), 5000, "and no longer");
        look(14_000, 1);
        assert_eq!(pace.fresh_millis(), 1000, "a quiet second ends it");
        look(15_000, 8_000);
        look(18_000, 1);
        assert_eq!(pace.fresh_millis(), 3000, "a short pause does not");
        look(19_000, 20_000);
        look(100_000, 1);
        assert_eq!(pace.fresh_millis(), 1000, "what was long ago does not count");
    }
}
