//! The jobs of a member as their files say, for whoever is not their owner.
//!
//! The files are read as they are: no owner is asked, none is needed, and nothing is changed or repaired. A job that
//! is recorded as running runs only where the member has an owner; see [`Owner::of`](crate::Owner::of).

use std::io;

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits, Meta,
    rpc::{ResultView, StatusView},
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    artifacts,
    durable::{if_there, open_dir},
    error::StoreError,
    record::{self, JOBS, Notes, UnsavedResult, no_result},
    sync::in_threads,
    tree,
};

/// Readers of `meta.json` files at a time, and how many jobs are worth so many.
const READERS: usize = 4;
const WORTH_READERS: usize = 256;

/// The records of one member's jobs.
pub struct Records {
    jobs: Dir,
}

impl Records {
    /// Those of the member whose directory `member` is; `None` where it never had a job.
    ///
    /// # Errors
    /// Where `jobs/` cannot be opened; a symlink is not followed.
    pub fn open(member: &Dir) -> io::Result<Option<Self>> {
        Ok(if_there(open_dir(member, JOBS))?.map(|jobs| Self { jobs }))
    }

    /// The names under `jobs/` that can be jobs, in no order.
    ///
    /// # Errors
    /// Where `jobs/` cannot be read.
    pub fn ids(&self) -> io::Result<Vec<JobId>> {
        Ok(directories(&self.jobs)?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// All records, in no order; of a job whose record cannot be read, why.
    ///
    /// # Errors
    /// Where `jobs/` cannot be read.
    pub fn all(&self, limits: &Limits) -> io::Result<Vec<(JobId, io::Result<Meta>)>> {
        let ids = self.ids()?;
        let readers = if ids.len() < WORTH_READERS { 1 } else { READERS };
        let read = |id: &JobId| match self.meta(id, limits) {
            // It was deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.jobs.symlink_metadata(id.as_str()).is_err() => None,
            read => Some((id.clone(), read)),
        };
        Ok(in_threads(readers, &ids, read).into_iter().flatten().collect())
    }

    /// Whether there is a directory for a job of that id.
    pub fn has(&self, id: &JobId) -> bool {
        self.jobs.symlink_metadata(id.as_str()).is_ok_and(|found| found.is_dir())
    }

    /// A job's record.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn meta(&self, id: &JobId, limits: &Limits) -> io::Result<Meta> {
        record::read_meta(&self.jobs, id, limits).map(|(meta, _)| meta)
    }

    /// The start of a job's summary, as lists show it.
    pub fn summary(&self, id: &JobId) -> Option<String> {
        record::read_head(&self.jobs, id).0
    }

    /// What `worker/status` would answer. `meta` is the job's record.
    pub fn status(&self, meta: &Meta, limits: &Limits) -> StatusView {
        Notes::read(&self.jobs, &meta.job_id, limits, None).view(meta)
    }

    /// What `worker/result` would answer. `meta` is the job's record.
    ///
    /// # Errors
    /// Where the job is not completed, or its result cannot be read.
    pub fn result(&self, meta: &Meta, limits: &Limits) -> Result<ResultView, StoreError> {
        result(&self.jobs, &meta.job_id, (meta.status, meta.error.as_deref()), None, limits)
    }

    /// How many bytes a job's files have; what cannot be looked at counts nothing.
    pub fn bytes(&self, id: &JobId) -> u64 {
        tree::bytes(&self.jobs, id.as_str())
    }
}

/// The result of the job in `jobs/`, of this status and error; `unsaved` is the one that is not in `result.md` yet.
pub(crate) fn result(
    jobs: &Dir,
    id: &JobId,
    (status, error): (JobStatus, Option<&str>),
    unsaved: Option<UnsavedResult>,
    limits: &Limits,
) -> Result<ResultView, StoreError> {
    if let Some(refused) = no_result(status, error) {
        return Err(refused);
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

/// When a job was made, by its id; `None` where that is no UUID of version 7.
pub fn made_at(id: &JobId) -> Option<Timestamp> {
    let (seconds, nanos) = Uuid::parse_str(id.as_str()).ok()?.get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

/// When a job was made, by its record.
pub fn started_at(meta: &Meta) -> Option<Timestamp> {
    meta.started_at.parse().ok()
}

/// Whether a record says that the job ended so long ago.
pub fn ended_before(meta: &Meta, before: Timestamp) -> bool {
    let ended = meta.completed_at.as_ref().unwrap_or(&meta.started_at);
    meta.status != JobStatus::Running && ended.parse::<Timestamp>().is_ok_and(|ended| ended <= before)
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
