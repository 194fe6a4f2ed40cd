//! The streams of a cluster: their names, their subjects, and the shape that each needs.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use guild_contract::{JobId, MemberKey};

use crate::error::StoreError;

/// The logs of jobs: `guild.log.MEMBER.JOB`.
pub(crate) const LOG: &str = "guild_log";
/// Blobs, in chunks: `guild.blob.SHA256.N`.
pub(crate) const BLOBS: &str = "guild_blobs";
/// The presence of hosts: `$KV.guild_hosts.HOST`.
pub(crate) const HOSTS: &str = "KV_guild_hosts";
/// Notes: `$KV.guild_memory.SCOPE.KEY`.
pub(crate) const MEMORY: &str = "KV_guild_memory";
/// Published members: `$KV.guild_members.MEMBER`.
pub(crate) const MEMBERS: &str = "KV_guild_members";
/// The keys of dispatches: `$KV.guild_keys.DIGEST`.
pub(crate) const KEYS: &str = "KV_guild_keys";

/// The names of all streams.
pub(crate) const NAMES: [&str; 6] = [LOG, BLOBS, HOSTS, MEMORY, MEMBERS, KEYS];

/// How long the key of a dispatch is known.
const KEYS_AGE: Duration = Duration::from_secs(24 * 3600);
/// The window in which NATS looks for message ids, which are not used: the shortest that it accepts.
const NO_DUPLICATE_WINDOW: Duration = Duration::from_millis(100);
/// The consumers of a stream. NATS 2.15 allows 1000 if a stream does not say more; a host has some at each stream, and
/// those that it has lost are there for some seconds more.
const CONSUMERS: i32 = 10_000;
/// Bytes of one message with its headers, at most: NATS' default.
const MESSAGE_BYTES: i32 = 1024 * 1024;

/// The sizes of the streams.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// The number of nodes that have each message.
    pub replicas: usize,
    /// Bytes of all logs.
    pub log_bytes: i64,
    /// Bytes of all blobs.
    pub blob_bytes: i64,
    /// Bytes of each other stream.
    pub other_bytes: i64,
}

impl Default for Capacity {
    fn default() -> Self {
        let gibibyte = 1024 * 1024 * 1024;
        Self { replicas: 3, log_bytes: 16 * gibibyte, blob_bytes: 64 * gibibyte, other_bytes: gibibyte }
    }
}

/// All streams.
pub(crate) fn all(capacity: &Capacity) -> Vec<Config> {
    let stream = |name: &'static str, per_subject, max_bytes| Config {
        name: name.to_owned(),
        subjects: vec![subjects(name)],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        // A full stream refuses: no old record makes room for a new one.
        discard: DiscardPolicy::New,
        max_bytes,
        max_messages: -1,
        max_messages_per_subject: per_subject,
        max_consumers: CONSUMERS,
        max_message_size: MESSAGE_BYTES,
        num_replicas: capacity.replicas,
        duplicate_window: NO_DUPLICATE_WINDOW,
        allow_direct: true,
        deny_delete: true,
        ..Config::default()
    };
    let bucket = |name, per_subject| stream(name, per_subject, capacity.other_bytes);
    vec![
        Config { allow_message_ttl: true, allow_rollup: true, ..stream(LOG, -1, capacity.log_bytes) },
        Config { deny_delete: false, ..stream(BLOBS, 1, capacity.blob_bytes) },
        bucket(HOSTS, 1),
        bucket(MEMORY, 8),
        bucket(MEMBERS, 10),
        Config { max_age: KEYS_AGE, ..bucket(KEYS, 1) },
    ]
}

/// Compares a stream with the shape that it needs. Sizes and numbers of replicas are the administrator's.
pub(crate) fn check(stream: &'static str, found: &Config, needed: &Config) -> Result<(), StoreError> {
    let settings = [
        ("subjects", format!("{:?}", found.subjects), format!("{:?}", needed.subjects)),
        ("retention", format!("{:?}", found.retention), format!("{:?}", needed.retention)),
        ("storage", format!("{:?}", found.storage), format!("{:?}", needed.storage)),
        ("discard", format!("{:?}", found.discard), format!("{:?}", needed.discard)),
        ("max_age", format!("{:?}", found.max_age), format!("{:?}", needed.max_age)),
        ("max_msgs", found.max_messages.to_string(), needed.max_messages.to_string()),
        (
            "max_msgs_per_subject",
            found.max_messages_per_subject.to_string(),
            needed.max_messages_per_subject.to_string(),
        ),
        ("max_msg_size", found.max_message_size.to_string(), needed.max_message_size.to_string()),
        ("allow_direct", found.allow_direct.to_string(), needed.allow_direct.to_string()),
        ("allow_rollup_hdrs", found.allow_rollup.to_string(), needed.allow_rollup.to_string()),
        ("allow_msg_ttl", found.allow_message_ttl.to_string(), needed.allow_message_ttl.to_string()),
        ("deny_delete", found.deny_delete.to_string(), needed.deny_delete.to_string()),
    ];
    match settings.into_iter().find(|(_, found, needed)| found != needed) {
        Some((setting, found, needed)) => {
            Err(StoreError::Shape { stream, found: format!("{setting} {found}"), needed })
        }
        None => Ok(()),
    }
}

/// The subjects of a stream.
pub(crate) fn subjects(stream: &str) -> String {
    match stream {
        LOG => "guild.log.>".to_owned(),
        BLOBS => "guild.blob.>".to_owned(),
        bucket => format!("$KV.{}.>", bucket.strip_prefix("KV_").unwrap_or(bucket)),
    }
}

/// The stream's name as a constant.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|stream| *stream == name)
}

/// A member's key as one token of a subject: keys have no `=`, and tokens no `.`.
pub(crate) fn member_token(member: &MemberKey) -> String {
    member.as_str().replace('.', "=")
}

/// The subject of a job's log.
pub(crate) fn log_subject(member: &MemberKey, job: &JobId) -> String {
    format!("guild.log.{}.{job}", member_token(member))
}

/// The job of a log's subject.
pub(crate) fn job_of(subject: &str) -> Option<(MemberKey, JobId)> {
    let (member, job) = subject.strip_prefix("guild.log.")?.split_once('.')?;
    Some((member.replace('=', ".").parse().ok()?, job.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_member_and_job() {
        for member in ["researcher", "X/Y", "a.b--c"] {
            let (member, job): (MemberKey, JobId) = (member.parse().unwrap(), "j_1-Z".parse().unwrap());
            let subject = log_subject(&member, &job);
            assert_eq!(subject.split('.').count(), 4, "{subject}");
            assert_eq!(job_of(&subject), Some((member, job)));
        }
    }

    #[test]
    fn a_stream_of_another_shape_is_named_with_its_setting() {
        let needed = all(&Capacity::default()).remove(0);
        let found = Config { discard: DiscardPolicy::Old, ..needed.clone() };
        let error = check(LOG, &found, &needed).unwrap_err().to_string();
        assert!(error.contains("guild_log has discard Old where this host needs New"), "{error}");
        let larger = Config { max_bytes: 1, num_replicas: 1, ..needed.clone() };
        assert_eq!(check(LOG, &larger, &needed), Ok(()));
    }
}
