//! Decides about the jobs of a member that several hosts serve.
//!
//! A host on its own has no ledger: the member's directory decides about its jobs, and whoever owns the directory owns
//! them. Hosts of a cluster share a ledger. Each job has a log there, which only the job's holder appends to, until the
//! job ends; its directory on a host is working space.

use std::{
    fmt::{self, Debug, Formatter},
    sync::Arc,
};

use async_trait::async_trait;
use cap_std::fs::Dir;
use guild_contract::{JobId, Meta};
use serde::{Deserialize, Serialize};

use crate::{Accepted, error::Refused, events::JobEvent, files::record};

/// The most bytes of a [`Head`] as JSON.
pub const HEAD_BYTES: usize = 2 * 1024;

/// The picture of a job that each host has, wherever the job is carried out. As JSON it has at most [`HEAD_BYTES`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The job's record. Long texts are cut.
    pub meta: Meta,
    /// The beginning of the worker's summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl Head {
    /// The picture of a job with this record and this summary. Their texts are cut until the picture is small enough,
    /// the description last.
    pub fn new(meta: &Meta, summary: Option<&str>) -> Self {
        let mut bytes = record::HEAD_BYTES as usize;
        loop {
            let cut = |text: &str| record::head(text, bytes).to_owned();
            let meta = Meta { error: meta.error.as_deref().map(cut), ..meta.clone() };
            let mut head = Self { meta, summary: summary.map(cut) };
            if head.is_small() {
                return head;
            }
            if bytes == 0 {
                head.shrink();
                return head;
            }
            bytes /= 2;
        }
    }

    fn is_small(&self) -> bool {
        serde_json::to_vec(self).is_ok_and(|json| json.len() <= HEAD_BYTES)
    }

    /// Cuts the description, and the names of models, of a picture without other texts.
    fn shrink(&mut self) {
        let mut bytes = self.meta.description.len();
        while !self.is_small() && bytes > 0 {
            bytes /= 2;
            self.meta.description = record::head(&self.meta.description, bytes).to_owned();
            if let Some(used) = &mut self.meta.usage {
                used.models.truncate(1);
            }
        }
    }
}

/// A change of one of a job's files. Paths are relative to the job's directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// The file has this content.
    Put(String, Vec<u8>),
    /// The file has more content at its end.
    Add(String, Vec<u8>),
    /// The file is removed.
    Remove(String),
}

impl Debug for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(file, content) => write!(f, "Put({file}, {} bytes)", content.len()),
            Self::Add(file, content) => write!(f, "Add({file}, {} bytes)", content.len()),
            Self::Remove(file) => write!(f, "Remove({file})"),
        }
    }
}

/// The last changes of a job's files by its holder, or by a host that decides about a job it does not hold.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The changes.
    pub changes: Vec<Change>,
    /// The picture of the job afterwards; `None` if the job is deleted.
    pub head: Option<Head>,
    /// The event that others are told of.
    pub event: JobEvent,
}

/// A new job.
#[derive(Debug)]
pub struct Birth<'a> {
    /// The job.
    pub job: &'a JobId,
    /// Its accepted plan, which tells what a host needs to carry it out.
    pub plan: &'a Accepted,
    /// All its files.
    pub files: Vec<Change>,
    /// Its picture.
    pub head: Head,
    /// The event of its creation.
    pub event: JobEvent,
}

/// The ledger of a member's jobs. All methods block, except [`Hold::record`], [`Hold::show`], [`Hold::announce`]
/// and the asynchronous ones. None of them may call the store.
pub trait Ledger: Send + Sync {
    /// Makes a job, which this host holds. Once this returns, the job exists for all hosts.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if there is such a job already. After [`Refused::Unavailable`], there may be the job.
    fn begin(&self, birth: Birth<'_>) -> Result<Arc<dyn Hold>, Refused>;

    /// Decides about a job that this host does not hold. `decide` is given the job's picture as its log has it, and is
    /// asked again when others append meanwhile; without a decision, nothing changes. Returns the picture that the last
    /// decision was made from, and whether it was stored.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if there is no such job.
    fn decide(&self, job: &JobId, decide: &(dyn Fn(&Head) -> Option<Decision> + Sync))
    -> Result<(Head, bool), Refused>;

    /// Writes the files of a job into a directory, which has none of them; only those that are `wanted`.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if there is no such job.
    fn fetch(&self, job: &JobId, wanted: &(dyn Fn(&str) -> bool + Sync), into: &Dir) -> Result<(), Refused>;
}

/// The right to carry a job out, and to append to its log. What was not settled when it is dropped may not be stored.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Whether the last holder stopped without giving the job back. A job that is begun, or that waited, was not
    /// interrupted.
    fn is_interrupted(&self) -> bool;

    /// Appends a change, in the order of the calls. It is stored a moment later.
    fn record(&self, change: Change);

    /// Sets the picture of the job.
    fn show(&self, head: &Head);

    /// Tells others of an event, once the changes before it are stored.
    fn announce(&self, event: &JobEvent);

    /// Waits until all that was appended is stored.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if the job is not this host's any more.
    async fn settled(&self) -> Result<(), Refused>;

    /// Waits until the holder may ask a model for a turn. False if its host is about to stop, and the job has to be given
    /// back.
    async fn may_go_on(&self) -> bool;

    /// Waits until the holder's host is about to stop, and the job has to be given back.
    async fn recalled(&self);

    /// Ends the job with its last changes, and waits until that is stored. It blocks as long as the ledger does not
    /// answer.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if the job is not this host's any more. Nothing of the changes is stored then.
    fn end(&self, last: Decision) -> Result<(), Refused>;

    /// Gives the job back with all that was appended, so that another host can take it. It blocks.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if the job is not this host's any more.
    fn release(&self, why: &str) -> Result<(), Refused>;
}

/// The news of a job, as a host hears it from the ledger.
#[derive(Clone, Debug)]
pub struct News {
    /// The picture of the job; `None` if it is deleted.
    pub head: Option<Head>,
    /// Whether this host holds the job after the change, or has taken it since: news that is older than the append by
    /// which the host took the job must not make it stop.
    pub is_held: bool,
}
