//! Status and result of a job (REQ-WD-8 to REQ-WD-15): answered from memory where its files were compared to it a moment
//! ago, else after a look at the files, which people may have edited.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use guild_contract::{JobStatus, rpc::ResultView};

use super::{JobStore, json};
use crate::{
    ended::EndedJob,
    error::StoreError,
    index::{Catalog, Entry, State},
    record::{self, META, Notes},
    records,
    sync::lock,
};

/// Bytes of [`Notes`] of ended jobs that are held in memory.
const MAX_NOTES_BYTES: usize = 32 * 1024 * 1024;

/// Bounds the memory that the notes of ended jobs take.
#[derive(Default)]
pub(super) struct NotesBudget(AtomicUsize);

impl NotesBudget {
    /// Makes room for more bytes. Where there is none, all notes are dropped, and read again when they are asked for.
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
    /// [`Self::status`], if memory shows what the files say. For an ended job it takes the state of four files, which is
    /// quicker than to hand the question to another thread; it opens none, and waits for nobody.
    pub fn status_now(&self, id: &str) -> Option<Bytes> {
        if self.catalog.is_stale() {
            return None;
        }
        let entry = self.catalog.read().get(id)?;
        let fresh_for = self.fresh_millis();
        let (meta, notes) = match &*lock(&entry.state) {
            State::Running(job) => return job.with_view(json).ok(),
            State::Ended(ended) if self.is_within(fresh_for, ended.checked) => return status_of(ended),
            State::Ended(ended) => (ended.fingerprint?, ended.notes.clone()?),
        };
        let jobs = self.context.jobs();
        if record::fingerprint(jobs, &entry.id, META) != Some(meta) || !notes.are_current(jobs, &entry.id) {
            return None;
        }
        match &mut *lock(&entry.state) {
            State::Running(_) => None,
            State::Ended(ended) => {
                ended.checked = self.context.millis();
                status_of(ended)
            }
        }
    }

    /// What `worker/status` answers: a [`StatusView`](guild_contract::rpc::StatusView) as JSON.
    pub fn status(&self, id: &str) -> Result<Bytes, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        if let Some(json) = self.status_now(id) {
            return Ok(json);
        }
        self.refresh(&entry)?;
        let (meta, before) = match &*lock(&entry.state) {
            State::Running(job) => return job.with_view(json),
            State::Ended(ended) => (ended.meta.clone(), ended.notes.clone()),
        };
        let jobs = self.context.jobs();
        let notes = before.clone().filter(|notes| notes.are_current(jobs, &entry.id)).unwrap_or_else(|| {
            let notes = Notes::read(jobs, &entry.id, &self.context.limits(), before.as_deref());
            self.notes.take(notes.bytes(), &self.catalog);
            Arc::new(notes)
        });
        let status = json(&notes.view(&meta))?;
        entry.update_ended(|ended| (ended.notes, ended.checked) = (Some(notes), self.context.millis()));
        Ok(status)
    }

    /// Compares `meta.json` of an ended job to what was read. A record that cannot be read, or that says that the job is
    /// running, leaves what is known. A job whose directory is gone is unknown. `entry.files` is held.
    pub(super) fn refresh(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (jobs, id) = (self.context.jobs(), &entry.id);
        let (known, unsaved) = match &*lock(&entry.state) {
            State::Running(_) => return Ok(()),
            State::Ended(ended) => {
                (ended.fingerprint, ended.fingerprint.is_none().then(|| (ended.meta.clone(), ended.unsaved.clone())))
            }
        };
        if let Some((meta, result)) = &unsaved {
            match self.store_end(meta, result.as_ref()) {
                Ok(stored) => self.update(entry, |ended| {
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
                let started_at = meta.started_at.clone();
                self.update(entry, |ended| (ended.meta, ended.fingerprint, ended.warning) = (meta, Some(read), None));
                let mut index = self.catalog.write();
                if index.get(id.as_str()).is_some() {
                    index.insert(entry.clone(), &started_at);
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
                    self.update(entry, |ended| ended.fingerprint = current);
                }
            }
        }
        Ok(())
    }

    /// What `worker/result` answers. Refused unless the job is completed (REQ-WD-14).
    pub fn result(&self, id: &str) -> Result<ResultView, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        let (status, error, unsaved) = match &*lock(&entry.state) {
            State::Running(_) => (JobStatus::Running, None, None),
            State::Ended(ended) => (ended.meta.status, ended.meta.error.clone(), ended.unsaved.clone()),
        };
        records::result(self.context.jobs(), &entry.id, (status, error.as_deref()), unsaved, &self.context.limits())
    }
}

/// The status of an ended job, where its notes are in memory.
fn status_of(ended: &EndedJob) -> Option<Bytes> {
    json(&ended.notes.as_ref()?.view(&ended.meta)).ok()
}

/// Logs what is wrong with an ended job's files, once for as long as it stays so.
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
    use crate::{StoreOptions, SystemClock};

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
        assert_eq!(store.status_now("a"), None);
        assert!(status("a").contains("the summary"));
        assert_eq!(held(), 1);
    }
}
