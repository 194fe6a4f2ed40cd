//! Reads the jobs of a member from their files, for a process that does not own the member.
//!
//! Reading the files needs no owner. A job that is recorded as running runs only if the member has an owner; see
//! [`Owner::of`](crate::Owner::of).

use std::io;

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits, Meta,
    rpc::{ResultView, StatusView},
};
use guild_fs::{
    durable::{if_there, open_dir},
    tree,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    artifacts,
    record::{self, JOBS, Notes, UnsavedResult},
};
use crate::{error::StoreError, sync::in_threads};

/// Threads that read `meta.json` files.
const READERS: usize = 4;

/// The records of one member's jobs.
pub struct Records {
    jobs: Dir,
}

impl Records {
    /// The records of the member in the directory `member`; `None` if it never had a job.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be opened; a symlink is not followed.
    pub fn open(member: &Dir) -> io::Result<Option<Self>> {
        Ok(if_there(open_dir(member, JOBS))?.map(|jobs| Self { jobs }))
    }

    /// The names under `jobs/` that can be jobs, in no order.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn ids(&self) -> io::Result<Vec<JobId>> {
        Ok(directories(&self.jobs)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// All records, in no order, or the errors of unreadable ones.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn all(&self, limits: &Limits) -> io::Result<Vec<(JobId, io::Result<Meta>)>> {
        let read = |id: &JobId| match self.meta(id, limits) {
            // The job was deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.jobs.symlink_metadata(id.as_str()).is_err() => None,
            read => Some((id.clone(), read)),
        };
        Ok(in_threads(READERS, &self.ids()?, read).into_iter().flatten().collect())
    }

    /// Whether there is a directory for a job of that id.
    pub fn has(&self, id: &JobId) -> bool {
        self.jobs.symlink_metadata(id.as_str()).is_ok_and(|found| found.is_dir())
    }

    /// A job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the record is missing, or cannot be read.
    pub fn meta(&self, id: &JobId, limits: &Limits) -> io::Result<Meta> {
        record::read_meta(&self.jobs, id, limits).map(|(meta, _)| meta)
    }

    /// The start of a job's summary, as lists show it. `meta` is the job's record.
    pub fn summary(&self, meta: &Meta) -> Option<String> {
        record::shown_summary(meta, record::read_head(&self.jobs, &meta.job_id).0.as_deref())
    }

    /// The answer of `worker/status`. `meta` is the job's record.
    pub fn status(&self, meta: &Meta, limits: &Limits) -> StatusView {
        Notes::read(&self.jobs, &meta.job_id, limits, None).0.view(meta)
    }

    /// The answer of `worker/result`. `meta` is the job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is not completed, or its result cannot be read.
    pub fn result(&self, meta: &Meta, limits: &Limits) -> Result<ResultView, StoreError> {
        result(&self.jobs, meta, None, limits)
    }

    /// Releases a job that is held back, so that the next host resumes it. False if it is not held back. The caller
    /// owns the member.
    ///
    /// # Errors
    ///
    /// Returns an error when the job's record cannot be read or written.
    pub fn let_on(&self, id: &JobId, limits: &Limits) -> io::Result<bool> {
        let meta = self.meta(id, limits)?;
        if !record::is_held_back(&meta) {
            return Ok(false);
        }
        record::store_meta(&open_dir(&self.jobs, id.as_str())?, &record::let_on(meta)).map(|_| true)
    }

    /// The bytes of a job's files, without unreadable ones.
    pub fn bytes(&self, id: &JobId) -> u64 {
        tree::bytes(&self.jobs, id.as_str())
    }
}

/// The result of a job in `jobs/` with this record; refused unless it is completed (REQ-WD-14). `unsaved` is a result
/// that is not in `result.md` yet.
pub(crate) fn result(
    jobs: &Dir,
    meta: &Meta,
    unsaved: Option<&UnsavedResult>,
    limits: &Limits,
) -> Result<ResultView, StoreError> {
    let id = &meta.job_id;
    let refused = |why: &str| Err(StoreError::Refused(why.to_owned()));
    match meta.status {
        JobStatus::Completed => {}
        JobStatus::Running => return refused("Job is still running"),
        JobStatus::Cancelled => return refused("Job was cancelled"),
        JobStatus::Failed => {
            let why = meta.error.as_deref().unwrap_or("no reason was recorded");
            return refused(&format!("Job failed: {why}"));
        }
    }
    let dir = open_dir(jobs, id.as_str()).map_err(StoreError::io("could not read the job"))?;
    let output = unsaved.map_or_else(|| record::read_result(&dir, limits), |result| result.read(&dir, limits));
    let output = output.map_err(StoreError::io("could not read result.md"))?;
    let artifacts = artifacts::list(&dir, id, limits.artifacts_entries);
    Ok(ResultView { job_id: id.clone(), output, artifacts: record::some(artifacts) })
}

/// The names in `jobs/` that are directories.
pub(crate) fn directories(jobs: &Dir) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in jobs.entries()? {
        let entry = entry?;
        if if_there(entry.file_type())?.is_some_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().to_str().map(str::to_owned));
        }
    }
    Ok(names)
}

/// The time at which a job was made, by its id; `None` if that is not a UUID of version 7.
pub fn made_at(id: &JobId) -> Option<Timestamp> {
    let (seconds, nanos) = Uuid::parse_str(id.as_str()).ok()?.get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

/// The time at which a job was made, by its record.
pub fn started_at(meta: &Meta) -> Option<Timestamp> {
    meta.started_at.parse().ok()
}

/// Whether the job ended at `before` or earlier, by its record.
pub fn ended_before(meta: &Meta, before: Timestamp) -> bool {
    let ended = meta.completed_at.as_ref().unwrap_or(&meta.started_at);
    meta.status != JobStatus::Running && ended.parse::<Timestamp>().is_ok_and(|ended| ended <= before)
}

/// When a job ended, by its record, and its id; `None` for a job that runs, or whose record has no valid time.
pub(crate) fn ended_at(meta: &Meta) -> Option<(Timestamp, JobId)> {
    let ended = meta.completed_at.as_ref().filter(|_| meta.status != JobStatus::Running)?;
    Some((ended.parse().ok()?, meta.job_id.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_version_7_says_when_its_job_was_made() {
        let at = |id: &str| made_at(&id.parse().unwrap());
        assert_eq!(at("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").unwrap().as_millisecond(), 0x017f_22e2_79b0);
        assert_eq!(at("919108f7-52d1-4320-9bac-f847db4148a8"), None);
        assert_eq!(at("by-hand"), None);
    }
}
