//! Finds and removes directories of `jobs/` that are not jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, OnceLock},
};

use cap_std::fs::Dir;
use guild_contract::JobId;
use guild_fs::tree;

use crate::sync::lock;

/// Directories that are to be removed: incomplete jobs, and deleted ones.
#[derive(Default)]
pub(super) struct Trash {
    /// The directories that could not be removed yet.
    remaining: Mutex<BTreeSet<String>>,
}

impl Trash {
    /// Removes a directory. After a failure, it is tried again later.
    pub(super) fn remove(&self, jobs: &Dir, name: &str) {
        let removed = tree::remove(jobs, name);
        let mut remaining = lock(&self.remaining);
        match removed {
            Ok(()) => drop(remaining.remove(name)),
            Err(e) => {
                if remaining.insert(name.to_owned()) {
                    tracing::warn!(name, "cannot remove a directory of jobs/, trying again later: {e}");
                }
            }
        }
    }

    /// Tries again to remove the remaining directories.
    pub(super) fn retry(&self, jobs: &Dir) {
        let names = lock(&self.remaining).clone();
        names.iter().for_each(|name| self.remove(jobs, name));
    }
}

/// Directories without a readable `meta.json`, which a person may be about to complete.
#[derive(Default)]
pub(super) struct Unreadable {
    reasons: Mutex<BTreeMap<JobId, String>>,
    /// The directories that were there when the store was loaded.
    at_load: OnceLock<BTreeSet<JobId>>,
}

impl Unreadable {
    /// Records a directory, and logs the reason if it is new.
    pub(super) fn insert(&self, id: &JobId, reason: String) {
        let before = lock(&self.reasons).insert(id.clone(), reason.clone());
        if before.as_ref() != Some(&reason) {
            tracing::warn!(job = %id, "leaving out a directory that is not a job: {reason}");
        }
    }

    pub(super) fn remove(&self, id: &JobId) {
        lock(&self.reasons).remove(id);
    }

    /// All directories, with the reasons.
    pub(super) fn all(&self) -> Vec<(JobId, String)> {
        lock(&self.reasons).clone().into_iter().collect()
    }

    /// Marks the recorded directories as there when the store was loaded.
    pub(super) fn mark_loaded(&self) {
        let _ = self.at_load.set(lock(&self.reasons).keys().cloned().collect());
    }

    /// Whether a directory was there when the store was loaded.
    pub(super) fn was_at_load(&self, id: &JobId) -> bool {
        self.at_load.get().is_some_and(|ids| ids.contains(id))
    }
}
