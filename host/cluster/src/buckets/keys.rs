//! The keys of dispatches: one key makes one job, whichever host a repeated dispatch reaches.

use std::time::Duration;

use async_nats::HeaderMap;
use guild_contract::text::hex;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{
    error::StoreError,
    link::{Link, Write, Written},
    log::{Append, JobName, Logs},
    record::Record,
    rules::Holder,
    streams::KEYS,
};

/// How long a write of a key is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// The keys of all dispatches of the last 24 hours.
#[derive(Clone)]
pub struct Keys {
    link: Link,
    logs: Logs,
}

/// A key of a caller.
#[derive(Clone, Copy, Debug)]
pub struct CallersKey<'a> {
    /// The name of the caller's token, if it has one. Callers have keys of their own.
    pub token: Option<&'a str>,
    /// The key.
    pub key: &'a str,
}

impl Keys {
    /// The keys of dispatches whose jobs have these logs.
    pub fn new(logs: Logs) -> Self {
        Self { link: logs.link().clone(), logs }
    }

    /// Gives the key to a job that is about to be made. Returns the job that has it: this one, or one that was made
    /// before. A job that was never made, or is deleted, gives its key up; it cannot be made any more then.
    ///
    /// # Errors
    ///
    /// Returns an error when the fate of a write is unknown.
    pub async fn claim(&self, key: CallersKey<'_>, new: &JobName) -> Result<JobName, StoreError> {
        let subject = subject(key, new);
        loop {
            let last = self.link.last(KEYS, &subject).await?;
            let expected = last.as_ref().map_or(0, |last| last.sequence);
            if let Some(last) = last {
                let job = String::from_utf8_lossy(&last.payload).parse();
                let damaged = |e| StoreError::Damaged(format!("the key at {subject} names no job: {e}"));
                let known = JobName { member: new.member.clone(), job: job.map_err(damaged)? };
                if known == *new || !is_free(&self.logs, &known).await? {
                    return Ok(known);
                }
            }
            let write = Write {
                stream: KEYS,
                subject: subject.clone(),
                expected,
                id: Uuid::new_v4().to_string(),
                headers: HeaderMap::new(),
                payload: new.job.to_string().into(),
            };
            match self.link.write(&write, PATIENCE).await? {
                Written::Stored { is_overtaken: false, .. } => return Ok(new.clone()),
                // Another host was faster, which the next read tells.
                Written::Stored { .. } | Written::Refused => {}
            }
        }
    }
}

/// Whether a job has no use for its key, for ever: it is deleted. One that was not made is deleted now, so that a birth
/// that is still on its way is refused.
async fn is_free(logs: &Logs, job: &JobName) -> Result<bool, StoreError> {
    let never = || Append { records: vec![Record::Gone], ..Append::default() };
    let (job, is_deleted) = logs.decide(job, 0, |job| (job.standing.holder == Holder::Unborn).then(never)).await?;
    Ok(is_deleted || job.standing.holder == Holder::Gone)
}

/// Keys may be long, and have any characters.
fn subject(key: CallersKey<'_>, job: &JobName) -> String {
    let mut digest = Sha256::new();
    for part in [job.member.as_str(), key.token.unwrap_or("\0"), key.key] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    format!("$KV.guild_keys.{}", hex(&digest.finalize()))
}
