//! Blobs: contents that are too large for a record, named by their SHA-256, so that nobody can replace one by another.
//!
//! NATS' object store is not used: it has no condition, and its `put` purges, which hosts must not be able to do. A blob
//! is a row of chunks on subjects of its own. The first chunk is written last: where it is, all are.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::HeaderMap;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use guild_contract::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    error::StoreError,
    link::{Link, Message, Write},
    streams::BLOBS,
};

/// Bytes of a chunk.
const CHUNK: usize = 512 * 1024;
/// The chunks that are on their way at once.
const AT_ONCE: usize = 4;
/// How long a write of a chunk is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a chunk may be missing at a server that lags, and the pause before it is read again.
const LAG: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);
/// A blob of this age is written anew when it is needed again, so that a sweep of old blobs passes it over.
const RENEWED_AFTER: Duration = Duration::from_secs(3600);
/// Bytes of a blob, at most.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// The name of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blob {
    /// The SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// Bytes of the content.
    pub bytes: u64,
}

impl Blob {
    /// The name of this content.
    pub fn of(content: &[u8]) -> Self {
        Self { sha256: hex(&Sha256::digest(content)), bytes: content.len() as u64 }
    }

    fn subject(&self, chunk: usize) -> String {
        format!("guild.blob.{}.{chunk}", self.sha256)
    }

    fn chunks(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX).div_ceil(CHUNK).max(1)
    }
}

/// The blobs of a cluster. It is cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    link: Link,
}

impl Blobs {
    /// The blobs at the servers of a connection.
    pub fn new(link: Link) -> Self {
        Self { link }
    }

    /// Stores a content, and returns its name. A content that is there already is not sent again.
    ///
    /// # Errors
    ///
    /// Returns an error when the content is too large, or cannot be stored.
    pub async fn put(&self, content: Bytes) -> Result<Blob, StoreError> {
        let blob = Blob::of(&content);
        let first = self.link.last(BLOBS, &blob.subject(0)).await?;
        if first.as_ref().is_some_and(is_new) {
            return Ok(blob);
        }
        let write = async |index: usize| {
            let there = self.link.last(BLOBS, &blob.subject(index)).await?;
            if there.as_ref().is_some_and(is_new) {
                return Ok(());
            }
            let from = index * CHUNK;
            let write = Write {
                stream: BLOBS,
                subject: blob.subject(index),
                expected: there.map_or(0, |there| there.sequence),
                id: format!("{}.{}", blob.sha256, Uuid::new_v4()),
                headers: HeaderMap::new(),
                payload: content.slice(from..content.len().min(from + CHUNK)),
            };
            // A refusal tells that another host has just written the same chunk.
            self.link.write(&write, PATIENCE).await.map(|_| ())
        };
        stream::iter((1..blob.chunks()).map(write)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        write(0).await?;
        Ok(blob)
    }

    /// A content, for a chunk of which it waits for a moment.
    ///
    /// # Errors
    ///
    /// Returns an error when the content is missing or damaged, or cannot be read.
    pub async fn get(&self, blob: &Blob) -> Result<Vec<u8>, StoreError> {
        let damaged = |what: &str| {
            let sha256 = &blob.sha256;
            StoreError::Damaged(format!(
                "the blob {sha256} is {what} in {BLOBS}; restore that stream from a backup of NATS"
            ))
        };
        if blob.bytes > MAX_BYTES {
            return Err(damaged("larger than blobs can be"));
        }
        // A server that lags may lack a chunk that others have.
        let read = async |index| {
            let begun = Instant::now();
            loop {
                let chunk = self.link.last(BLOBS, &blob.subject(index)).await?;
                if chunk.is_some() || begun.elapsed() > LAG {
                    return Ok::<_, StoreError>(chunk);
                }
                sleep(PAUSE).await;
            }
        };
        let mut chunks = stream::iter((0..blob.chunks()).map(read)).buffered(AT_ONCE);
        let mut content = Vec::new();
        while let Some(chunk) = chunks.try_next().await? {
            content.extend_from_slice(&chunk.ok_or_else(|| damaged("missing"))?.payload);
        }
        if Blob::of(&content) == *blob { Ok(content) } else { Err(damaged("damaged")) }
    }
}

/// Whether no sweep can remove a chunk soon.
fn is_new(chunk: &Message) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let stored = u64::try_from(chunk.stored).map_or(Duration::ZERO, Duration::from_nanos);
    now.saturating_sub(stored) < RENEWED_AFTER
}
