//! Appends what a running job does to its log in the ledger, where several hosts serve the member.

use std::{io, sync::Arc};

use cap_std::fs::Dir;
use guild_contract::Meta;
use guild_fs::{durable::if_there, tree::walk};

use super::{Files, RunningJob};
use crate::{
    error::StoreError,
    files::{
        artifacts::{self, ARTIFACTS},
        record::{self, META, Notes, RESULT, SUBMISSION},
    },
    ledger::{Change, Decision, Head, Hold, Refused},
    running::ended::{EndedJob, end_of},
    sync::lock,
};

/// All files of a job's directory.
pub(crate) fn files_of(dir: &Dir) -> io::Result<Vec<Change>> {
    let mut files = Vec::new();
    for found in walk(dir) {
        let found = found?;
        if let (true, Some(path)) = (found.kind.is_file(), found.path.to_str()) {
            files.push(Change::Put(path.to_owned(), dir.read(&found.path)?));
        }
    }
    Ok(files)
}

/// The error for the host that held the job.
fn refused_here(refused: Refused) -> StoreError {
    match refused {
        Refused::Lost => StoreError::Lost,
        Refused::Unavailable(text) => StoreError::Unavailable(text),
    }
}

impl RunningJob {
    /// The picture of the job.
    pub(super) fn head(&self) -> Head {
        self.look(|meta, notes| Head::new(meta, notes.summary.as_deref()))
    }

    /// Records the content of a file.
    pub(super) fn put(&self, file: &str, content: &[u8]) {
        if let Some(hold) = &self.hold {
            hold.record(Change::Put(file.to_owned(), content.to_owned()));
        }
    }

    /// Records a line that was written at the end of a file.
    pub(super) fn add(&self, file: &str, written: Option<String>) {
        if let (Some(hold), Some(line)) = (&self.hold, written) {
            hold.record(Change::Add(file.to_owned(), line.into_bytes()));
        }
    }

    /// Records an artifact, by its path below `artifacts/`.
    pub(super) fn put_artifact(&self, files: &mut Files, path: &str, content: &[u8]) {
        if self.hold.is_some() {
            let file = format!("{ARTIFACTS}/{path}");
            self.put(&file, content);
            let written = record::fingerprint(&self.context.jobs, &self.id, &file);
            files.recorded.extend(written.map(|written| (file, written)));
        }
    }

    /// Waits until the ledger has all that the job did so far; at once where there is no ledger.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::Lost`] if the job is not this host's any more.
    pub async fn settled(&self) -> Result<(), Refused> {
        match &self.hold {
            None => Ok(()),
            Some(hold) => hold.settled().await,
        }
    }

    /// Ends the job in the ledger, which decides. `stored` says whether its files have the end; `files` is locked.
    pub(super) fn end_held(
        &self,
        hold: &Arc<dyn Hold>,
        files: &Files,
        meta: &Meta,
        notes: &Notes,
        stored: io::Result<()>,
    ) -> Result<(), StoreError> {
        let last = stored.and_then(|()| self.last_changes(files, meta));
        let changes = last.map_err(StoreError::io(format!("could not store that the job is {}", meta.status)))?;
        let shown = Head::new(meta, notes.summary.as_deref());
        let event = self.context.event(&self.id, end_of(meta));
        let ended = hold.end(Decision { changes, head: Some(shown), event });
        if let Err(refused) = ended {
            self.stop();
            if refused == Refused::Lost
                && let Some(store) = self.store.upgrade()
            {
                store.lost(&self.id, self.head());
            }
            return Err(refused_here(refused));
        }
        if let Some(store) = self.store.upgrade() {
            let fingerprint = record::fingerprint(&self.context.jobs, &self.id, META);
            store.ended(EndedJob::new(meta.clone(), fingerprint), false);
        }
        lock(&self.record).meta = meta.clone();
        self.changed.send_replace(());
        self.written.send_modify(|_| {});
        Ok(())
    }

    /// The changes of the files that the ledger does not have yet when the job ends.
    fn last_changes(&self, files: &Files, meta: &Meta) -> io::Result<Vec<Change>> {
        let dir = self.dir()?;
        let mut changes = vec![Change::Put(META.to_owned(), record::pretty(meta)?)];
        if let Some(result) = if_there(dir.read(RESULT))? {
            changes.push(Change::Put(RESULT.to_owned(), result));
        }
        changes.push(Change::Remove(SUBMISSION.to_owned()));
        for file in artifacts::list(&dir, &self.id, self.limits.artifacts_entries) {
            let known = files.recorded.get(&file).copied();
            if known.is_none() || known != record::fingerprint(&self.context.jobs, &self.id, &file) {
                let content = dir.read(&file)?;
                changes.push(Change::Put(file, content));
            }
        }
        Ok(changes)
    }

    /// Gives the job back, with all that it did so far, and stops it. Returns its picture.
    ///
    /// # Errors
    ///
    /// Returns an error when the job has ended, or the ledger does not release it.
    pub(crate) fn release(&self, why: &str) -> Result<Head, StoreError> {
        let unknown = || StoreError::Unknown(self.id.to_string());
        let hold = self.hold.as_ref().ok_or_else(unknown)?;
        let mut files = lock(&self.files);
        if files.ended {
            return Err(unknown());
        }
        hold.release(why).map_err(refused_here)?;
        files.ended = true;
        drop(files);
        self.stop();
        Ok(self.head())
    }

    /// Stops the job without an end, since it is not this host's any more. Nothing of it is stored from now on. False if
    /// it has ended here before.
    pub(crate) fn lose(&self) -> bool {
        self.cancelled.cancel();
        let was_over = std::mem::replace(&mut lock(&self.files).ended, true);
        if !was_over {
            self.stop();
        }
        !was_over
    }

    fn stop(&self) {
        self.cancelled.cancel();
        lock(&self.log).close();
        lock(&self.transcript).close();
        self.artifacts.close();
        lock(&self.record).is_lost = true;
        self.changed.send_replace(());
        self.written.send_modify(|_| {});
    }
}
