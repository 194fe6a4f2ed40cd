//! The six methods of a worker (REQ-WD-36).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use guild_contract::{
    JobStatus, MemberKey,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, ListParams, ResultView, StatusView, method,
    },
    secret::{Secret, may_carry_key},
};
use reqwest::{
    Certificate, Response, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
    redirect::Policy,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{Error, endpoint::endpoint};

/// How long a call may take. Guild Hall's own client gives up as late.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The version of MCP under which Guild Hall's own client speaks.
const PROTOCOL_VERSION: &str = "2025-06-18";
/// How much is read of what a host says to a request that it refuses.
const REFUSAL_BYTES: usize = 4 * 1024;
/// How much is read of an answer: more than any host's, which is largest where it lists every job in detail.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// How long after the first look at a job the second comes. Each further one comes later by half, up to [`SLOWEST`].
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two looks at a job.
const SLOWEST: Duration = Duration::from_secs(2);
/// So many looks in a row may fail in a way that passes: with the pauses that is more than half a minute.
const FORGIVEN: u32 = 20;

/// How a host is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// The token, where the host wants one.
    pub token: Option<Secret>,
    /// The certificate authorities, in PEM, that are trusted in place of the system's.
    pub authorities: Option<Vec<u8>>,
    /// How long a call may take; 30 s, if nobody says otherwise. A host answers a dispatch within 20 s.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { token: None, authorities: None, timeout: TIMEOUT }
    }
}

/// A result: as it came, and typed.
#[derive(Debug)]
pub struct Reply<T> {
    /// The result's own JSON.
    pub json: Box<RawValue>,
    /// What it says.
    pub value: T,
}

/// A member's worker (REQ-WD-36). It can be shared: calls do not wait for each other.
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
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    code: i32,
    message: String,
}

impl WorkerHandle {
    /// The worker whose endpoint is at `url`, or that is `member` of the host at `url`. Nothing is sent yet.
    ///
    /// # Errors
    /// Where the address can be no host's.
    pub fn new(url: &str, member: Option<&MemberKey>) -> Result<Self, Error> {
        Self::with_options(url, member, &Options::default())
    }

    /// As [`Self::new`], with options of one's own.
    ///
    /// # Errors
    /// Where the address can be no host's, the token would go there unencrypted, or there is no certificate in the
    /// authorities.
    pub fn with_options(url: &str, member: Option<&MemberKey>, options: &Options) -> Result<Self, Error> {
        let address = |reason| Error::Address { url: url.to_owned(), reason };
        let endpoint = endpoint(url, member).map_err(address)?;
        let mut headers = HeaderMap::new();
        headers.insert("MCP-Protocol-Version", HeaderValue::from_static(PROTOCOL_VERSION));
        if let Some(token) = &options.token {
            headers.insert(AUTHORIZATION, authorization(token, &endpoint)?);
        }
        // A proxy from the environment could only be in the way, and a redirect lead a token elsewhere.
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(options.timeout);
        let mut http = http.default_headers(headers);
        if let Some(pem) = &options.authorities {
            let authorities = Certificate::from_pem_bundle(pem).map_err(|e| Error::Authority(e.to_string()))?;
            if authorities.is_empty() {
                return Err(Error::Authority("there is no certificate in it".to_owned()));
            }
            http = http.tls_certs_only(authorities);
        }
        let http = http.build().map_err(|e| address(e.to_string()))?;
        Ok(Self { http, endpoint, timeout: options.timeout, next_id: AtomicU64::new(1) })
    }

    /// `worker/dispatch`: hands a task over (REQ-WD-5).
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

    /// `worker/status`: where a job is (REQ-WD-11).
    ///
    /// # Errors
    /// See [`Error`]; an unknown job is [`Error::Refused`].
    pub async fn status(&self, job: &str) -> Result<Reply<StatusView>, Error> {
        self.call(method::STATUS, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/result`: what a completed job made (REQ-WD-15).
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

    /// Waits until a job has ended, and answers with its last status. It looks soon at first, and then ever less often,
    /// up to every 2 s. A host that is busy, or is being restarted, is given more than half a minute. To stop waiting, drop
    /// it: the job goes on.
    ///
    /// # Errors
    /// Of the first look that fails for good: see [`Error::may_pass`].
    pub async fn wait_for(&self, job: &str) -> Result<StatusView, Error> {
        let (mut pause, mut failed) = (FIRST, 0);
        loop {
            match self.status(job).await {
                Ok(Reply { value, .. }) if value.status != JobStatus::Running => return Ok(value),
                Ok(_) => failed = 0,
                Err(error) if error.may_pass() && failed < FORGIVEN => failed += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(SLOWEST);
        }
    }

    async fn call<P: Serialize + Sync, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<Reply<R>, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = self.http.post(self.endpoint.clone()).json(&Call { jsonrpc: "2.0", id, method, params });
        let mut response = request.send().await.map_err(|e| self.transport(e))?;
        let status = response.status();
        if !status.is_success() {
            let (mut text, _) = read(&mut response, REFUSAL_BYTES).await.unwrap_or_default();
            text.truncate(REFUSAL_BYTES);
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            return Err(Error::Http { url: self.endpoint.clone(), status, text });
        }
        let (body, is_whole) = read(&mut response, ANSWER_BYTES).await.map_err(|e| self.transport(e))?;
        if !is_whole {
            return Err(self.protocol(&format!("with more than {ANSWER_BYTES} bytes")));
        }
        let answer: Answer<'_> = serde_json::from_slice(&body).map_err(|e| self.protocol(&e.to_string()))?;
        match answer {
            Answer { error: Some(error), .. } => Err(Error::Refused { code: error.code, message: error.message }),
            Answer { result: Some(result), .. } => {
                let value = serde_json::from_str(result.get()).map_err(|e| self.protocol(&e.to_string()))?;
                Ok(Reply { json: result.to_owned(), value })
            }
            Answer { .. } => Err(self.protocol("neither `result` nor `error`")),
        }
    }

    fn transport(&self, error: reqwest::Error) -> Error {
        let url = self.endpoint.clone();
        // The innermost cause is the one that says something: "connection refused".
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let reason = cause.to_string();
        if error.is_timeout() {
            Error::Timeout { url, after: self.timeout }
        } else if error.is_connect() {
            Error::Unreachable { url, reason }
        } else {
            Error::Broken { url, reason }
        }
    }

    fn protocol(&self, reason: &str) -> Error {
        Error::Protocol { url: self.endpoint.clone(), reason: reason.to_owned() }
    }
}

/// What an answer says, and whether that is all of it: of one that is longer than `most` bytes, at least so many.
async fn read(response: &mut Response, most: usize) -> reqwest::Result<(Vec<u8>, bool)> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > most {
            return Ok((body, false));
        }
    }
    Ok((body, true))
}

/// The header that brings a token; an error where others could read it on its way.
fn authorization(token: &Secret, endpoint: &Url) -> Result<HeaderValue, Error> {
    if !may_carry_key(endpoint.scheme(), endpoint.host_str().unwrap_or_default()) {
        let why = format!("{endpoint} is on another machine, to which a token goes encrypted only: use https://");
        return Err(Error::Token(why));
    }
    let header = HeaderValue::try_from(format!("Bearer {}", token.expose()));
    let mut header = header.map_err(|_| Error::Token("what is there is none".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let options = Options { authorities: Some(b"nothing".to_vec()), ..Options::default() };
        let refused = WorkerHandle::with_options("https://guild.example", None, &options).unwrap_err();
        assert!(matches!(refused, Error::Authority(_)), "{refused}");
    }
}
