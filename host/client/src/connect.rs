//! How a host is connected to, how its answers are read, and what it means where that fails.

use std::{borrow::Cow, io, time::Duration};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use guild_contract::secret::{Secret, may_carry_key};
use reqwest::{
    Certificate, Response, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
    redirect::Policy,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sse_stream::{Sse, SseStream};

use crate::Error;

/// How long a call may take. Guild Hall's own client gives up as late.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between one try and the next, at first.
pub(crate) const FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const SLOWEST: Duration = Duration::from_secs(2);
/// How much is read of what a host says to a request that it refuses.
const REFUSAL_BYTES: usize = 4 * 1024;
/// How long it may take until there is a connection, where the whole answer may not take less.
const CONNECT: Duration = Duration::from_secs(10);

/// How a host is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// The token, where the host wants one.
    pub token: Option<Secret>,
    /// The certificate authorities that are trusted in place of the system's.
    pub authorities: Option<Authorities>,
    /// How long a call may take; 30 s, if nobody says otherwise. A host answers a dispatch within 20 s. That of a tool ends
    /// when the host says so.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { token: None, authorities: None, timeout: TIMEOUT }
    }
}

/// Certificate authorities.
#[derive(Clone, Debug)]
pub struct Authorities(Vec<Certificate>);

impl Authorities {
    /// All that are in a PEM file.
    ///
    /// # Errors
    /// Where there is none in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let authorities = Certificate::from_pem_bundle(pem).map_err(|e| Error::Authority(e.to_string()))?;
        if authorities.is_empty() {
            return Err(Error::Authority("there is no certificate in it".to_owned()));
        }
        Ok(Self(authorities))
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

/// The pause after the next try: longer by half, up to 2 s.
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(SLOWEST)
}

/// A client of one endpoint. `timeout` is how long a whole answer may take; it may go on for ever where there is none.
pub(crate) fn client(
    endpoint: &Url,
    options: &Options,
    mut headers: HeaderMap,
    timeout: Option<Duration>,
) -> Result<reqwest::Client, Error> {
    if let Some(token) = &options.token {
        headers.insert(AUTHORIZATION, authorization(token, endpoint)?);
    }
    // A proxy from the environment could only be in the way, and a redirect lead a token elsewhere.
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).default_headers(headers);
    let mut http = http.connect_timeout(CONNECT);
    if let Some(timeout) = timeout {
        http = http.timeout(timeout);
    }
    if let Some(Authorities(authorities)) = &options.authorities {
        http = http.tls_certs_only(authorities.iter().cloned());
    }
    http.build().map_err(|e| Error::Address { url: endpoint.to_string(), reason: e.to_string() })
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

/// Why there is no answer of `endpoint`.
pub(crate) fn failed(error: reqwest::Error, endpoint: &Url, timeout: Duration) -> Error {
    let url = endpoint.clone();
    // The innermost cause is the one that says something: "connection refused".
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let reason = cause.to_string();
    if error.is_connect() {
        Error::Unreachable { url, reason }
    } else if error.is_timeout() {
        Error::Timeout { url, after: timeout }
    } else {
        Error::Broken { url, reason }
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

/// All that an answer says, which is no more than `most` bytes.
pub(crate) async fn whole(
    url: &Url,
    response: &mut Response,
    most: usize,
    timeout: Duration,
) -> Result<Vec<u8>, Error> {
    match read(response, most).await.map_err(|e| failed(e, url, timeout))? {
        (body, true) => Ok(body),
        (_, false) => Err(protocol(url, format!("with more than {most} bytes"))),
    }
}

/// What an answer says in JSON, of no more than `most` bytes; an error where it refuses.
pub(crate) async fn json<T: DeserializeOwned>(
    url: &Url,
    mut response: Response,
    most: usize,
    timeout: Duration,
) -> Result<T, Error> {
    if !response.status().is_success() {
        return Err(refused(url, &mut response).await);
    }
    let body = whole(url, &mut response, most, timeout).await?;
    serde_json::from_slice(&body).map_err(|e| protocol(url, e.to_string()))
}

/// What a host says that refuses a request: a text, or, at an endpoint, the message of an error of JSON-RPC.
pub fn refusal(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        error: Told<'a>,
    }
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    match serde_json::from_str(text) {
        Ok(Refusal { error: Told { message } }) => message,
        Err(_) => text.into(),
    }
}

/// What the host says to a request that it refuses.
pub(crate) async fn refused(url: &Url, response: &mut Response) -> Error {
    let (mut text, _) = read(response, REFUSAL_BYTES).await.unwrap_or_default();
    text.truncate(REFUSAL_BYTES);
    let text = refusal(&String::from_utf8_lossy(&text)).trim().to_owned();
    Error::Http { url: url.clone(), status: response.status(), text }
}

/// It is not what a host says.
pub(crate) fn protocol(url: &Url, reason: impl Into<String>) -> Error {
    Error::Protocol { url: url.clone(), reason: reason.into() }
}

/// The events of an answer, each of which has no more than some `most` bytes.
pub(crate) fn sse(response: Response, most: usize) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
    let pieces = stream::unfold((response, 0_usize), move |(mut response, open)| async move {
        let piece = response.chunk().await.map_err(io::Error::other).transpose()?;
        // An event ends with an empty line.
        let open = match &piece {
            Ok(piece) if piece.windows(2).any(|two| two == b"\n\n") => 0,
            Ok(piece) => open + piece.len(),
            Err(_) => open,
        };
        let too_long = || Err(io::Error::other(format!("an event has more than {most} bytes")));
        Some((if open > most { too_long() } else { piece }, (response, open)))
    });
    SseStream::from_bytes_stream(pieces).boxed()
}
