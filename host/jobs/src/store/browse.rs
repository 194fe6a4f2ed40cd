//! Reads jobs page by page, and their files, for clients that browse such as those of MCP.

use std::{io, ops::Bound, path::Path};

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus,
    rpc::{JOBS_PAGE, JobCounts, JobsParams, JobsView, TaskView},
};
use guild_session::transcript::Line;

use super::{
    JobStore,
    index::{Entry, order},
    json,
};
use crate::{
    error::StoreError,
    files::{
        artifacts::{self, ARTIFACTS, Names},
        attachments::{self, AttachedBytes},
        journal::Position,
        record::{self, RESULT, SUBMISSION},
    },
};

/// The number of jobs in a page of states that no limit was given for.
const DEFAULT_PAGE: u32 = 50;
/// Bytes of states as JSON after which a page of them ends.
pub const STATES_BYTES: usize = 1024 * 1024;

/// A job in a page of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    /// The job.
    pub id: JobId,
    /// Its status.
    pub status: JobStatus,
    /// The label of the dispatch.
    pub description: String,
    /// The time at which it was made: RFC 3339 in UTC.
    pub started_at: String,
    /// The time of its last change by its record: its end, else its creation.
    pub changed_at: String,
}

impl JobSummary {
    fn of(entry: &Entry) -> Self {
        entry.with_meta(|meta| Self {
            id: entry.id.clone(),
            status: meta.status,
            description: meta.description.clone(),
            started_at: meta.started_at.clone(),
            changed_at: meta.completed_at.as_ref().unwrap_or(&meta.started_at).clone(),
        })
    }
}

impl JobStore {
    /// At most `most` jobs, newest first, which follow the job that was made at `after.0` and has the id `after.1`;
    /// that job need not exist any more. It blocks.
    pub fn page(&self, after: Option<(&str, &JobId)>, most: usize) -> Vec<JobSummary> {
        self.sweep(false);
        let entries = {
            let index = self.catalog.read();
            let begin = after.map_or(Bound::Unbounded, |(made, id)| Bound::Excluded(order(id, made)));
            index.from(begin).take(most).cloned().collect::<Vec<_>>()
        };
        entries.iter().map(|entry| JobSummary::of(entry)).collect()
    }

    /// The answer of `worker/jobs`. A job that is removed meanwhile is left out. A page ends with the job that exceeds
    /// [`STATES_BYTES`]. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when `limit` is out of bounds.
    pub fn states(&self, params: &JobsParams) -> Result<JobsView, StoreError> {
        let limit = params.limit.unwrap_or(DEFAULT_PAGE);
        if !(1..=JOBS_PAGE).contains(&limit) {
            return Err(StoreError::Refused(format!("limit is {limit}; it can be from 1 to {JOBS_PAGE}")));
        }
        self.sweep(false);
        let begin = params.offset.unwrap_or_default();
        let (mut counts, mut page, mut matching) = (JobCounts::default(), Vec::new(), 0_u32);
        for entry in self.catalog.read().from(Bound::Unbounded) {
            let status = entry.status();
            counts.add(status);
            if params.status.is_none_or(|wanted| wanted == status) {
                if (begin..begin.saturating_add(limit)).contains(&matching) {
                    page.push(entry.clone());
                }
                matching = matching.saturating_add(1);
            }
        }
        let (mut view, mut bytes) = (JobsView { counts, ..JobsView::default() }, 0);
        view.more = matching > begin.saturating_add(limit);
        for entry in page {
            if bytes > STATES_BYTES {
                view.more = true;
                break;
            }
            let Ok(state) = self.view(entry.id.as_str()) else { continue };
            bytes += json(&state)?.len();
            view.jobs.push(state);
        }
        Ok(view)
    }

    /// The number of jobs in each status. It does not wait for storage.
    pub fn counts(&self) -> JobCounts {
        let mut counts = JobCounts::default();
        for entry in self.catalog.read().from(Bound::Unbounded) {
            counts.add(entry.status());
        }
        counts
    }

    /// The answer of `worker/task`. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown, or its task cannot be read.
    pub fn task(&self, id: &str) -> Result<TaskView, StoreError> {
        let (job_id, dir) = self.open_job(id)?;
        let description = self.find(id)?.with_meta(|meta| meta.description.clone());
        let (task, config) =
            record::read_task(&dir, &self.context.limits()).map_err(StoreError::io("the job's task cannot be read"))?;
        let attachments = attachments::list(&dir).map_err(StoreError::io("the job's attachments cannot be listed"))?;
        Ok(TaskView { job_id, description, task, config, attachments })
    }

    /// A job's id, with the files that came with its dispatch. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown, or a file cannot be read.
    pub fn attached(&self, id: &str) -> Result<(JobId, Vec<AttachedBytes>), StoreError> {
        let (id, dir) = self.open_job(id)?;
        let files = attachments::read(&dir, self.context.limits().attachments_bytes);
        Ok((id, files.map_err(StoreError::io("the job's attachments cannot be read"))?))
    }

    /// The job of that id, if it is in the index. It never blocks on storage.
    pub fn brief(&self, id: &str) -> Option<JobSummary> {
        Some(JobSummary::of(&*self.catalog.read().get(id)?))
    }

    /// The job of that id. It blocks while the jobs are read at the start of a host.
    pub fn look_up(&self, id: &str) -> Option<JobSummary> {
        let entry = self.find(id).ok().filter(|entry| self.refresh(entry).is_ok())?;
        Some(JobSummary::of(&entry))
    }

    /// A job's id and directory.
    fn open_job(&self, id: &str) -> Result<(JobId, Dir), StoreError> {
        let entry = self.find(id)?;
        self.fetch_all(&entry)?;
        let id = entry.id.clone();
        match self.job_dir(&id) {
            Ok(dir) => Ok((id, dir)),
            Err(error) => {
                // A person may have removed its directory since it was read.
                if error.kind() == io::ErrorKind::NotFound {
                    self.compare(&id);
                    self.find(id.as_str())?;
                }
                Err(StoreError::io("could not read the job")(error))
            }
        }
    }

    /// The transcript of a job; empty if it has none. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown, or its transcript cannot be read.
    pub fn transcript(&self, id: &JobId) -> Result<Vec<Line>, StoreError> {
        let (_, dir) = self.open_job(id.as_str())?;
        let read = record::read_transcript(&dir, &self.context.limits(), Position::default());
        Ok(read.map_err(StoreError::io("could not read the transcript"))?.unwrap_or_default())
    }

    /// The regular files under a job's `artifacts/`, as `worker/result` names them. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown.
    pub fn artifacts(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let (id, dir) = self.open_job(id)?;
        Ok(artifacts::list(&dir, &id, self.context.limits().artifacts_entries))
    }

    /// The size of the file that has a job's result; 0 if there is none. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown.
    pub fn result_bytes(&self, id: &str) -> Result<u64, StoreError> {
        let (_, dir) = self.open_job(id)?;
        let bytes = [RESULT, SUBMISSION].map(|file| dir.symlink_metadata(file).map_or(0, |found| found.len()));
        Ok(bytes.into_iter().max().unwrap_or_default())
    }

    /// The size of a file under a job's `artifacts/`; 0 if there is none. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown.
    pub fn artifact_bytes(&self, id: &str, path: &str) -> Result<u64, StoreError> {
        let (_, dir) = self.open_job(id)?;
        Ok(dir.metadata(Path::new(ARTIFACTS).join(path)).map_or(0, |found| found.len()))
    }

    /// The bytes of one file under a job's `artifacts/`, by its path there; at most `max` of them. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is unknown, when the path does not lead to a regular file, and when the file is
    /// larger than `max`.
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
