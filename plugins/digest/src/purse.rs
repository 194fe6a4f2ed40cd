//! The job's bounds, shared out over its sessions.

use std::time::Duration;

use guild_plugin_sdk::{Bounds, agent::Usage};

/// A session with fewer turns could read a file, but not also hand its summary over and end.
const TURNS: u32 = 4;

/// How many files the job's turns are enough for, one session for each and one to merge them.
pub(crate) fn affordable(bounds: &Bounds) -> usize {
    bounds.max_turns.map_or(usize::MAX, |turns| (turns / TURNS).saturating_sub(1).max(1) as usize)
}

/// What the job has left, and what is still to be done with it. Each session gets an equal share of what is left when
/// it starts, and what it does not use goes back to the others.
pub(crate) struct Purse {
    turns: Option<u32>,
    usd: Option<f64>,
    /// Of the whole job, from its begin.
    time: Option<Duration>,
    /// Files whose sessions have not begun.
    files: u32,
    parallel: u32,
}

impl Purse {
    /// The purse of a job that summarises so many files, `parallel` of them at a time, and then merges.
    pub(crate) fn new(bounds: &Bounds, files: usize, parallel: usize) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Self {
            turns: bounds.max_turns,
            usd: bounds.max_budget_usd,
            time: bounds.deadline_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            files: count(files),
            parallel: count(parallel),
        }
    }

    /// Takes the share of the next session out, at a moment of the job. The error says what is used up.
    pub(crate) fn share(&mut self, since_begin: Duration) -> Result<Bounds, String> {
        // One more than the files, for the merging; and when that begins, all that is left is its.
        let sessions = self.files + 1;
        let rounds = self.files.div_ceil(self.parallel) + 1;
        let bounds = Bounds {
            max_turns: self.turns.map(|left| left / sessions),
            max_budget_usd: self.usd.map(|left| left / f64::from(sessions)),
            deadline_seconds: self.time.map(|all| {
                let left = all.saturating_sub(since_begin).as_secs() / u64::from(rounds);
                u32::try_from(left).unwrap_or(u32::MAX)
            }),
        };
        let used_up = match bounds {
            Bounds { max_turns: Some(0), .. } => Some("turns"),
            Bounds { max_budget_usd: Some(usd), .. } if usd <= 0.0 => Some("budget"),
            Bounds { deadline_seconds: Some(0), .. } => Some("time"),
            _ => None,
        };
        self.files = self.files.saturating_sub(1);
        if let Some(what) = used_up {
            return Err(format!("the job's {what} is used up; a higher bound, or fewer files, leaves enough"));
        }
        self.turns = self.turns.zip(bounds.max_turns).map(|(left, share)| left - share);
        self.usd = self.usd.zip(bounds.max_budget_usd).map(|(left, share)| left - share);
        Ok(bounds)
    }

    /// Puts back what a session did not use of its share. Where its cost is not known, it counts as the whole share.
    pub(crate) fn put_back(&mut self, share: &Bounds, used: &Usage) {
        self.turns = self.turns.zip(share.max_turns).map(|(left, share)| left + share.saturating_sub(used.turns));
        self.usd = self
            .usd
            .zip(share.max_budget_usd)
            .map(|(left, share)| left + used.cost_usd.map_or(0.0, |used| (share - used).max(0.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Duration = Duration::ZERO;

    fn bounds(turns: u32, usd: f64, seconds: u32) -> Bounds {
        Bounds { max_turns: Some(turns), max_budget_usd: Some(usd), deadline_seconds: Some(seconds) }
    }

    fn used(turns: u32, cost_usd: Option<f64>) -> Usage {
        Usage { turns, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd }
    }

    #[test]
    fn every_file_and_the_merging_get_an_equal_share() {
        let mut purse = Purse::new(&bounds(50, 1.0, 600), 4, 2);
        for _ in 0..4 {
            assert_eq!(purse.share(BEGIN).unwrap().max_turns, Some(10));
        }
        assert_eq!(purse.share(BEGIN).unwrap(), bounds(10, 0.2, 600));
    }

    #[test]
    fn what_a_session_leaves_goes_to_the_others() {
        let mut purse = Purse::new(&bounds(30, 0.75, 600), 2, 1);
        let first = purse.share(BEGIN).unwrap();
        assert_eq!(first, bounds(10, 0.25, 200));
        purse.put_back(&first, &used(4, Some(0.0)));
        assert_eq!(purse.share(BEGIN).unwrap(), bounds(13, 0.375, 300));
        assert_eq!(purse.share(BEGIN).unwrap().max_turns, Some(13));
    }

    #[test]
    fn an_unknown_cost_counts_as_the_whole_share() {
        let mut purse = Purse::new(&bounds(30, 0.75, 600), 2, 1);
        let first = purse.share(BEGIN).unwrap();
        purse.put_back(&first, &used(1, None));
        assert_eq!(purse.share(BEGIN).unwrap().max_budget_usd, Some(0.25));
    }

    #[test]
    fn time_is_shared_by_rounds_and_passes() {
        let mut purse = Purse::new(&bounds(100, 1.0, 100), 4, 2);
        assert_eq!(purse.share(Duration::from_secs(10)).unwrap().deadline_seconds, Some(30));
        assert!(purse.share(Duration::from_secs(99)).unwrap_err().contains("time"));
    }

    #[test]
    fn what_is_used_up_is_named() {
        assert!(Purse::new(&bounds(2, 1.0, 100), 4, 2).share(BEGIN).unwrap_err().contains("turns"));
        let unbounded = Bounds { max_turns: None, max_budget_usd: None, deadline_seconds: None };
        assert_eq!(Purse::new(&unbounded, 4, 2).share(BEGIN).unwrap(), unbounded);
    }

    #[test]
    fn no_more_files_than_the_turns_are_enough_for() {
        let turns = |max_turns| affordable(&Bounds { max_turns, max_budget_usd: None, deadline_seconds: None });
        assert_eq!((turns(Some(40)), turns(Some(3)), turns(None)), (9, 1, usize::MAX));
    }
}
