//! Answers with the lines of a job's transcript and log, as they grow.

use std::io;

use cap_std::fs::Dir;
use guild_contract::{
    JobId,
    rpc::{LogParams, LogView},
};

use super::{JobStore, index::State};
use crate::{
    error::StoreError,
    files::{
        follow::Follow,
        record::{LOG, META, TRANSCRIPT},
    },
    sync::lock,
};

/// The most bytes of each file that one answer of `worker/log` has.
pub const LOG_BYTES: usize = 256 * 1024;

impl JobStore {
    /// The answer of `worker/log`: what a job's transcript and its log have after what was read before. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown, or its files cannot be read.
    pub fn log(&self, params: &LogParams) -> Result<LogView, StoreError> {
        let entry = self.find(&params.job_id)?;
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        self.fetch_ended(&entry)?;
        let unreadable = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => StoreError::Unknown(params.job_id.clone()),
            _ => StoreError::io("the job's log could not be read")(e),
        };
        let heard = match &*lock(&entry.state) {
            State::Running(_) | State::Ended(_) => None,
            State::Elsewhere(job) => {
                if let Some(next) = params.after.filter(|after| job.log_end.as_deref() == Some(after)) {
                    let (job_id, status, error) = (entry.id.clone(), job.head.meta.status, job.head.meta.error.clone());
                    let (transcript, log) = (Vec::new(), Vec::new());
                    return Ok(LogView { job_id, status, error, transcript, log, next, more: false });
                }
                Some(job.heard)
            }
        };
        let Some(heard) = heard else {
            return self.read_log(&self.context.jobs, &entry.id, params).map_err(unreadable);
        };
        let fetched = self.fetch(&entry.id, &|file| [META, TRANSCRIPT, LOG].contains(&file))?;
        let read = self.read_log(&fetched, &entry.id, params);
        self.discard_fetched(&entry.id);
        let view = read.map_err(unreadable)?;
        if let State::Elsewhere(job) = &mut *lock(&entry.state)
            && job.heard == heard
            && !view.more
        {
            job.log_end = Some(Box::new(view.next));
        }
        Ok(view)
    }

    fn read_log(&self, jobs: &Dir, id: &JobId, params: &LogParams) -> io::Result<LogView> {
        let mut follow = Follow::of(jobs.try_clone()?, id)?.ok_or(io::ErrorKind::NotFound)?;
        follow = follow.after(params.after.unwrap_or_default());
        // Before the lines: a job writes its last line before it ends.
        let meta = follow.meta(&self.context.limits())?;
        let (transcript, more) = page(|| follow.next_line())?;
        let (log, more_log) = page(|| follow.next_log())?;
        let (job_id, status, error, next) = (id.clone(), meta.status, meta.error, follow.position());
        Ok(LogView { job_id, status, error, transcript, log, next, more: more || more_log })
    }
}

/// Lines of a file, and whether there may be more.
fn page(mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>) -> io::Result<(Vec<String>, bool)> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while bytes < LOG_BYTES {
        let Some(line) = next()? else { return Ok((lines, false)) };
        let mut line = String::from_utf8_lossy(&line).into_owned();
        line.truncate(line.floor_char_boundary(LOG_BYTES));
        bytes += line.len();
        lines.push(line);
    }
    Ok((lines, true))
}
