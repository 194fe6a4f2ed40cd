//! Knows a repeated dispatch by its key, so that a caller that got no answer can ask again.
//!
//! A job's record has the key of its dispatch, so a key is known for as long as the job is, and at most for a day.

use std::sync::Arc;

use guild_contract::{DispatchKey, JobId};
use jiff::{SignedDuration, Timestamp};

use super::JobStore;
use crate::{error::StoreError, sync::lock};

/// The time for which a key is known after the job was made.
const KNOWN: SignedDuration = SignedDuration::from_hours(24);

/// A caller's token, if it has one, and a key of its choice. Callers with other tokens have keys of their own.
pub(super) type CallersKey = (Option<String>, String);

/// The answer to a dispatch with a key.
pub enum Keyed {
    /// No job of the caller has the key. The claim is dropped once there is a job, or once the dispatch has failed.
    New(KeyClaim),
    /// An earlier dispatch with the key made this job.
    Repeated(JobId),
    /// Another dispatch with the key has not been answered yet.
    UnderWay,
}

/// The claim of a key, by a dispatch that has made no job yet.
pub struct KeyClaim {
    store: Arc<JobStore>,
    key: CallersKey,
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        lock(&self.store.claimed_keys).remove(&self.key);
    }
}

impl JobStore {
    /// Claims the key of a dispatch for the caller with that token, or finds the job of an earlier dispatch. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when an earlier dispatch with the key had other parameters.
    pub fn claim_key(self: &Arc<Self>, token: Option<&str>, key: &DispatchKey) -> Result<Keyed, StoreError> {
        let callers: CallersKey = (token.map(str::to_owned), key.key.clone());
        self.ensure_loaded();
        // The key is claimed before the index is read, so that no other dispatch can make a job in between.
        if !lock(&self.claimed_keys).insert(callers.clone()) {
            return Ok(Keyed::UnderWay);
        }
        let claim = KeyClaim { store: self.clone(), key: callers };
        let Some(entry) = self.catalog.read().with_key(&claim.key) else { return Ok(Keyed::New(claim)) };
        let files = lock(&entry.files);
        let is_there = self.refresh(&entry).is_ok();
        drop(files);
        let (started, params) =
            entry.with_meta(|meta| (meta.started_at.parse(), meta.key.as_ref().map(|known| known.params.clone())));
        let age = started.map(|at: Timestamp| self.context.clock.now().duration_since(at));
        if !is_there || age.is_ok_and(|age| age >= KNOWN) {
            return Ok(Keyed::New(claim));
        }
        if params.as_ref() != Some(&key.params) {
            return Err(StoreError::Refused(format!(
                "`key` {:?} stands for the job {}, whose dispatch had other parameters; choose another key for a new job",
                key.key, entry.id
            )));
        }
        Ok(Keyed::Repeated(entry.id.clone()))
    }
}
