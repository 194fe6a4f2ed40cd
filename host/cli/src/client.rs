//! A client of a running host: `worker/*` as JSON-RPC over HTTP.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use guild_contract::{
    MemberKey,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, ListParams, ResultView, StatusView, method,
    },
};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// How long a call may take. Guild Hall's own client gives up as late.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The version of MCP under which Guild Hall's own client speaks.
const PROTOCOL_VERSION: &str = "2025-06-18";

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The address cannot be a host's.
    #[error("{url:?} is not the address of a host: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody listens.
    #[error(
        "cannot connect to {url} ({reason}); start a host with `guild serve`, or name the one that runs with --url or GUILD_URL"
    )]
    Unreachable {
        /// Where.
        url: Url,
        /// What the connection failed with.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// Where.
        url: Url,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to {url} broke: {reason}")]
    Broken {
        /// Where.
        url: Url,
        /// With what.
        reason: String,
    },
    /// An HTTP error.
    #[error("{url} answered HTTP {status}{}", hint(*.status))]
    Http {
        /// Where.
        url: Url,
        /// The answer.
        status: StatusCode,
    },
    /// Something that JSON-RPC does not know.
    #[error("{url} answered, but not as a host does: {reason}")]
    Protocol {
        /// Where.
        url: Url,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The host's own refusal.
    #[error("{message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// What the host says.
        message: String,
    },
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => {
            "; one member is served at /mcp, several at /members/KEY/mcp (--member KEY). `guild members` shows the keys"
        }
        StatusCode::FORBIDDEN => "; a host answers only to its own loopback address",
        _ => "",
    }
}

/// A result: as it came, and typed.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    /// The result's own JSON.
    pub(crate) json: Box<RawValue>,
    /// What it says.
    pub(crate) value: T,
}

/// A client of one member's endpoint.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Url,
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

impl Client {
    /// A client of the endpoint at `url`, or of a member of the host at `url`.
    pub(crate) fn new(url: &str, member: Option<&MemberKey>) -> Result<Self, ClientError> {
        let endpoint = endpoint(url, member).map_err(|reason| ClientError::Address { url: url.to_owned(), reason })?;
        // A host listens on loopback: a proxy from the environment could only be in the way.
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        let http = http.map_err(|e| ClientError::Address { url: url.to_owned(), reason: e.to_string() })?;
        Ok(Self { http, endpoint, next_id: AtomicU64::new(1) })
    }

    /// `worker/dispatch`.
    pub(crate) async fn dispatch(&self, params: &DispatchParams) -> Result<Reply<Dispatched>, ClientError> {
        self.call(method::DISPATCH, params).await
    }

    /// `worker/list`.
    pub(crate) async fn list(&self, params: &ListParams) -> Result<Reply<JobList>, ClientError> {
        self.call(method::LIST, params).await
    }

    /// `worker/status`.
    pub(crate) async fn status(&self, job: &str) -> Result<Reply<StatusView>, ClientError> {
        self.call(method::STATUS, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/result`.
    pub(crate) async fn result(&self, job: &str) -> Result<Reply<ResultView>, ClientError> {
        self.call(method::RESULT, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/cancel`.
    pub(crate) async fn cancel(&self, job: &str) -> Result<Reply<CancelView>, ClientError> {
        self.call(method::CANCEL, &JobParams { job_id: job.to_owned() }).await
    }

    /// `worker/delete`.
    pub(crate) async fn delete(&self, job: &str) -> Result<Reply<Deleted>, ClientError> {
        self.call(method::DELETE, &JobParams { job_id: job.to_owned() }).await
    }

    async fn call<P: Serialize + Sync, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<Reply<R>, ClientError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = self
            .http
            .post(self.endpoint.clone())
            .header("MCP-Protocol-Version", PROTOCOL_VERSION)
            .json(&Call { jsonrpc: "2.0", id, method, params });
        let response = request.send().await.map_err(|e| self.transport(e))?;
        if !response.status().is_success() {
            return Err(ClientError::Http { url: self.endpoint.clone(), status: response.status() });
        }
        let body = response.bytes().await.map_err(|e| self.transport(e))?;
        let answer: Answer<'_> = serde_json::from_slice(&body).map_err(|e| self.protocol(&e.to_string()))?;
        match answer {
            Answer { error: Some(error), .. } => Err(ClientError::Refused { code: error.code, message: error.message }),
            Answer { result: Some(result), .. } => {
                let value = serde_json::from_str(result.get()).map_err(|e| self.protocol(&e.to_string()))?;
                Ok(Reply { json: result.to_owned(), value })
            }
            Answer { .. } => Err(self.protocol("neither `result` nor `error`")),
        }
    }

    fn transport(&self, error: reqwest::Error) -> ClientError {
        let url = self.endpoint.clone();
        // The innermost cause is the one that says something: "connection refused".
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let reason = cause.to_string();
        if error.is_timeout() {
            ClientError::Timeout { url }
        } else if error.is_connect() {
            ClientError::Unreachable { url, reason }
        } else {
            ClientError::Broken { url, reason }
        }
    }

    fn protocol(&self, reason: &str) -> ClientError {
        ClientError::Protocol { url: self.endpoint.clone(), reason: reason.to_owned() }
    }
}

/// The endpoint that is meant: a bare address means its `/mcp`, and a member of it `/members/KEY/mcp`.
fn endpoint(url: &str, member: Option<&MemberKey>) -> Result<Url, String> {
    let mut url: Url = url.parse().map_err(|_| "it should look like http://127.0.0.1:7433/mcp".to_owned())?;
    if url.scheme() != "http" || url.host_str().is_none() {
        return Err("it should begin with http:// and a host's name".to_owned());
    }
    let bare = matches!(url.path(), "/" | "/mcp");
    match member {
        None if bare => url.set_path("/mcp"),
        None => {}
        Some(key) if bare => url.set_path(&format!("/members/{key}/mcp")),
        Some(key) => return Err(format!("it names an endpoint already; leave --member {key} or its path out")),
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_follows_from_address_and_member() {
        let at = |url, member: Option<&str>| {
            endpoint(url, member.map(|m| m.parse().unwrap()).as_ref()).map(|url| url.to_string())
        };
        assert_eq!(at("http://127.0.0.1:7433", None).unwrap(), "http://127.0.0.1:7433/mcp");
        assert_eq!(at("http://127.0.0.1:7433/mcp", None).unwrap(), "http://127.0.0.1:7433/mcp");
        assert_eq!(at("http://localhost:1/mcp", Some("a/b")).unwrap(), "http://localhost:1/members/a/b/mcp");
        assert_eq!(at("http://localhost:1/members/a/mcp", None).unwrap(), "http://localhost:1/members/a/mcp");
        assert!(at("http://localhost:1/members/a/mcp", Some("b")).unwrap_err().contains("--member"));
        assert!(at("localhost:7433", None).unwrap_err().contains("http://"));
        assert!(at("7433", None).unwrap_err().contains("http://"));
    }
}
