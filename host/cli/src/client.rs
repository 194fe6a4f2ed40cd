//! A client of a running host: `worker/*` as JSON-RPC over HTTP.

use std::{
    env, fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use clap::Args;
use guild_contract::{
    MemberKey,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, ListParams, ResultView, StatusView, method,
    },
};
use guild_jobs::secret::{KeySource, Secret, may_carry_key};
use reqwest::{
    Certificate, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, HeaderValue},
    redirect::Policy,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::output::one_line;

/// How long a call may take. Guild Hall's own client gives up as late.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The version of MCP under which Guild Hall's own client speaks.
const PROTOCOL_VERSION: &str = "2025-06-18";
/// The variable that has the token, where no file does.
const TOKEN_VARIABLE: &str = "GUILD_TOKEN";
/// How much is shown of what a host says to a request that it refuses, and how much of it is read.
const REFUSAL_CHARS: usize = 400;
const REFUSAL_BYTES: usize = 4 * 1024;
/// How much is read of an answer: more than any host's, which is largest where it lists every job in detail.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// How a host is told who asks, and how the host is known. A token is never an argument: those are seen by everybody on
/// the machine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Access {
    /// Send the token that is in this file [default: $GUILD_TOKEN, where it is set]
    #[arg(long, value_name = "FILE", env = "GUILD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authority in this PEM file, and no other
    #[arg(long, value_name = "FILE", env = "GUILD_CA")]
    ca: Option<PathBuf>,
}

impl Access {
    /// What the environment says, for commands that find their host by themselves.
    pub(crate) fn of_environment() -> Self {
        let file = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { token_file: file("GUILD_TOKEN_FILE"), ca: file("GUILD_CA") }
    }

    fn token(&self) -> Result<Option<Secret>, ClientError> {
        let source = match &self.token_file {
            Some(file) => KeySource::File(file.clone()),
            None if env::var_os(TOKEN_VARIABLE).is_some_and(|token| !token.is_empty()) => {
                KeySource::Env(TOKEN_VARIABLE.to_owned())
            }
            None => return Ok(None),
        };
        source.read().map(Some).map_err(ClientError::Token)
    }
}

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
    /// The token cannot be had, or may not be sent there.
    #[error("no token: {0}")]
    Token(String),
    /// The certificate authority cannot be had.
    #[error("{}: {reason}; --ca or GUILD_CA names it, and it is a PEM file", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
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
    #[error("{url} answered HTTP {status}{}{}", said(.text), hint(*.status))]
    Http {
        /// Where.
        url: Url,
        /// The answer.
        status: StatusCode,
        /// What the host says about it.
        text: String,
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
        StatusCode::UNAUTHORIZED => "; GUILD_TOKEN, or --token-file FILE, has one that `guild token add NAME` made",
        _ => "",
    }
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
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
    token: Option<HeaderValue>,
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
    pub(crate) fn new(url: &str, member: Option<&MemberKey>, access: &Access) -> Result<Self, ClientError> {
        let address = |reason| ClientError::Address { url: url.to_owned(), reason };
        let endpoint = endpoint(url, member).map_err(address)?;
        // A proxy from the environment could only be in the way, and a redirect lead a token elsewhere.
        let mut http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
        if let Some(path) = &access.ca {
            let wrong = |reason: String| ClientError::Authority { path: path.clone(), reason };
            let pem = fs::read(path).map_err(|e| wrong(e.to_string()))?;
            let authorities = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
            if authorities.is_empty() {
                return Err(wrong("there is no certificate in it".to_owned()));
            }
            http = http.tls_certs_only(authorities);
        }
        let http = http.build().map_err(|e| address(e.to_string()))?;
        let token = match access.token()? {
            Some(token) => Some(header(&token, &endpoint)?),
            None => None,
        };
        Ok(Self { http, token, endpoint, next_id: AtomicU64::new(1) })
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
        let mut response = self.with_token(request).send().await.map_err(|e| self.transport(e))?;
        let status = response.status();
        if !status.is_success() {
            let (mut text, _) = read(&mut response, REFUSAL_BYTES).await.unwrap_or_default();
            text.truncate(REFUSAL_BYTES);
            let text = one_line(&String::from_utf8_lossy(&text), REFUSAL_CHARS);
            return Err(ClientError::Http { url: self.endpoint.clone(), status, text });
        }
        let (body, is_whole) = read(&mut response, ANSWER_BYTES).await.map_err(|e| self.transport(e))?;
        if !is_whole {
            return Err(self.protocol(&format!("with more than {ANSWER_BYTES} bytes")));
        }
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

    fn with_token(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
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
fn header(token: &Secret, endpoint: &Url) -> Result<HeaderValue, ClientError> {
    if !may_carry_key(endpoint.scheme(), endpoint.host_str().unwrap_or_default()) {
        let why = format!("{endpoint} is on another machine, to which a token goes encrypted only: use https://");
        return Err(ClientError::Token(why));
    }
    let header = HeaderValue::try_from(format!("Bearer {}", token.expose()));
    let mut header = header.map_err(|_| ClientError::Token("what is there is none".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The endpoint that is meant: a bare address means its `/mcp`, and a member of it `/members/KEY/mcp`.
fn endpoint(url: &str, member: Option<&MemberKey>) -> Result<Url, String> {
    let mut url: Url = url.parse().map_err(|_| "it should look like http://127.0.0.1:7433/mcp".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it should begin with http:// or https:// and a host's name".to_owned());
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
        assert_eq!(at("https://guild.example", None).unwrap(), "https://guild.example/mcp");
        assert!(at("http://localhost:1/members/a/mcp", Some("b")).unwrap_err().contains("--member"));
        assert!(at("localhost:7433", None).unwrap_err().contains("http://"));
        assert!(at("7433", None).unwrap_err().contains("http://"));
    }

    #[test]
    fn a_token_goes_to_another_machine_encrypted_only() {
        let to = |url: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), "guild_1234\n").unwrap();
            let access = Access { token_file: Some(file.path().to_owned()), ca: None };
            Client::new(url, None, &access).map(|client| format!("{client:?}"))
        };
        let refused = to("http://guild.example/mcp").unwrap_err().to_string();
        assert!(refused.contains("use https://") && !refused.contains("1234"), "{refused}");
        for may in ["https://guild.example/mcp", "http://127.0.0.1:7433", "http://[::1]:7433"] {
            assert!(!to(may).unwrap().contains("1234"), "the token of {may} is shown");
        }
    }
}
