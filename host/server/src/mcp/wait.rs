//! Waiting for a job.

use guild_contract::JobId;
use guild_roster::member::Member;

/// Waits until a job has ended, or is gone. What its worker says of its progress meanwhile is told.
pub(super) async fn until_ended(member: &Member, job: &JobId, told: Option<&(dyn Fn(String) + Send + Sync)>) {
    let Some(running) = member.store().running(job.as_str()) else { return };
    let mut changes = running.changes();
    let mut last = None;
    loop {
        let Some(running) = member.store().running(job.as_str()) else { return };
        if let Some(told) = told {
            let summary = running.snapshot().summary;
            if summary != last
                && let Some(summary) = &summary
            {
                told(summary.clone());
            }
            last = summary;
        }
        drop(running);
        if changes.changed().await.is_err() {
            return;
        }
    }
}
