//! A client of the methods of a worker (REQ-WD-36).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use guild_contract::{
    JobStatus, MemberKey,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, JobsParams, JobsView, ListParams,
        LogParams, LogPosition, LogView, ResultView, Resumed, StatusView, TaskView, method,
    },
    usage::{UsageParams, UsageView},
};
use reqwest::{
    StatusCode, Url,
    header::{HeaderMap, HeaderValue},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    Error, Options, Reply,
    connect::{self, FIRST, longer, protocol},
    endpoint::endpoint,
};

/// The MCP version of Guild Hall's own client.
const PROTOCOL_VERSION: &str = "2025-06-18";
/// The maximum size of an answer. The largest is a detailed list of all jobs.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// How many polls in a row may fail temporarily. With the pauses, that is more than half a minute.
const MAX_FAILED_POLLS: u32 = 20;

/// A client of a member's worker (REQ-WD-36). It can be shared: calls do not wait for each other.
#[derive(Debug)]
pub struct WorkerHandle {
    http: reqwest::Client,
    endpoint: Url,
    timeout: Duration,
    next_id: AtomicU64,
}

#[derive(Serialize)]
struct Call<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Deserialize)]
struct Response {
    result: Option<Box<RawValue>>,
    error: Option<ResponseError>,
}

#[derive(Deserialize)]
struct ResponseError {
    code: i32,
    message: String,
}

/// Another handle of the same worker, over the same connections.
impl Clone for WorkerHandle {
    fn clone(&self) -> Self {
        self.sharing(self.endpoint.clone())
    }
}

impl WorkerHandle {
    /// The worker with the endpoint `url`, or `member` of the host at `url`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is not that of a host.
    pub fn new(url: &str, member: Option<&MemberKey>) -> Result<Self, Error> {
        Self::with_options(url, member, &Options::default())
    }

    /// Like [`Self::new`], with options.
    ///
    /// # Errors
    /// If the address is not that of a host, or the token would be sent there unencrypted.
    pub fn with_options(url: &str, member: Option<&MemberKey>, options: &Options) -> Result<Self, Error> {
        let endpoint = endpoint(url, member)?;
        let mut headers = HeaderMap::new();
        headers.insert("MCP-Protocol-Version", HeaderValue::from_static(PROTOCOL_VERSION));
        let http = connect::client(&endpoint, options, headers, Some(options.timeout))?;
        Ok(Self { http, endpoint, timeout: options.timeout, next_id: AtomicU64::new(1) })
    }

    /// Another endpoint of the same host, over the same connections.
    pub(crate) fn sharing(&self, endpoint: Url) -> Self {
        Self { http: self.http.clone(), endpoint, timeout: self.timeout, next_id: AtomicU64::new(1) }
    }

    /// Whether the host has this endpoint. No message is sent.
    pub(crate) async fn is_there(&self) -> Result<bool, Error> {
        let response = self.http.get(self.endpoint.clone()).send().await;
        let response = response.map_err(|e| connect::failed(e, &self.endpoint, self.timeout))?;
        Ok(response.status() != StatusCode::NOT_FOUND)
    }

    /// The endpoint of its requests.
    pub fn url(&self) -> &str {
        self.endpoint.as_str()
    }

    /// `worker/dispatch`: dispatches a task (REQ-WD-5).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dispatch(&self, params: &DispatchParams) -> Result<Reply<Dispatched>, Error> {
        self.call(method::DISPATCH, params).await
    }

    /// `worker/list`: the member's jobs, newest first (REQ-WD-8).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, params: &ListParams) -> Result<Reply<JobList>, Error> {
        self.call(method::LIST, params).await
    }

    /// `worker/jobs`: the states of jobs, newest first, page by page.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn jobs(&self, params: &JobsParams) -> Result<Reply<JobsView>, Error> {
        self.call(method::JOBS, params).await
    }

    /// `worker/usage`: what the member's jobs used over time.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn usage(&self, params: &UsageParams) -> Result<Reply<UsageView>, Error> {
        self.call(method::USAGE, params).await
    }

    /// `worker/task`: the task that a job was dispatched with.
    ///
    /// # Errors
    /// See [`Error`]; the token must permit all methods.
    pub async fn task(&self, job: &str) -> Result<Reply<TaskView>, Error> {
        self.call(method::TASK, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/status`: the state of a job (REQ-WD-11).
    ///
    /// # Errors
    /// See [`Error`]; an unknown job is [`Error::Refused`].
    pub async fn status(&self, job: &str) -> Result<Reply<StatusView>, Error> {
        self.call(method::STATUS, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/result`: the result of a completed job (REQ-WD-15).
    ///
    /// # Errors
    /// See [`Error`]; a job that is not completed is [`Error::Refused`].
    pub async fn result(&self, job: &str) -> Result<Reply<ResultView>, Error> {
        self.call(method::RESULT, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/cancel`: ends a running job (REQ-WD-16).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cancel(&self, job: &str) -> Result<Reply<CancelView>, Error> {
        self.call(method::CANCEL, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/delete`: removes a job that has ended (REQ-WD-17).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete(&self, job: &str) -> Result<Reply<Deleted>, Error> {
        self.call(method::DELETE, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/log`: the entries of a job's transcript and log after a position.
    ///
    /// # Errors
    /// See [`Error`]; the token must permit all methods.
    pub async fn log(&self, job: &str, after: Option<LogPosition>) -> Result<Reply<LogView>, Error> {
        self.call(method::LOG, &LogParams { job_id: job.to_owned(), after }).await
    }

    /// `worker/resume`: continues a job that is held back after a crash.
    ///
    /// # Errors
    /// See [`Error`]; a job that is not held back is [`Error::Refused`].
    pub async fn resume(&self, job: &str) -> Result<Reply<Resumed>, Error> {
        self.call(method::RESUME, &JobParams { job_id: job.to_owned() }).await
    }

    /// Waits until a job has ended, and returns its last status. It polls with growing intervals, up to 2 s. A host
    /// that is busy or being restarted is given more than half a minute. Dropping the future does not end the job.
    ///
    /// # Errors
    /// The error of the first poll that fails permanently: see [`Error::may_pass`].
    pub async fn wait_for(&self, job: &str) -> Result<StatusView, Error> {
        let (mut pause, mut failed) = (FIRST, 0);
        loop {
            match self.status(job).await {
                Ok(Reply { value, .. }) if value.status != JobStatus::Running => return Ok(value),
                Ok(_) => failed = 0,
                Err(error) if error.may_pass() && failed < MAX_FAILED_POLLS => failed += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
    }

    pub(crate) async fn call<P: Serialize + Sync, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<Reply<R>, Error> {
        self.call_within(self.timeout, method, params).await
    }

    /// Like [`Self::call`], with another timeout.
    pub(crate) async fn call_within<P: Serialize + Sync, R: DeserializeOwned>(
        &self,
        timeout: Duration,
        method: &str,
        params: &P,
    ) -> Result<Reply<R>, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = self.http.post(self.endpoint.clone()).json(&Call { jsonrpc: "2.0", id, method, params });
        let request = request.timeout(timeout);
        let response = request.send().await.map_err(|e| connect::failed(e, &self.endpoint, timeout))?;
        match connect::json(&self.endpoint, response, ANSWER_BYTES, timeout).await? {
            Response { error: Some(error), .. } => Err(Error::Refused { code: error.code, message: error.message }),
            Response { result: Some(json), .. } => Reply::parse(&self.endpoint, json),
            Response { .. } => Err(protocol(&self.endpoint, "neither `result` nor `error`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authorities;

    #[test]
    fn a_token_goes_to_another_machine_encrypted_only() {
        let to = |url: &str| {
            let options = Options { token: Some("guild_1234".to_owned().into()), ..Options::default() };
            WorkerHandle::with_options(url, None, &options).map(|handle| format!("{handle:?}"))
        };
        let refused = to("http://guild.example/mcp").unwrap_err().to_string();
        assert!(refused.contains("use https://") && !refused.contains("1234"), "{refused}");
        for may in ["https://guild.example/mcp", "http://127.0.0.1:7433", "http://[::1]:7433"] {
            assert!(!to(may).unwrap().contains("1234"), "the token of {may} is shown");
        }
    }

    #[test]
    fn certificate_authorities_have_to_be_there() {
        let refused = Authorities::from_pem(b"nothing").unwrap_err();
        assert!(matches!(refused, Error::Authority(_)), "{refused}");
    }

    #[test]
    fn a_call_may_take_half_a_minute() {
        let worker = WorkerHandle::new("http://127.0.0.1:7433", None).unwrap();
        assert_eq!((worker.timeout, Options::default().timeout), (Duration::from_secs(30), Duration::from_secs(30)));
    }

    #[test]
    fn the_pauses_between_two_looks_get_longer_up_to_two_seconds() {
        let pauses: Vec<_> = std::iter::successors(Some(FIRST), |pause| Some(longer(*pause))).take(12).collect();
        assert!(pauses.windows(2).take(9).all(|two| two[1] > two[0]), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&Duration::from_secs(2)));
        // The pauses for a host that is being restarted.
        let all: Duration =
            std::iter::successors(Some(FIRST), |pause| Some(longer(*pause))).take(MAX_FAILED_POLLS as usize).sum();
        assert!(all.as_secs() < 60 && all.as_secs() > 20, "{all:?}");
    }
}
