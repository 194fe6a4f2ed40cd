//! Ends a running job: at the end of its work, by a cancel, or because another host has it.

use std::io;

use cap_std::fs::Dir;
use guild_contract::JobStatus;
use guild_fs::durable::{Survives, replace};

use super::{Files, RunningJob, ended::EndedJob, within};
use crate::{
    error::StoreError,
    files::record::{self, DECISIONS, META, Notes, QUESTIONS, STATUS, UnsavedResult},
    sync::lock,
};

impl RunningJob {
    /// Ends the job because its work is done: completed with the submitted result, else with `final_text`, else failed.
    /// Returns the status in which the job ended, which differs if it was cancelled before.
    ///
    /// # Errors
    ///
    /// Returns an error when the outcome could not be stored. The job has ended nevertheless: its outcome stays in
    /// memory, and is stored when the file system permits. Returns [`StoreError::Unknown`] when the job's directory is
    /// gone, and [`StoreError::Lost`] when the job is not this host's any more, so that it has not ended here.
    pub fn complete(&self, final_text: Option<&str>) -> Result<JobStatus, StoreError> {
        let text = final_text.filter(|text| !text.trim().is_empty());
        self.finish(text, "the session ended without handing over a result")
    }

    /// Ends the job because its work cannot continue. With a submitted result it is completed nevertheless. Returns and
    /// fails as [`Self::complete`].
    pub fn fail(&self, reason: &str) -> Result<JobStatus, StoreError> {
        self.finish(None, reason)
    }

    /// Ends the job at a caller's request. When this returns, no file of the job changes any more. `None` if it had
    /// ended before.
    pub(crate) fn cancel(&self) -> Option<Result<(), StoreError>> {
        let mut files = lock(&self.files);
        if files.ended {
            return None;
        }
        // The token is cancelled under the lock, so that the work that stops now cannot end the job first.
        self.cancelled.cancel();
        Some(self.end(&mut files, JobStatus::Cancelled, None, None))
    }

    fn finish(&self, text: Option<&str>, reason: &str) -> Result<JobStatus, StoreError> {
        let files = &mut *lock(&self.files);
        if files.ended {
            return if lock(&self.record).is_lost { Err(StoreError::Lost) } else { Ok(self.status()) };
        }
        let result = match text {
            _ if self.has_submission() => Ok(UnsavedResult::Submission),
            None => Err(reason.to_owned()),
            Some(text) => within(text.len(), self.limits.result_bytes, "the result", "result_bytes")
                .map(|()| UnsavedResult::Text(text.into()))
                .map_err(|e| e.to_string()),
        };
        let status = if result.is_ok() { JobStatus::Completed } else { JobStatus::Failed };
        let error = result.as_ref().err().cloned();
        self.end(files, status, error, result.ok()).map(|()| status)
    }

    /// Stores the outcome and passes it to the store, which retries a failed write.
    fn end(
        &self,
        files: &mut Files,
        status: JobStatus,
        error: Option<String>,
        result: Option<UnsavedResult>,
    ) -> Result<(), StoreError> {
        files.ended = true;
        lock(&self.log).close();
        lock(&self.transcript).close();
        self.artifacts.close();
        let (mut meta, notes, open) = {
            let record = lock(&self.record);
            (record.meta.clone(), record.notes.clone(), record.open)
        };
        if let Some(used) = &mut meta.usage {
            used.usage = if open { used.usage.and_unknown() } else { used.usage };
            used.queued = false;
        }
        let meta = record::ended(meta, status, error, self.context.now());
        if let Some(hold) = &self.hold {
            return self.end_held(hold, files, &meta, &notes, result.as_ref());
        }
        let stored = self.dir().and_then(|dir| {
            if let Err(e) = self.undo_edits(files, &dir, &notes) {
                tracing::warn!(job = %self.id, "cannot undo edits made while the job was running: {e}");
            }
            self.warn_of_edit(files, META);
            record::store_end(&dir, &meta, result.as_ref(), &self.limits)
        });
        let gone = matches!(&stored, Err(e) if e.kind() == io::ErrorKind::NotFound);
        let shown = meta.clone();
        if let Some(store) = self.store.upgrade() {
            let summary = notes.summary.map(|text| record::head(&text, record::HEAD_BYTES as usize).to_owned());
            let head = (summary, files.written.get(STATUS).copied());
            let unsaved = result.filter(|_| stored.is_err());
            let ended = EndedJob::new(meta, stored.as_ref().ok().copied());
            store.ended(EndedJob { head: Some(head), unsaved, ..ended }, gone);
        }
        // The record changes after the store has it, so that all methods show the end at the same time.
        self.update(|record| record.meta = shown);
        self.written.send_modify(|_| {});
        if gone {
            return Err(StoreError::Unknown(self.id.to_string()));
        }
        stored.map(drop).map_err(StoreError::io(format!("could not store that the job is {status}")))
    }

    /// Overwrites a person's edits from the time when the job ran, since the files are authoritative after its end.
    fn undo_edits(&self, files: &mut Files, dir: &Dir, notes: &Notes) -> io::Result<()> {
        for file in [STATUS, QUESTIONS, DECISIONS] {
            if !self.warn_of_edit(files, file) {
                continue;
            }
            let bytes = match file {
                STATUS => notes.summary.clone().unwrap_or_default().into_bytes(),
                QUESTIONS => notes.questions.as_deref().map_or_else(String::new, record::join_questions).into_bytes(),
                _ => record::pretty(&files.decisions)?,
            };
            replace(dir, file, &bytes, Survives::PowerCut)?;
        }
        Ok(())
    }
}
