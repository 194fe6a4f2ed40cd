//! Published members: an operator approves and publishes a member once, and every host has it, by the digests of its
//! files, under the cluster's seal.

use std::{collections::BTreeMap, io, path::Path, time::Duration};

use async_nats::HeaderMap;
use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::{MemberKey, text::hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
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
    /// Its files, by their paths in the member's directory; none if it was withdrawn.
    pub files: BTreeMap<String, Blob>,
    /// The approval of the member, in the form of the host that published it.
    pub approvals: Value,
}

impl Published {
    /// The digest of the files and the approvals, by which hosts compare.
    pub fn digest(&self) -> String {
        hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
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
    /// The member is published, in this form.
    Published(Published),
    /// The member is published no more.
    Withdrawn(MemberKey),
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
    pub async fn publish(
        &self,
        member: &MemberKey,
        files: BTreeMap<String, Bytes>,
        approvals: Value,
    ) -> Result<Published, StoreError> {
        let mut blobs = BTreeMap::new();
        for (path, content) in files {
            blobs.insert(path, self.blobs.put(content).await?);
        }
        let published = Published { member: member.clone(), files: blobs, approvals };
        self.write(&published).await?;
        Ok(published)
    }

    /// Withdraws a member from all hosts.
    ///
    /// # Errors
    ///
    /// Returns an error when that cannot be stored.
    pub async fn withdraw(&self, member: &MemberKey) -> Result<(), StoreError> {
        self.write(&Published { member: member.clone(), files: BTreeMap::new(), approvals: Value::Null }).await
    }

    async fn write(&self, published: &Published) -> Result<(), StoreError> {
        let subject = format!("{PREFIX}{}", member_token(&published.member));
        let invalid = |reason: String| StoreError::Invalid { subject: subject.clone(), reason };
        let payload = close(&self.key, KIND, published.member.as_str(), published);
        let payload = payload.map_err(|e| invalid(e.to_string()))?;
        for _ in 0..ATTEMPTS {
            let expected = self.link.last(MEMBERS, &subject).await?.map_or(0, |last| last.sequence);
            let id = Uuid::new_v4().to_string();
            let (subject, payload, headers) = (subject.clone(), payload.clone(), HeaderMap::new());
            let write = Write { stream: MEMBERS, subject, expected, id, headers, payload };
            if matches!(self.link.write(&write, PATIENCE).await?, Written::Stored { .. }) {
                return Ok(());
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
            let failed = |e: io::Error| StoreError::Damaged(format!("the member's file {path} cannot be written: {e}"));
            let content = self.blobs.get(blob).await?;
            if let Some(parent) = Path::new(path).parent() {
                into.create_dir_all(parent).map_err(failed)?;
            }
            into.write(path, content).map_err(failed)?;
        }
        Ok(())
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
            Seen::Message(message) => Some(self.change(&message)),
        }
    }

    fn change(&self, message: &Message) -> Change {
        let name = message.subject.strip_prefix(PREFIX).unwrap_or_default().replace('=', ".");
        let published: Option<Published> = open(&self.key, KIND, &name, &message.payload);
        match published.filter(|published| published.member.as_str() == name) {
            None => Change::Unsealed(name),
            Some(published) if published.files.is_empty() => Change::Withdrawn(published.member),
            Some(published) => Change::Published(published),
        }
    }
}
