//! Does what members need from time to time: removes the ended jobs that `[retention]` of `guild.toml` does not keep, and
//! measures what each member takes on disk.

use std::{sync::Arc, time::Duration};

use guild_contract::Retention;
use tokio::task::spawn_blocking;

use crate::members::{member::Member, opener::Opener, roster::MemberEntry};

/// The pause between two rounds.
const EVERY: Duration = Duration::from_secs(600);

/// Applies the present rule to all members and measures them, now and after each pause.
pub(crate) async fn run(opener: Arc<Opener>) {
    loop {
        once(&opener).await;
        tokio::time::sleep(EVERY).await;
    }
}

/// One round. No member is held after it: a removed member is owned until its last reference is dropped.
async fn once(opener: &Opener) {
    let rule = opener.context().config.retention;
    let members = opener.roster.now().members();
    for member in members.values().filter_map(MemberEntry::member) {
        if rule.bounds_anything() {
            apply(member, rule).await;
        }
        let data = member.data.clone();
        let _ = spawn_blocking(move || data.measure()).await;
    }
}

async fn apply(member: &Arc<Member>, rule: Retention) {
    let (key, store) = (member.key().clone(), member.store().clone());
    let Ok(report) = spawn_blocking(move || store.retain(&rule)).await else { return };
    if !report.removed.is_empty() {
        let (jobs, bytes) = (report.removed.len(), report.bytes);
        tracing::info!(member = %key, jobs, bytes, "removed ended jobs that [retention] does not keep");
    }
    for (job, why) in report.failed {
        tracing::warn!(member = %key, %job, "cannot remove a job that [retention] does not keep: {why}");
    }
}
