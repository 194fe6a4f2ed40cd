//! What becomes of interrupted jobs of a member that is about to be approved.

use std::{io, sync::Arc};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits};
use guild_jobs::{JobStore, OwnerLock, Resume, RunningJob, Sealed, StoreOptions, SystemClock};
use guild_session::transcript::Entry;

/// Ends the jobs that a member's directory has as left running, before the member is approved: else what it brings along
/// would go on at the next start. A host that serves the member meanwhile has ended them, or they are its own.
///
/// # Errors
/// Where they cannot be ended, or a process works on the member that leaves them to the next host.
pub fn end_before_approval(member: &Dir, limits: &Arc<Limits>) -> Result<(), String> {
    match member.symlink_metadata("jobs") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    let failed = |e: io::Error| format!("the jobs that are in its directory cannot be looked at: {e}");
    match OwnerLock::try_acquire(member, "").map_err(failed)? {
        Ok(_owner) => {
            let options = StoreOptions { limits: limits.clone(), clock: Arc::new(SystemClock) };
            let store = JobStore::open(member, options).map_err(failed)?;
            store.set_resume(Arc::new(Unapproved));
            store.recover().map_err(failed)
        }
        Err(owner) if owner.url.is_empty() => {
            Err(format!("process {} works on it; try again when that has ended", owner.pid))
        }
        Err(_) => Ok(()),
    }
}

/// Goes on with nothing.
struct Unapproved;

impl Resume for Unapproved {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        Err("it was there before the member was approved as it is, and does not go on".to_owned())
    }

    /// None gets here.
    fn resume(&self, _: Arc<RunningJob>) {}
}
