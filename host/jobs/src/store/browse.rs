//! Looking through jobs page by page, and reading what they left: for clients that browse, as those of MCP do.

use std::{ops::Bound, path::Path};

use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus};

use super::JobStore;
use crate::{
    artifacts::{self, ARTIFACTS, Names},
    error::StoreError,
    index::{Entry, State, order},
    record::{RESULT, SUBMISSION},
    sync::lock,
};

/// A job as one who looks through all of them sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    /// The job.
    pub id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// The label of the dispatch.
    pub description: String,
    /// When it was made: RFC 3339 in UTC.
    pub started_at: String,
    /// The last time that it changed as far as its record says: when it ended, else when it was made.
    pub changed_at: String,
}

impl JobSummary {
    fn of(entry: &Entry) -> Self {
        let id = entry.id.clone();
        match &*lock(&entry.state) {
            State::Running(job) => job.with_view(|view| Self {
                id,
                status: view.status,
                description: view.description.clone(),
                started_at: view.started_at.clone(),
                changed_at: view.started_at.clone(),
            }),
            State::Ended(ended) => Self {
                id,
                status: ended.meta.status,
                description: ended.meta.description.clone(),
                started_at: ended.meta.started_at.clone(),
                changed_at: ended.meta.completed_at.clone().unwrap_or_else(|| ended.meta.started_at.clone()),
            },
        }
    }
}

impl JobStore {
    /// At most `most` jobs, newest first: those that come after the one that was made at `after.0` and has the id
    /// `after.1`, which need not be there any more. It blocks.
    pub fn page(&self, after: Option<(&str, &JobId)>, most: usize) -> Vec<JobSummary> {
        self.absorb();
        let entries = {
            let index = self.catalog.read();
            let begin = after.map_or(Bound::Unbounded, |(made, id)| Bound::Excluded(order(id, made)));
            index.from(begin).take(most).cloned().collect::<Vec<_>>()
        };
        entries.iter().map(|entry| JobSummary::of(entry)).collect()
    }

    /// Where a job is, if there is one of that id. It never blocks on storage.
    pub fn brief(&self, id: &str) -> Option<JobSummary> {
        Some(JobSummary::of(&*self.catalog.read().get(id)?))
    }

    /// The same, once it is known whether there is one. It blocks while the jobs are read at the start of a host.
    pub fn look_up(&self, id: &str) -> Option<JobSummary> {
        self.find(id).ok().map(|entry| JobSummary::of(&entry))
    }

    /// A job's own id, and its directory.
    fn open_job(&self, id: &str) -> Result<(JobId, Dir), StoreError> {
        let id = self.find(id)?.id.clone();
        let dir = self.job_dir(&id).map_err(StoreError::io("could not read the job"))?;
        Ok((id, dir))
    }

    /// The regular files under a job's `artifacts/`, as `worker/result` names them. It blocks.
    ///
    /// # Errors
    /// An unknown job.
    pub fn artifacts(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let (id, dir) = self.open_job(id)?;
        Ok(artifacts::list(&dir, &id, self.context.limits().artifacts_entries))
    }

    /// How many bytes the file has that has a job's result; 0 where there is none. It blocks.
    ///
    /// # Errors
    /// An unknown job.
    pub fn result_bytes(&self, id: &str) -> Result<u64, StoreError> {
        let (_, dir) = self.open_job(id)?;
        let bytes = [RESULT, SUBMISSION].map(|file| dir.symlink_metadata(file).map_or(0, |found| found.len()));
        Ok(bytes.into_iter().max().unwrap_or_default())
    }

    /// How many bytes a file under a job's `artifacts/` has; 0 where there is none. It blocks.
    ///
    /// # Errors
    /// An unknown job.
    pub fn artifact_bytes(&self, id: &str, path: &str) -> Result<u64, StoreError> {
        let (_, dir) = self.open_job(id)?;
        Ok(dir.metadata(Path::new(ARTIFACTS).join(path)).map_or(0, |found| found.len()))
    }

    /// The bytes of one file under a job's `artifacts/`, by its path there; at most `max` of them. It blocks.
    ///
    /// # Errors
    /// An unknown job; a path that is not one of a regular file; a file that is larger.
    pub fn artifact(&self, id: &str, path: &str, max: u64) -> Result<Vec<u8>, StoreError> {
        let missing = || StoreError::Refused(format!("the job {id} has no artifact {path:?}"));
        let names = Names::of(path).map_err(|_| missing())?;
        let (_, dir) = self.open_job(id)?;
        let read = artifacts::read(&dir, &names, max).map_err(StoreError::io("the artifact cannot be read"))?;
        let bytes = read.ok_or_else(missing)?;
        if bytes.len() as u64 > max {
            return Err(StoreError::Refused(format!("the artifact {path:?} has more than {max} bytes")));
        }
        Ok(bytes)
    }
}
