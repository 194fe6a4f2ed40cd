//! Removes the blobs that no job and no published member names. Hosts may not remove anything, so this needs the
//! administrator's credentials.

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    buckets::members::Members,
    error::StoreError,
    link::Link,
    log::Logs,
    record::Content,
    rules::Holder,
    seal::Key,
    streams::{BLOBS, LOG, MEMBERS, job_of},
    watch::{Jobs, Seen, Watch},
};

/// The age of a blob that can be removed: a host that needs a blob of more than an hour again writes it anew.
pub const OLD: Duration = Duration::from_secs(24 * 3600);

/// The outcome of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The logs of ended jobs that were replaced by one message.
    pub compacted: usize,
    /// The blobs that are named.
    pub named: usize,
    /// The blobs that nothing names, and that are too new to be removed.
    pub new: usize,
    /// The blobs that were removed.
    pub removed: usize,
}

/// The chunks of a blob.
#[derive(Default)]
struct Chunks {
    /// The sequence of the last one.
    last: u64,
    /// When the newest was stored, in nanoseconds since 1970.
    stored: i128,
}

/// Replaces the logs of jobs that have ended, and removes blobs that are `old` and that nothing names. The seal's key tells which
/// publications of members count.
///
/// # Errors
///
/// Returns an error when something cannot be read, so that it might name a blob; nothing is removed then.
pub async fn sweep(link: &Link, logs: &Logs, key: &Key, old: Duration) -> Result<Swept, StoreError> {
    let mut swept = Swept { compacted: compact(link, logs).await?, ..Swept::default() };
    let mut named = HashSet::new();
    let mut messages = Watch::after(link.clone(), LOG, false, 0);
    while let Seen::Message(message) = messages.next().await {
        if job_of(&message.subject).is_some() {
            for mut record in Logs::records(&message)? {
                if let Some(Content::Blob(blob)) = record.content() {
                    named.insert(blob.sha256.clone());
                }
            }
        }
    }
    let mut publications = Watch::after(link.clone(), MEMBERS, false, 0);
    while let Seen::Message(message) = publications.next().await {
        let published = Members::opened(key, &message);
        named.extend(published.into_iter().flat_map(|published| published.files.into_values()).map(|blob| blob.sha256));
    }
    for (sha256, chunks) in blobs(link).await {
        match (named.contains(&sha256), age(chunks.stored) < old) {
            (true, _) => swept.named += 1,
            (false, true) => swept.new += 1,
            (false, false) => {
                // A chunk that is written anew meanwhile has a later sequence, and stays.
                link.purge(BLOBS, &format!("guild.blob.{sha256}.>"), chunks.last + 1).await?;
                swept.removed += 1;
            }
        }
    }
    Ok(swept)
}

/// Replaces the logs of ended jobs whose host did not.
async fn compact(link: &Link, logs: &Logs) -> Result<usize, StoreError> {
    let mut jobs = Jobs::latest(link.clone());
    let mut compacted = 0;
    while let Some(seen) = jobs.next().await {
        if seen.standing.holder == Holder::Ended && logs.compact(&seen.name).await? {
            compacted += 1;
        }
    }
    Ok(compacted)
}

/// All blobs, by their digests.
async fn blobs(link: &Link) -> BTreeMap<String, Chunks> {
    let mut chunks = Watch::after(link.clone(), BLOBS, true, 0);
    let mut found = BTreeMap::<String, Chunks>::new();
    while let Seen::Message(chunk) = chunks.next().await {
        if let Some(sha256) = chunk.subject.split('.').nth(2) {
            let blob = found.entry(sha256.to_owned()).or_default();
            (blob.last, blob.stored) = (blob.last.max(chunk.sequence), blob.stored.max(chunk.stored));
        }
    }
    found
}

/// The time since a moment in nanoseconds since 1970.
fn age(stored: i128) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(u64::try_from(stored).map_or(Duration::ZERO, Duration::from_nanos))
}
