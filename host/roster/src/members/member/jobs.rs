//! Handles the methods of a worker that are answered from its job store.

use std::time::Duration;

use bytes::Bytes;
use guild_contract::{
    JobStatus,
    rpc::{
        CancelView, Deleted, JobCounts, JobsParams, JobsView, ListParams, LogParams, LogView, ResultView, Resumed,
        RpcError, TaskView,
    },
    usage::{UsageParams, UsageView},
};
use guild_jobs::{JobStore, StoreError};

use super::Member;
use crate::answer::blocking;

/// How long a cancel waits for the job's work to be gone.
const LAST_WRITE: Duration = Duration::from_secs(2);

impl Member {
    /// `worker/list`: the JSON of a [`guild_contract::rpc::JobList`].
    ///
    /// # Errors
    ///
    /// Returns -32602 when the filter is not a glob.
    pub async fn list(&self, params: ListParams) -> Result<Bytes, RpcError> {
        match self.data.store.list_now(&params) {
            Some(list) => Ok(list),
            None => self.in_store(move |store| store.list(&params)).await,
        }
    }

    /// `worker/jobs`.
    ///
    /// # Errors
    ///
    /// Returns -32602 when a parameter is out of bounds.
    pub async fn states(&self, params: JobsParams) -> Result<JobsView, RpcError> {
        self.in_store(move |store| store.states(&params)).await
    }

    /// The number of jobs in each status. It blocks while the jobs are read at the start of a host.
    pub fn counts(&self) -> JobCounts {
        self.data.store.counts()
    }

    /// `worker/usage`.
    ///
    /// # Errors
    ///
    /// Returns -32602 when a parameter is invalid.
    pub async fn usage(&self, params: UsageParams) -> Result<UsageView, RpcError> {
        self.in_store(move |store| store.usage(&params)).await
    }

    /// `worker/task`.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job.
    pub async fn task(&self, id: &str) -> Result<TaskView, RpcError> {
        let id = id.to_owned();
        self.in_store(move |store| store.task(&id)).await
    }

    /// `worker/status`: the JSON of a [`guild_contract::rpc::StatusView`].
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job (REQ-WD-46).
    pub async fn status(&self, id: &str) -> Result<Bytes, RpcError> {
        if let Some(status) = self.data.store.status_now(id) {
            return Ok(status);
        }
        let id = id.to_owned();
        self.in_store(move |store| store.status(&id)).await
    }

    /// `worker/result` (REQ-WD-14).
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job, and for a job without a result.
    pub async fn result(&self, id: &str) -> Result<ResultView, RpcError> {
        let id = id.to_owned();
        self.in_store(move |store| store.result(&id)).await
    }

    /// `worker/log`: what a job's transcript and its log have after what was read before.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job.
    pub async fn log(&self, params: LogParams) -> Result<LogView, RpcError> {
        self.in_store(move |store| store.log(&params)).await
    }

    /// `worker/cancel` (REQ-WD-16). When it answers, the transition is stored and no file of the job changes any more:
    /// a component that wrote its artifacts itself is gone.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job.
    pub async fn cancel(&self, id: &str) -> Result<CancelView, RpcError> {
        let work = self.data.under_way(id);
        let id = id.to_owned();
        let cancelled = self.in_store(move |store| store.cancel(&id)).await?;
        if let Some(work) = work {
            // A host call that blocks cannot be interrupted; the answer does not wait for it for ever.
            let _ = tokio::time::timeout(LAST_WRITE, work.cancelled()).await;
        }
        Ok(cancelled)
    }

    /// `worker/delete` (REQ-WD-17).
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown, running or failed job.
    pub async fn delete(&self, id: &str) -> Result<Deleted, RpcError> {
        let id = id.to_owned();
        self.in_store(move |store| store.delete(&id)).await
    }

    /// `worker/resume`: lets a job on that is held back, and resumes it.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown job, and for a job that is not held back.
    pub async fn resume(&self, id: &str) -> Result<Resumed, RpcError> {
        let (data, id) = (self.data.clone(), id.to_owned());
        blocking(move || {
            data.store.look_up(&id).ok_or_else(|| StoreError::Unknown(id.clone()))?;
            let not_held_back = || StoreError::Refused("Job is not held back".to_owned());
            let job = data.store.running(&id).ok_or_else(not_held_back)?;
            data.interrupted.let_on(job.clone())?;
            tracing::info!(job = %job.id(), "resuming job that was held back");
            Ok(Resumed { job_id: job.id().clone(), status: JobStatus::Running })
        })
        .await
    }

    async fn in_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&JobStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let store = self.data.store.clone();
        blocking(move || Ok(work(&store)?)).await
    }
}
