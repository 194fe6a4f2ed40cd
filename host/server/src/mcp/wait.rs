//! Waits for the end of a job.

use guild_contract::JobId;
use guild_roster::members::member::Member;

use super::Progress;

/// Waits until a job has ended or was deleted, and reports its worker's summaries as progress.
pub(super) async fn until_ended(member: &Member, job: &JobId, progress: Option<&Progress>) {
    let Some(mut job) = member.store().follow(job.as_str()) else { return };
    let mut last = None;
    loop {
        if let Some(progress) = progress {
            let summary = job.snapshot().summary;
            if summary != last
                && let Some(summary) = &summary
            {
                progress(summary.clone());
            }
            last = summary;
        }
        if !job.changed().await {
            return;
        }
    }
}
