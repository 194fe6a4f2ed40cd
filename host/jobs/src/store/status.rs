//! Answers with status and result of a job (REQ-WD-8 to REQ-WD-15): from memory if that was compared to the files a
//! moment ago, else from the files, which people may have edited.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use guild_contract::{
    JobStatus,
    rpc::{ResultView, StatusView},
};

use super::{
    JobStore,
    index::{Catalog, Entry, State},
    json,
};
use crate::{
    error::StoreError,
    files::{
        reader,
        record::{self, META, Notes},
    },
    sync::lock,
};

/// Bytes of [`Notes`] of ended jobs that are kept in memory, measured as JSON.
const MAX_NOTES_BYTES: usize = 32 * 1024 * 1024;

/// Bounds the memory for the notes of ended jobs.
#[derive(Default)]
pub(super) struct NotesBudget(AtomicUsize);

impl NotesBudget {
    /// Makes room for more bytes. If there is none, all notes are dropped, and read again when they are asked for.
    fn take(&self, bytes: usize, catalog: &Catalog) {
        if self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MAX_NOTES_BYTES {
            return;
        }
        self.0.store(bytes, Ordering::Relaxed);
        let entries = catalog.read().entries();
        for entry in entries {
            entry.update_ended(|ended| ended.notes = None);
        }
    }
}

impl JobStore {
    /// [`Self::status`] of a job whose status is in memory and fresh. This reads no files, so it needs no thread that
    /// may block.
    pub fn status_now(&self, id: &str) -> Option<Bytes> {
        json(&self.view_now(id)?).ok()
    }

    /// [`Self::view`] of a job whose status is in memory and fresh.
    fn view_now(&self, id: &str) -> Option<StatusView> {
        // The lock of the index is released in between: a second read lock would wait for a writer that waits for the
        // first.
        let entry = self.catalog.read().get(id)?;
        let is_fresh = self.freshness();
        match &*lock(&entry.state) {
            State::Running(job) => Some(job.snapshot()),
            State::Elsewhere(job) => job.notes.is_some().then(|| job.view()),
            State::Ended(ended) if is_fresh(ended.checked) || self.context.ledger.is_some() => {
                Some(ended.notes.as_ref()?.0.view(&ended.meta))
            }
            State::Ended(_) => None,
        }
    }

    /// The answer of `worker/status`: a [`StatusView`] as JSON.
    pub fn status(&self, id: &str) -> Result<Bytes, StoreError> {
        match self.status_now(id) {
            Some(status) => Ok(status),
            None => json(&self.view(id)?),
        }
    }

    /// The status of a job.
    pub fn view(&self, id: &str) -> Result<StatusView, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        if let Some(view) = self.view_now(id) {
            return Ok(view);
        }
        match self.fetch_notes(&entry) {
            // While the ledger is away, its last picture of the job is the answer.
            Err(StoreError::Unavailable(_)) => return Ok(entry.snapshot()),
            fetched => fetched?,
        }
        self.refresh(&entry)?;
        let (meta, known) = match &*lock(&entry.state) {
            State::Running(job) => return Ok(job.snapshot()),
            State::Elsewhere(job) => return Ok(job.view()),
            State::Ended(ended) => (ended.meta.clone(), ended.notes.clone()),
        };
        let jobs = &self.context.jobs;
        let notes = match known {
            Some(notes) if notes.1 == record::note_files(jobs, &entry.id) => notes,
            outdated => {
                let outdated = outdated.as_ref().map(|notes| &notes.0);
                let notes = Notes::read(jobs, &entry.id, &self.context.limits(), outdated);
                self.notes.take(json(&notes.0.view(&meta))?.len(), &self.catalog);
                Arc::new(notes)
            }
        };
        let view = notes.0.view(&meta);
        entry.update_ended(|ended| (ended.notes, ended.checked) = (Some(notes), self.context.millis()));
        self.context.changed();
        Ok(view)
    }

    /// Reads `meta.json` of an ended job if it changed. A record that cannot be read, or has the status `running`, is
    /// ignored. A job without its directory becomes unknown. `entry.files` is held.
    pub(super) fn refresh(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        if self.context.ledger.is_some() {
            return Ok(());
        }
        let (jobs, id) = (&self.context.jobs, &entry.id);
        let (known, unsaved) = match &*lock(&entry.state) {
            State::Running(_) | State::Elsewhere(_) => return Ok(()),
            State::Ended(ended) => {
                (ended.fingerprint, ended.fingerprint.is_none().then(|| (ended.meta.clone(), ended.unsaved.clone())))
            }
        };
        if let Some((meta, result)) = &unsaved {
            match self.store_end(meta, result.as_ref()) {
                Ok(stored) => entry.update_ended(|ended| {
                    (ended.fingerprint, ended.unsaved, ended.warning) = (Some(stored), None, None);
                }),
                Err(e) => warn_once(entry, format!("cannot store the end of the job, trying again later: {e}")),
            }
        }
        let current = record::fingerprint(jobs, id, META);
        if current.is_none() && !self.exists(id) {
            self.forget(id);
            return Err(StoreError::Unknown(id.to_string()));
        }
        if unsaved.is_some() || current == known {
            return Ok(());
        }
        match record::read_meta(jobs, id, &self.context.limits()) {
            Ok((meta, read)) if meta.status != JobStatus::Running => {
                entry.update_ended(|ended| {
                    (ended.meta, ended.fingerprint, ended.warning) = (meta, Some(read), None);
                });
                let mut index = self.catalog.write();
                if index.get(id.as_str()).is_some() {
                    index.insert(entry.clone());
                }
            }
            outcome => {
                let is_transient = outcome.as_ref().is_err_and(record::is_transient);
                let reason = match outcome {
                    Ok(_) => "it says that the job is running, which has ended".to_owned(),
                    Err(e) => e.to_string(),
                };
                warn_once(entry, format!("ignoring an edit of {META}: {reason}"));
                if !is_transient && current.is_some() {
                    entry.update_ended(|ended| ended.fingerprint = current);
                }
            }
        }
        Ok(())
    }

    /// The answer of `worker/result`; refused unless the job is completed (REQ-WD-14).
    pub fn result(&self, id: &str) -> Result<ResultView, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        self.fetch_ended(&entry)?;
        self.refresh(&entry)?;
        let (meta, unsaved) = match &*lock(&entry.state) {
            State::Running(job) => (job.look(|meta, _| meta.clone()), None),
            State::Elsewhere(job) => (job.head.meta.clone(), None),
            State::Ended(ended) => (ended.meta.clone(), ended.unsaved.clone()),
        };
        reader::result(&self.context.jobs, &meta, unsaved.as_ref(), &self.context.limits())
    }
}

/// Logs a warning about an ended job's files, once until it changes.
fn warn_once(entry: &Entry, warning: String) {
    entry.update_ended(|ended| {
        if ended.warning.as_ref() != Some(&warning) {
            tracing::warn!(job = %entry.id, "{warning}");
            ended.warning = Some(warning);
        }
    });
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;
    use crate::StoreOptions;
    use guild_fs::clock::SystemClock;

    #[test]
    fn notes_that_no_longer_fit_are_dropped_and_read_again() {
        let dir = TempDir::new(ambient_authority()).unwrap();
        for id in ["a", "b"] {
            dir.create_dir_all(format!("jobs/{id}")).unwrap();
            let meta = r#"{"jobId":"x","status":"completed","description":"d","startedAt":"2026-01-01T00:00:00Z"}"#;
            dir.write(format!("jobs/{id}/meta.json"), meta).unwrap();
            dir.write(format!("jobs/{id}/status.md"), "the summary").unwrap();
        }
        let store =
            JobStore::open(&dir, StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) }).unwrap();
        let status = |id| String::from_utf8(store.status(id).unwrap().to_vec()).unwrap();
        let held = || {
            let index = store.catalog.read();
            let has_notes = |entry: &Arc<Entry>| matches!(&*lock(&entry.state), State::Ended(e) if e.notes.is_some());
            index.entries().iter().filter(|entry| has_notes(entry)).count()
        };
        assert!(status("a").contains("the summary") && status("b").contains("the summary"));
        let taken = store.notes.0.load(Ordering::Relaxed);
        assert_eq!(held(), 2);
        store.notes.take(MAX_NOTES_BYTES - taken, &store.catalog);
        assert_eq!(held(), 2, "exactly the limit fits");
        store.notes.take(1, &store.catalog);
        assert_eq!((held(), store.notes.0.load(Ordering::Relaxed)), (0, 1));
        assert!(status("a").contains("the summary"));
        assert_eq!(held(), 1);
    }
}
