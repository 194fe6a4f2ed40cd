//! Published members: an operator approves and publishes a member once, and every host has it, by the digests of its
//! files, under the cluster's seal.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::HeaderMap;
use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::MemberKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    blobs::{Blob, Blobs},
    error::StoreError,
    link::{Link, Message, Write, Written},
    seal::{Key, close, open},
    streams::{MEMBERS, member_token},
    watch::{Seen, Watch},
};

/// The kind of a member's seal.
const KIND: &str = "member";
/// The subjects of members.
const PREFIX: &str = "$KV.guild_members.";
/// How long a write is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a publication is made again because another one was faster.
const ATTEMPTS: usize = 8;

/// A member as it was published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The member.
    pub member: MemberKey,
    /// The number of the publication, which is greater than those of earlier ones: the milliseconds since 1970, unless
    /// that is too small. The seal covers it, so that nobody can have an earlier publication count as a new one.
    pub edition: u64,
    /// Its files, by their paths in the member's directory; none if it was withdrawn.
    pub files: BTreeMap<String, Blob>,
}

impl Published {
    /// Whether the member was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.files.is_empty()
    }
}

/// The published members of a cluster.
#[derive(Clone)]
pub struct Members {
    link: Link,
    blobs: Blobs,
    key: Key,
}

/// A change of the published members.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The member is published or withdrawn.
    Published(Published),
    /// A message under this name has no seal of this cluster, and is not believed.
    Unsealed(String),
}

impl Members {
    /// The members at the servers of a connection, sealed with a key.
    pub fn new(link: Link, key: Key) -> Self {
        Self { blobs: Blobs::new(link.clone()), link, key }
    }

    /// Publishes a member with these files, in place of an earlier publication.
    ///
    /// # Errors
    ///
    /// Returns an error when a file or the member cannot be stored.
    pub async fn publish(&self, member: &MemberKey, files: BTreeMap<String, Bytes>) -> Result<Published, StoreError> {
        let mut blobs = BTreeMap::new();
        for (path, content) in files {
            blobs.insert(path, self.blobs.put(content).await?);
        }
        self.write(member, blobs).await
    }

    /// Withdraws a member from all hosts; `None` if none of its name is published.
    ///
    /// # Errors
    ///
    /// Returns an error when that cannot be stored.
    pub async fn withdraw(&self, member: &MemberKey) -> Result<Option<Published>, StoreError> {
        let last = self.link.last(MEMBERS, &format!("{PREFIX}{}", member_token(member))).await?;
        // One without the seal has replaced another that hosts have.
        let is_withdrawn = |last| Self::opened(&self.key, &last).is_some_and(|last| last.is_withdrawn());
        if last.is_none_or(is_withdrawn) {
            return Ok(None);
        }
        self.write(member, BTreeMap::new()).await.map(Some)
    }

    async fn write(&self, member: &MemberKey, files: BTreeMap<String, Blob>) -> Result<Published, StoreError> {
        let subject = format!("{PREFIX}{}", member_token(member));
        let invalid = |reason: String| StoreError::Invalid { subject: subject.clone(), reason };
        let mut published = Published { member: member.clone(), edition: 0, files };
        for _ in 0..ATTEMPTS {
            let last = self.link.last(MEMBERS, &subject).await?;
            let expected = last.as_ref().map_or(0, |last| last.sequence);
            let before = last.and_then(|last| Self::opened(&self.key, &last)).map_or(0, |before| before.edition);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            published.edition = u64::try_from(now).unwrap_or(u64::MAX).max(before.saturating_add(1));
            let payload = close(&self.key, KIND, member.as_str(), &published);
            let payload = payload.map_err(|e| invalid(e.to_string()))?;
            let id = Uuid::new_v4().to_string();
            let (subject, headers) = (subject.clone(), HeaderMap::new());
            let write = Write { stream: MEMBERS, subject, expected, id, headers, payload };
            if matches!(self.link.write(&write, PATIENCE).await?, Written::Stored { .. }) {
                return Ok(published);
            }
        }
        Err(invalid("others publish the member at the same time; publish it again".to_owned()))
    }

    /// Writes a member's files into an empty directory.
    ///
    /// # Errors
    ///
    /// Returns an error when a file is missing or damaged, or cannot be written.
    pub async fn fetch(&self, published: &Published, into: &Dir) -> Result<(), StoreError> {
        for (path, blob) in &published.files {
            let failed = |e: io::Error| StoreError::File(format!("the member's file {path} cannot be written: {e}"));
            let content = self.blobs.get(blob).await?;
            if let Some(parent) = Path::new(path).parent() {
                into.create_dir_all(parent).map_err(failed)?;
            }
            into.write(path, content).map_err(failed)?;
        }
        Ok(())
    }

    /// The publication in a message; `None` if it has no seal of the key.
    pub(crate) fn opened(key: &Key, message: &Message) -> Option<Published> {
        let name = name(message);
        open(key, KIND, &name, &message.payload).filter(|published: &Published| published.member.as_str() == name)
    }

    /// Follows the publications: first the last one of each member.
    pub fn follow(&self) -> Publications {
        Publications { watch: Watch::latest(self.link.clone(), MEMBERS, false), key: self.key.clone() }
    }
}

/// The publications, as they come.
pub struct Publications {
    watch: Watch,
    key: Key,
}

impl Publications {
    /// The next change; `None` once all publications of before were seen. Waits as long as the store is away.
    pub async fn next(&mut self) -> Option<Change> {
        match self.watch.next().await {
            Seen::CaughtUp => None,
            Seen::Message(message) => Some(
                Members::opened(&self.key, &message)
                    .map_or_else(|| Change::Unsealed(name(&message)), Change::Published),
            ),
        }
    }
}

/// The name of a message's member.
fn name(message: &Message) -> String {
    message.subject.strip_prefix(PREFIX).unwrap_or_default().replace('=', ".")
}
