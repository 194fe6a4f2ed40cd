//! Bounds the host's memory for jobs that run or wait: tasks, configurations, prompts. It is counted over all of them,
//! so that ten thousand large jobs are answered busy before memory is full.

use std::sync::Arc;

use guild_contract::{Limits, rpc::RpcError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of one permit.
const UNIT: u64 = 1024;

/// The memory that all jobs of a host share, in KiB.
#[derive(Clone)]
pub(crate) struct MemoryBudget {
    all: Arc<Semaphore>,
    most: u64,
}

/// The memory of one member's jobs, which leaves an eighth to others.
pub(crate) struct MemberBudget(Arc<Semaphore>);

/// The memory of one job, until this is dropped.
pub(crate) type MemoryPermit = [OwnedSemaphorePermit; 2];

impl MemoryBudget {
    pub(crate) fn new(limits: &Limits) -> Self {
        let most = limits.running_bytes;
        Self { all: semaphore(most), most }
    }

    /// The budget of a member that comes into service.
    pub(crate) fn of_member(&self) -> MemberBudget {
        MemberBudget(semaphore(self.most - self.most / 8))
    }

    /// The bytes of all jobs.
    pub(crate) fn taken(&self) -> u64 {
        let left = u64::try_from(self.all.available_permits()).unwrap_or(u64::MAX);
        self.most.saturating_sub(left.saturating_mul(UNIT))
    }

    /// Takes so many bytes for a job.
    ///
    /// # Errors
    ///
    /// Returns -32000 when there is no room.
    pub(crate) fn keep(&self, own: &MemberBudget, bytes: u64) -> Result<MemoryPermit, RpcError> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let take = |permits: &Arc<Semaphore>| permits.clone().try_acquire_many_owned(units);
        let taken = take(&own.0).and_then(|own| Ok([own, take(&self.all)?]));
        taken.map_err(|_| {
            RpcError::busy(format!(
                "what the host keeps of running jobs would be more than limits.running_bytes = {}; try again when some have \
                 ended, or with a smaller task or config",
                self.most
            ))
        })
    }
}

fn semaphore(bytes: u64) -> Arc<Semaphore> {
    let units = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(Semaphore::MAX_PERMITS);
    Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_leaves_an_eighth_to_others_and_what_is_dropped_is_given_back() {
        let kept = MemoryBudget::new(&Limits { running_bytes: 16 * UNIT, ..Limits::default() });
        let (one, other) = (kept.of_member(), kept.of_member());
        let first = kept.keep(&one, 14 * UNIT).map_err(|e| e.message).unwrap();
        let busy = kept.keep(&one, 1).err().unwrap();
        assert!(busy.message.contains("limits.running_bytes = 16384"), "{}", busy.message);
        let second = kept.keep(&other, 2 * UNIT).map_err(|e| e.message).unwrap();
        assert!(kept.keep(&other, 1).is_err());
        drop(first);
        assert!(kept.keep(&one, 14 * UNIT).is_ok() && kept.keep(&one, u64::MAX).is_err());
        drop(second);
    }
}
