//! Appends what a running job does to its log in the ledger, where several hosts serve the member.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use cap_std::fs::Dir;
use guild_contract::{Meta, Resumption};
use guild_fs::{durable::read_whole, tree::walk};

use super::{Files, RunningJob};
use crate::{
    error::{Refused, StoreError},
    files::{
        artifacts::{self, ARTIFACTS},
        record::{self, META, Notes, RESULT, SUBMISSION, UnsavedResult},
    },
    ledger::{Change, Decision, Head, Hold},
    running::ended::{EndedJob, end_of},
    sync::lock,
};

/// All files of a job's directory.
pub(crate) fn files_of(dir: &Dir) -> io::Result<Vec<Change>> {
    let mut files = Vec::new();
    for found in walk(dir) {
        let found = found?;
        if let (true, Some(path)) = (found.kind.is_file(), found.path.to_str())
            && let Some((content, _)) = read_whole(dir, path, u64::MAX)?
        {
            files.push(Change::Put(path.to_owned(), content));
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
        let Some(hold) = &self.hold else { return Ok(()) };
        hold.settled().await?;
        // Lines that a lost job writes are dropped, so there may be nothing to wait for.
        if lock(&self.record).is_lost { Err(Refused::Lost) } else { Ok(()) }
    }

    /// Ends the job in the ledger, which decides. `files` is locked. A job whose last files cannot be read is given back, so
    /// that another host can carry it out.
    pub(super) fn end_held(
        &self,
        hold: &Arc<dyn Hold>,
        files: &Files,
        meta: &Meta,
        notes: &Notes,
        result: Option<&UnsavedResult>,
    ) -> Result<(), StoreError> {
        let ended = match self.last_changes(files, meta, result) {
            Ok(changes) => {
                let head = Some(Head::new(meta, notes.summary.as_deref()));
                let event = self.context.event(&self.id, end_of(meta));
                hold.end(Decision { changes, head, event }).map_err(refused_here)
            }
            Err(e) => match hold.release("the host that held it could not read its files") {
                Ok(()) => Err(StoreError::io(format!("could not store that the job is {}", meta.status))(e)),
                Err(refused) => Err(refused_here(refused)),
            },
        };
        let store = self.store.upgrade();
        if let Err(refused) = ended {
            self.stop();
            if let Some(store) = store {
                store.lost(&self.id, self.head());
            }
            return Err(refused);
        }
        // The files here are a copy. Where it cannot be brought up to date, it is fetched.
        let copied = self.dir().and_then(|dir| record::store_end(&dir, meta, result, &self.limits));
        // It is over before the store looks again for the end of a job without a copy.
        lock(&self.record).meta = meta.clone();
        if let Some(store) = store {
            match copied {
                Ok(copied) => store.ended(EndedJob::new(meta.clone(), Some(copied)), false),
                Err(_) => store.lost(&self.id, Head::new(meta, notes.summary.as_deref())),
            }
        }
        self.changed.send_replace(());
        self.written.send_modify(|_| {});
        Ok(())
    }

    /// The changes of the files that the ledger does not have yet when the job ends. The artifacts that a component has
    /// written by itself are recorded before, since there may be too many for one append.
    fn last_changes(&self, files: &Files, meta: &Meta, result: Option<&UnsavedResult>) -> io::Result<Vec<Change>> {
        let dir = self.dir()?;
        let mut changes = vec![Change::Put(META.to_owned(), record::pretty(meta)?)];
        if let Some(result) = result {
            changes.push(Change::Put(RESULT.to_owned(), result.read(&dir, &self.limits)?.into_bytes()));
        }
        changes.push(Change::Remove(SUBMISSION.to_owned()));
        for file in artifacts::list(&dir, &self.id, self.limits.artifacts_entries) {
            let known = files.recorded.get(&file).copied();
            if (known.is_none() || known != record::fingerprint(&self.context.jobs, &self.id, &file))
                && let Some((content, _)) = read_whole(&dir, &file, u64::MAX)?
            {
                self.put(&file, &content);
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
        // The host has not ended while it carried the job out. A mark of an earlier host stays.
        if self.is_resumed.load(Ordering::Relaxed)
            && matches!(self.resumption(), Some(Resumption::Together | Resumption::Alone))
            && let Err(e) = self.set_resumption(None)
        {
            tracing::warn!(job = %self.id, "the job is given back as one that may have ended its host: {e}");
        }
        let mut files = lock(&self.files);
        if files.ended {
            return Err(unknown());
        }
        hold.release(why).map_err(refused_here)?;
        files.ended = true;
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
        // This comes before lines are dropped, so that nobody takes a dropped line for a stored one.
        lock(&self.record).is_lost = true;
        lock(&self.log).close();
        lock(&self.transcript).close();
        self.artifacts.close();
        self.changed.send_replace(());
        self.written.send_modify(|_| {});
    }
}
